//! `cargo xtask fuzz`: sends random requests through the binary. However requests are run together, each answer must be
//! bit-identical to the answer when the request runs alone with default flags.
//!
//! Each seed is a case. `answer` lists the fields that may differ between the two runs. A memory budget may refuse a request,
//! with its numbers.

mod answer;
mod case;
mod model;
mod process;
mod random;
mod request;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Map;

use self::case::{Case, Least};
use self::process::Binary;
use crate::Failure;
use crate::ci::cargo;

/// Default duration in seconds, used by the nightly job.
const SECONDS: u64 = 300;

const HINT: &str = "hint: cargo xtask fuzz [--seconds N] [--seed N] [--cases N]";

/// The options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    seconds: u64,
    /// The first seed; by default every run uses new seeds.
    seed: Option<u64>,
    /// Maximum number of cases.
    cases: u64,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut wanted = Self { seconds: SECONDS, seed: None, cases: u64::MAX };
        for pair in arguments.chunks(2) {
            let bad = || Failure::Usage(format!("`{}` makes no sense\n\n{HINT}", pair.join(" ")));
            let [name, value] = pair else { return Err(bad()) };
            let value = value.parse().map_err(|_| bad())?;
            match name.as_str() {
                "--seconds" => wanted.seconds = value,
                "--seed" => wanted.seed = Some(value),
                "--cases" => wanted.cases = value,
                _ => return Err(bad()),
            }
        }
        Ok(wanted)
    }
}

/// `cargo xtask fuzz`: runs cases until the time is up or one fails.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    Ok(run(Wanted::parse(arguments)?)?)
}

fn run(wanted: Wanted) -> Result<()> {
    // A debug build, with all assertions and overflow checks.
    cargo().args(["build", "--locked", "--package", "redline-cli"]).run()?;
    let root = crate::root();
    let path = root.join("target/debug/redline");
    let models = model::all(root)?;
    let tiers = tiers(&path, &root.join("target/fuzz"))?;
    let first = wanted.seed.unwrap_or_else(seed_of_now);
    eprintln!("fuzz: seeds from {first} on, for {} s; tiers {}", wanted.seconds, tiers.join(", "));
    let (start, mut least, mut counts) = (Instant::now(), Least::new(), Map::new());
    let mut cases = 0;
    while cases < wanted.cases && start.elapsed() < Duration::from_secs(wanted.seconds) {
        let seed = first.wrapping_add(cases);
        let binary = Binary { path: path.clone(), folder: root.join(format!("target/fuzz/{seed}")) };
        fs::create_dir_all(&binary.folder)?;
        let case = Case::draw(seed, &models, &tiers);
        case.run(&binary, &mut least, &mut counts).with_context(|| {
            format!("case {seed} failed after {cases} good ones\n\nhint: repeat with\n  cargo xtask fuzz --seed {seed} --cases 1\n")
        })?;
        fs::remove_dir_all(&binary.folder)?;
        cases += 1;
    }
    eprintln!(
        "fuzz: {cases} cases in {:.0} s: {}",
        start.elapsed().as_secs_f64(),
        serde_json::Value::from(counts)
    );
    Ok(())
}

/// A seed that no earlier run used.
fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() * 100_000)
}

/// The tiers of this machine, spelled as for `--isa`.
fn tiers(path: &Path, folder: &Path) -> Result<Vec<&'static str>> {
    let binary = Binary { path: path.to_owned(), folder: PathBuf::from(folder) };
    fs::create_dir_all(folder)?;
    let mut tiers = Vec::new();
    for tier in ["scalar", "avx2", "avx512", "amx"] {
        let finished = binary.run(&["score", "--isa", tier].map(str::to_owned), 60)?;
        // On an available tier, the error is the missing model instead.
        if finished.err.contains("no model given") {
            tiers.push(tier);
        }
    }
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_in_pairs() {
        let parse =
            |line: &str| Wanted::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let Ok(wanted) = parse("--seed 7 --cases 1") else { panic!("refused") };
        assert_eq!(wanted, Wanted { seconds: SECONDS, seed: Some(7), cases: 1 });
        for bad in ["--seed", "--seed x", "--speed 3", "7"] {
            assert!(
                matches!(parse(bad), Err(Failure::Usage(message)) if message.contains("--seconds N")),
                "{bad}"
            );
        }
    }
}
