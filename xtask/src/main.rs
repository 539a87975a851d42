//! `cargo xtask`: maintenance commands of the project, one subcommand each.
#![forbid(unsafe_code)]

mod audit;
mod ci;
mod dist;
mod fuzz;
mod gate;
mod mutants;
mod parsers;
mod process;
mod python;
mod reproducible;
mod skipped;
mod tidy;
mod tools;

use std::path::Path;
use std::process::ExitCode;

/// Why a subcommand failed.
enum Failure {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// The work failed: exit code 1.
    Work(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Work(error)
    }
}

/// One subcommand.
struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

/// Every subcommand, in the order of the help.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[ARGS...]",
        about: "all the tests: `cargo test --workspace ARGS...`, and a list of those that were skipped",
        run: ci::test,
    },
    Command {
        name: "ci",
        arguments: "",
        about: "what must pass before a change lands: formatting, tidy, licences, clippy, tests, interleavings, docs, demo, Python",
        run: ci::ci,
    },
    Command {
        name: "tidy",
        arguments: "",
        about: "the invariants of the house (also run by the tests)",
        run: tidy::command,
    },
    Command {
        name: "simulate",
        arguments: "[COUNT [FIRST]]",
        about: "the engine without a model, on COUNT random schedules (100000) from seed FIRST (0) on",
        run: ci::simulate,
    },
    Command {
        name: "interleavings",
        arguments: "",
        about: "regions of the team of threads, in every interleaving of the threads, by loom",
        run: ci::interleavings,
    },
    Command {
        name: "fuzz",
        arguments: "[--seconds N] [--seed N] [--cases N]",
        about: "random requests through the binary, together and alone, for N seconds (300)",
        run: fuzz::command,
    },
    Command {
        name: "fuzz-parsers",
        arguments: "[--seconds N] [TARGET...]",
        about: "what is read from files, against libFuzzer: safetensors, pickle, tokenizer, config, infq, N seconds each (600)",
        run: parsers::fuzz,
    },
    Command {
        name: "asan",
        arguments: "",
        about: "the tests of what reads files, hostile ones among them, under the address sanitizer",
        run: parsers::asan,
    },
    Command {
        name: "licences",
        arguments: "",
        about: "licences and sources of all packages, by cargo-deny",
        run: audit::licences,
    },
    Command {
        name: "audit",
        arguments: "",
        about: "licences, sources and known vulnerabilities of all packages, by cargo-deny",
        run: audit::command,
    },
    Command {
        name: "mutants",
        arguments: "[ARGS...]",
        about: "small changes of the code that a test should notice: the part of the day, or what ARGS of cargo-mutants choose",
        run: mutants::command,
    },
    Command {
        name: "soak",
        arguments: "[SECONDS]",
        about: "requests for a long time (600 s, or REDLINE_SOAK_S), after which the process holds no more than before",
        run: gate::soak,
    },
    Command {
        name: "hot-reload",
        arguments: "[COUNT]",
        about: "an adapter that is replaced COUNT times (1000) under load, half of the time by a bad one: no request may fail",
        run: gate::hot_reload,
    },
    Command {
        name: "gate",
        arguments: "NAME",
        about: "a gate on speed that holds on any machine: tokenizer-perf, gemm-perf, attn-prefill-perf, or all",
        run: gate::gate,
    },
    Command {
        name: "nightly",
        arguments: "[PART...]",
        about: "what is too slow for every change: simulate, fuzz, poison, soak, hot-reload, fuzz-parsers, asan, reproducible, audit, gates, lanes, wheel, mutants",
        run: gate::nightly,
    },
    Command {
        name: "reproducible",
        arguments: "",
        about: "two clean release builds of the last commit at different paths: the same bytes",
        run: reproducible::reproducible,
    },
    Command {
        name: "dist",
        arguments: "[--target TRIPLE] [--url URL]",
        about: "a release in target/dist: static binaries for x86-64 and aarch64 with licences, the wheel, install.sh for URL, the \
                container file, and SHA256SUMS; with --target one archive and no wheel",
        run: dist::dist,
    },
    Command {
        name: "python",
        arguments: "[--venv DIR] [ARGS...]",
        about: "the Python package: build the wheel, install it into a fresh virtual environment, test it (ARGS go to pytest)",
        run: python::bindings,
    },
    Command {
        name: "golden",
        arguments: "[--venv DIR] [ARGS...]",
        about: "remake tests/golden with the reference implementation",
        run: python::golden,
    },
    Command {
        name: "parity-reference",
        arguments: "[--venv DIR] [-- ARGS...]",
        about: "dump a model's activations for `redline parity` (ARGS: --model DIR --ids 1,2,3 --steps 4 --out DIR)",
        run: python::parity_reference,
    },
    Command {
        name: "train-demo",
        arguments: "[--venv DIR] [ARGS...]",
        about: "train the model in models/demo again",
        run: python::train_demo,
    },
    Command {
        name: "train-demo-diffusion",
        arguments: "[--venv DIR] [ARGS...]",
        about: "train the model in models/demo-diffusion again, from that in models/demo",
        run: python::train_demo_diffusion,
    },
    Command {
        name: "peers",
        arguments: "[--venv DIR] [ARGS...]",
        about: "measure other engines beside Redline (ARGS go to xtask/peers/run.py: --shape gpt2 --quick, ...); \
                `torch`: parity and time of a model that fills masks (ARGS go to xtask/peers/diffusion.py); \
                `serving`: `redline serve` beside other servers (ARGS go to xtask/peers/serving.py: --llama-server PATH, ...); \
                `encoders`: vectors of an encoder (ARGS go to xtask/peers/encoders.py: --shape bge-base, ...)",
        run: python::peers,
    },
    Command {
        name: "clients",
        arguments: "[--venv DIR] [ARGS...]",
        about: "use `redline serve` through clients that others wrote (ARGS go to xtask/clients/run.py: --only openai, ...)",
        run: python::clients,
    },
    Command {
        name: "schemas",
        arguments: "[--venv DIR] [ARGS...]",
        about: "compare grammars of JSON schemas with the verdicts of others (ARGS go to xtask/schemas/run.py: --only suite, --write, ...)",
        run: python::schemas,
    },
    Command {
        name: "page",
        arguments: "[--venv DIR] [ARGS...]",
        about: "use the page of `redline serve` in headless Chromium (ARGS go to xtask/page/run.py: --out DIR, ...)",
        run: python::page,
    },
    Command {
        name: "stress",
        arguments: "[ARGS...]",
        about: "overload, slow clients, disconnects, signals and damaged caches against `redline serve`, with targets \
                (ARGS go to xtask/stress/run.py: --only overload, --quick, ...)",
        run: python::stress,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Work(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs the subcommand named by the first argument with the remaining arguments.
fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(format!("no command given\n\nhint: one of {}", names().join(", "))));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", help());
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        return Err(Failure::Usage(format!("no command `{name}`\n\nhint: one of {}", names().join(", "))));
    };
    if rest.first().is_some_and(|a| a == "--help" || a == "-h") {
        println!("cargo xtask {} {}\n\n{}", command.name, command.arguments, command.about);
        return Ok(());
    }
    if command.arguments.is_empty() && !rest.is_empty() {
        let hint = format!("hint: cargo xtask {}", command.name);
        return Err(Failure::Usage(format!(
            "`{name}` takes no argument, got `{}`\n\n{hint}",
            rest.join(" ")
        )));
    }
    (command.run)(rest)
}

/// The names of all subcommands.
fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|c| c.name).collect()
}

/// The text of `--help`.
fn help() -> String {
    let mut text = String::from("cargo xtask COMMAND\n\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        text.push_str(&format!("  {call:<42} {}\n", command.about));
    }
    text
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the root of the repository")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        match dispatch(&arguments) {
            Err(Failure::Usage(message)) => message,
            Err(Failure::Work(error)) => panic!("{arguments:?} failed with {error:#}"),
            Ok(()) => panic!("{arguments:?} was accepted"),
        }
    }

    #[test]
    fn wrong_use_names_the_hint() {
        assert!(usage_error(&[]).contains("one of test, ci, tidy"));
        assert!(usage_error(&["tests"]).contains("no command `tests`"));
        assert!(usage_error(&["ci", "--fast"]).contains("`ci` takes no argument, got `--fast`"));
        assert!(usage_error(&["golden", "--venv"]).contains("`--venv` needs a directory"));
    }

    #[test]
    fn help_lists_every_command() {
        for command in COMMANDS {
            assert!(help().contains(command.about));
            let arguments = [command.name.to_string(), "--help".to_string()];
            assert!(dispatch(&arguments).is_ok(), "{} --help", command.name);
        }
    }
}
