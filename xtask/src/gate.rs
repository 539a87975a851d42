//! Performance gates that hold on any machine: each is a ratio to a reference measured in the same run, never an absolute
//! time.

use anyhow::{Context, anyhow};

use crate::ci::{cargo, simulate};
use crate::{Failure, audit, fuzz, mutants, parsers};

/// A gate: lanes of the laboratory that fail if their figures miss a bound.
struct Gate {
    name: &'static str,
    lanes: &'static [&'static [&'static str]],
}

/// All gates. The names are those of the repository's required checks.
const GATES: &[Gate] = &[
    // At least five times as fast as the `tokenizers` crate (or `REDLINE_TOKENIZER_MIN_SPEEDUP`), with identical ids.
    Gate { name: "tokenizer-perf", lanes: &[&["tokenizer", "--threads=1,2"]] },
    // Packed formats compared with f32, for one row of inputs (memory-bound) and for many (compute-bound), with identical
    // bits on every tier. What adapters add to a layer, compared with the layer alone.
    Gate {
        name: "gemm-perf",
        lanes: &[
            &["gemm", "--formats=f32,w8,w4", "--m=1,128", "--n=4096", "--k=4096", "--min-speedup=1.5"],
            &[
                "gemm",
                "--formats=w8",
                "--m=1,8",
                "--n=4096",
                "--k=4096",
                "--rank=16,32",
                "--adapters=1,8",
                "--num-runs=15",
            ],
        ],
    },
    // Attention of a prompt over int8 keys and values, compared with f16, and the change of perplexity on the demo model.
    Gate {
        name: "attn-prefill-perf",
        lanes: &[&["attn-prefill", "--ctx=4096", "--heads-per-kv=4", "--perplexity-tokens=8192"]],
    },
];

/// `cargo xtask gate NAME`: runs the lanes of a gate, or of all gates.
pub(crate) fn gate(arguments: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = GATES.iter().map(|gate| gate.name).chain(["all"]).collect();
    let hint = format!("hint: one of {}", names.join(", "));
    let [name] = arguments else {
        return Err(Failure::Usage(format!("one gate at a time, got {}\n\n{hint}", arguments.len())));
    };
    let gates: Vec<&Gate> = GATES.iter().filter(|gate| name == "all" || name == gate.name).collect();
    if gates.is_empty() {
        return Err(Failure::Usage(format!("no gate `{name}`\n\n{hint}")));
    }
    gates.into_iter().try_for_each(run)
}

fn run(gate: &Gate) -> Result<(), Failure> {
    for lane in gate.lanes {
        let call = cargo().args(["run", "--locked", "--release", "--", "bench"]).args(lane.iter().copied());
        call.run().with_context(|| format!("gate `{}` failed", gate.name))?;
    }
    Ok(())
}

/// A part of the nightly job.
struct Part {
    name: &'static str,
    run: fn() -> Result<(), Failure>,
}

/// Checks that take too long for every change, the parts that find most first.
const NIGHT: &[Part] = &[
    Part { name: "simulate", run: || simulate(&["1000000".to_owned()]) },
    Part { name: "fuzz", run: || fuzz::command(&[]) },
    Part { name: "poison", run: poison },
    Part { name: "soak", run: || soak(&[]) },
    Part { name: "hot-reload", run: || hot_reload(&[]) },
    Part { name: "fuzz-parsers", run: || parsers::fuzz(&[]) },
    Part { name: "asan", run: || parsers::asan(&[]) },
    Part { name: "reproducible", run: || crate::reproducible::reproducible(&[]) },
    Part { name: "audit", run: || audit::command(&[]) },
    Part { name: "gates", run: || gate(&["all".to_owned()]) },
    Part { name: "lanes", run: lanes },
    Part { name: "wheel", run: || crate::python::bindings(&[]) },
    Part { name: "mutants", run: || mutants::command(&[]) },
];

/// `cargo xtask nightly`: runs all parts, or the named ones. A failing part does not stop the others.
pub(crate) fn nightly(arguments: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = NIGHT.iter().map(|part| part.name).collect();
    if let Some(unknown) = arguments.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::Usage(format!("no part `{unknown}`\n\nhint: some of {}", names.join(", "))));
    }
    let mut failed = Vec::new();
    for part in
        NIGHT.iter().filter(|part| arguments.is_empty() || arguments.iter().any(|name| name == part.name))
    {
        eprintln!("==> {}", part.name);
        match (part.run)() {
            Ok(()) => eprintln!("==> {} passed", part.name),
            Err(Failure::Work(error)) => {
                eprintln!("==> {} failed: {error:#}", part.name);
                failed.push(part.name);
            }
            Err(usage) => return Err(usage),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "failed: {}\n\nhint: repeat with\n  cargo xtask nightly {}",
        failed.join(", "),
        failed.join(" ")
    )
    .into())
}

