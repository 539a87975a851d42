//! The tests, and everything else that must pass before a change lands.

use std::time::Instant;

use anyhow::Context;

use crate::Failure;
use crate::process::Call;
use crate::python;
use crate::skipped;

/// One step of `cargo xtask ci`: a call of cargo.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: Option<(&'static str, &'static str)>,
}

/// The step that runs code of threads in all their interleavings, and the module that has these tests.
const INTERLEAVINGS: &str = "interleavings";
/// The step that needs Python.
const PYTHON: &str = "python";

/// All steps, the quick ones first.
const STEPS: &[Step] = &[
    Step { name: "formatting", arguments: &["fmt", "--all", "--check"], environment: None },
    Step {
        name: "tidy",
        arguments: &["run", "--quiet", "--locked", "-p", "xtask", "tidy"],
        environment: None,
    },
    Step {
        name: "licences",
        arguments: &["run", "--quiet", "--locked", "-p", "xtask", "licences"],
        environment: None,
    },
    Step {
        name: "clippy",
        arguments: &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
        environment: None,
    },
    Step { name: "tests", arguments: &["test", "--locked", "--workspace"], environment: None },
    Step {
        name: INTERLEAVINGS,
        arguments: &[
            "test",
            "--locked",
            "--package=redline-system",
            "--lib",
            "--target-dir=target/loom",
            INTERLEAVINGS,
        ],
        environment: Some(("RUSTFLAGS", "--cfg loom")),
    },
    Step {
        name: "docs",
        arguments: &["doc", "--locked", "--workspace", "--no-deps"],
        environment: Some(("RUSTDOCFLAGS", "-D warnings")),
    },
    Step { name: "demo", arguments: &["run", "--locked", "--release", "--", "demo"], environment: None },
    Step {
        name: "laboratory",
        arguments: &[
            "run",
            "--locked",
            "--release",
            "--",
            "bench",
            "all",
            "--profile=smoke",
            "--threads=2",
            "--portable",
            "--baseline=baselines",
        ],
        environment: None,
    },
    Step {
        name: "module",
        // With the features that the tests have, so that only the module itself is compiled.
        arguments: &["build", "--locked", "--workspace", "--all-targets"],
        environment: None,
    },
    Step {
        name: PYTHON,
        arguments: &[
            "run",
            "--quiet",
            "--locked",
            "-p",
            "xtask",
            "python",
            "--library=target/debug/lib_redline.so",
            "--redline=target/debug/redline",
        ],
        environment: None,
    },
];

/// `cargo xtask test`: runs all tests of the workspace, and lists those that were skipped.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    skipped::forget();
    let outcome = cargo().args(["test", "--workspace"]).args(arguments).run();
    skipped::list();
    Ok(outcome?)
}

/// `cargo xtask simulate`: runs schedules of the engine's simulator, which stops at the first failure and reports its seed.
pub(crate) fn simulate(arguments: &[String]) -> Result<(), Failure> {
    let number = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or_else(|| default.to_owned());
    let call =
        cargo().env("REDLINE_SCHEDULES", number(0, "100000")).env("REDLINE_FIRST_SEED", number(1, "0"));
    let call = call.args(["test", "--release", "-p", "redline-engine", "--lib"]);
    Ok(call.args(["--", "--exact", "--nocapture", "simulator::tests::many_schedules"]).run()?)
}

/// `cargo xtask interleavings`: runs that step.
pub(crate) fn interleavings(_: &[String]) -> Result<(), Failure> {
    STEPS.iter().filter(|step| step.name == INTERLEAVINGS).try_for_each(|step| Ok(call(step).run()?))
}

/// `cargo xtask ci`: runs every step with its time, and stops at the first failure.
pub(crate) fn ci(_: &[String]) -> Result<(), Failure> {
    let start = Instant::now();
    skipped::forget();
    for step in STEPS {
        eprintln!("==> {}", step.name);
        if step.name == PYTHON && !python::is_there() {
            eprintln!(
                "==> {PYTHON} SKIPPED: `python3` is not there, is older than 3.11, or has no `venv` with pip"
            );
            continue;
        }
        let begin = Instant::now();
        call(step).run().with_context(|| format!("step `{}` failed", step.name))?;
        eprintln!("==> {} passed in {:.1} s", step.name, begin.elapsed().as_secs_f64());
    }
    skipped::list();
    eprintln!("==> all {} steps passed in {:.1} s", STEPS.len(), start.elapsed().as_secs_f64());
    Ok(())
}

/// The cargo call of a step.
fn call(step: &Step) -> Call {
    let call = cargo().args(step.arguments.iter().copied());
    step.environment.into_iter().fold(call, |call, (name, value)| call.env(name, value))
}

/// The cargo that runs this program, by a name that selects the pinned toolchain.
pub(crate) fn cargo() -> Call {
    Call::new("cargo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_but_formatting_keeps_the_lock_file() {
        for step in STEPS.iter().filter(|s| s.name != "formatting") {
            assert!(step.arguments.contains(&"--locked"), "{}", step.name);
        }
    }

    #[test]
    fn a_step_shows_its_environment() {
        let docs = STEPS.iter().find(|s| s.name == "docs").expect("there is a docs step");
        let line = call(docs).to_string();
        assert_eq!(line, "RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps");
    }
}
