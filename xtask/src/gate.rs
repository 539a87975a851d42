//! Gates on speed that hold on any machine: each is a ratio to a reference measured in the same run, never an absolute time.

use anyhow::Context;

use crate::Failure;
use crate::ci::{cargo, simulate};

/// A gate: a lane of the laboratory that fails below what it must reach.
struct Gate {
    name: &'static str,
    lane: &'static [&'static str],
}

/// Every gate. The names are those of the checks that a repository requires.
const GATES: &[Gate] = &[
    // At least five times the `tokenizers` crate (or `REDLINE_TOKENIZER_MIN_SPEEDUP`), with identical ids.
    Gate { name: "tokenizer-perf", lane: &["tokenizer", "--threads=1,2"] },
    // Packed formats over f32, for one row of inputs (reading) and for many (multiplying), with identical bits on every tier.
    Gate {
        name: "gemm-perf",
        lane: &["gemm", "--formats=f32,w8,w4", "--m=1,128", "--n=4096", "--k=4096", "--min-speedup=1.5"],
    },
    // Verdicts: equal arms the same, a slowdown of 5 % found, nothing wrong under disturbance.
    Gate { name: "self-test", lane: &["self-test"] },
];

/// `cargo xtask gate NAME`: runs the lane of a gate, or of all.
pub(crate) fn gate(arguments: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = GATES.iter().map(|gate| gate.name).chain(["all"]).collect();
    let hint = format!("hint: one of {}", names.join(", "));
    let [name] = arguments else {
        return Err(Failure::Usage(format!("one gate at a time, got {}\n\n{hint}", arguments.len())));
    };
    let asked: Vec<&Gate> = GATES.iter().filter(|gate| name == "all" || name == gate.name).collect();
    if asked.is_empty() {
        return Err(Failure::Usage(format!("no gate `{name}`\n\n{hint}")));
    }
    asked.into_iter().try_for_each(run)
}

fn run(gate: &Gate) -> Result<(), Failure> {
    let call = cargo().args(["run", "--locked", "--release", "--", "bench"]).args(gate.lane.iter().copied());
    call.run().with_context(|| format!("gate `{}` failed", gate.name))?;
    Ok(())
}

/// `cargo xtask nightly`: what takes too long for every change.
pub(crate) fn nightly(_: &[String]) -> Result<(), Failure> {
    crate::reproducible::reproducible(&[])?;
    simulate(&["1000000".to_owned()])?;
    gate(&["all".to_owned()])?;
    Ok(cargo().args(["run", "--locked", "--release", "--", "bench", "all", "--profile=standard"]).run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_named() {
        let refused = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let Err(Failure::Usage(message)) = gate(&arguments) else { panic!("{arguments:?}") };
            message
        };
        assert!(refused(&[]).contains("tokenizer-perf, gemm-perf"));
        assert!(refused(&["speed"]).contains("no gate `speed`"));
        assert!(refused(&["gemm-perf", "all"]).contains("got 2"));
    }
}