/// Runs 100,000 requests while freed memory is overwritten.
fn poison() -> Result<(), Failure> {
    let call = cargo().env("REDLINE_POISONED_REQUESTS", "100000");
    Ok(call.args(["test", "--locked", "-p", "redline-engine", "--test", "it", "poison::"]).run()?)
}

fn lanes() -> Result<(), Failure> {
    Ok(cargo().args(["run", "--locked", "--release", "--", "bench", "all", "--profile=standard"]).run()?)
}

/// Default duration of a soak in seconds.
const SOAK_S: &str = "600";

/// `cargo xtask soak`: sends requests for a long time and checks that the resources of the process do not grow.
pub(crate) fn soak(arguments: &[String]) -> Result<(), Failure> {
    let seconds = match arguments {
        [] => std::env::var("REDLINE_SOAK_S").unwrap_or_else(|_| SOAK_S.to_owned()),
        [seconds] => seconds.clone(),
        more => {
            return Err(Failure::Usage(format!(
                "one number of seconds, got {}\n\nhint: cargo xtask soak 60",
                more.len()
            )));
        }
    };
    let call =
        cargo().args(["run", "--locked", "--release", "-p", "redline-engine", "--example", "soak", "--"]);
    Ok(call.arg(seconds).run()?)
}

/// `cargo xtask hot-reload`: replaces an adapter under load, half of the time by a bad one.
pub(crate) fn hot_reload(arguments: &[String]) -> Result<(), Failure> {
    let count = match arguments {
        [] => "1000",
        [count] => count,
        more => {
            return Err(Failure::Usage(format!(
                "one number of replacements, got {}\n\nhint: cargo xtask hot-reload 1000",
                more.len()
            )));
        }
    };
    let call =
        cargo().args(["run", "--locked", "--release", "-p", "redline-engine", "--example", "hot_reload"]);
    Ok(call.args(["--", count]).run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_night_is_named() {
        let Err(Failure::Usage(message)) = nightly(&["fuzzy".to_owned()]) else { panic!("accepted") };
        assert!(
            message.contains("no part `fuzzy`") && message.contains("simulate, fuzz, poison"),
            "{message}"
        );
        let workflow = std::fs::read_to_string(crate::root().join(".github/workflows/nightly.yml")).unwrap();
        for part in NIGHT {
            assert!(workflow.split_whitespace().any(|word| word == part.name), "{} in no job", part.name);
        }
    }

    #[test]
    fn a_gate_is_named() {
        let refused = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let Err(Failure::Usage(message)) = gate(&arguments) else { panic!("{arguments:?}") };
            message
        };
        let tax = GATES.iter().filter(|gate| gate.lanes.iter().any(|lane| lane.contains(&"--rank=16,32")));
        assert_eq!(tax.map(|gate| gate.name).collect::<Vec<_>>(), ["gemm-perf"]);
        assert!(refused(&[]).contains("tokenizer-perf, gemm-perf, attn-prefill-perf"));
        assert!(refused(&["speed"]).contains("no gate `speed`"));
        assert!(refused(&["gemm-perf", "all"]).contains("got 2"));
    }
}
