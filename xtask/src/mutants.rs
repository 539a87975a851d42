//! `cargo xtask mutants`: makes small changes to the code, each of which some test should detect.
//!
//! Trying all mutants takes weeks on a small machine, so each night tries a part chosen by the date. Surviving mutants
//! must be listed in `docs/mutants.md`, with the reason why no test can or need detect them. `.cargo/mutants.toml`
//! lists the exclusions.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::Failure;
use crate::tools::Tool;

const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// The crates that are mutated.
const PACKAGES: &[&str] = &["redline-engine", "redline-system", "redline-kernels", "redline-lab"];

/// Mutants per night, and the time after which the remaining ones are postponed.
const OF_A_NIGHT: usize = 60;
const LONGEST: Duration = Duration::from_mins(110);

/// The document that explains survivors.
const EXPLAINED: &str = "docs/mutants.md";

/// `cargo xtask mutants`: tries the part of the day, or the mutants chosen by arguments of cargo-mutants, such as
/// `--file PATH`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    if arguments.is_empty() {
        of_the_day()?;
    } else {
        run(arguments)?;
    }
    Ok(())
}

fn of_the_day() -> Result<()> {
    let mut chosen: Vec<String> = PACKAGES.iter().map(|package| format!("--package={package}")).collect();
    let mut list = MUTANTS.command()?;
    list.args(["mutants", "--list"]).args(&chosen);
    let listed = list.stderr(Stdio::inherit()).output().context("cargo-mutants does not start")?;
    let count = String::from_utf8_lossy(&listed.stdout).lines().count();
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (shard, shards) = shard_of(days, count);
    eprintln!("mutants: part {shard} of {shards}, {count} in all");
    chosen.push(format!("--shard={shard}/{shards}"));
    run(&chosen)
}

/// The part for a day, and the number of parts.
fn shard_of(day: u64, mutants: usize) -> (u64, u64) {
    let shards = mutants.div_ceil(OF_A_NIGHT).max(1) as u64;
    (day % shards, shards)
}

/// Tries mutants until all are done or the time is up. An unexplained survivor is an error.
fn run(arguments: &[String]) -> Result<()> {
    let out = crate::root().join("target/mutants");
    fs::create_dir_all(&out)?;
    let mut command = MUTANTS.command()?;
    command.args(["mutants", "--jobs=1", "--no-shuffle", "--output"]).arg(&out).args(arguments);
    let mut child = command.spawn().context("cargo-mutants does not start")?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            // Exit code 2: some were missed; 3: some timed out.
            ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants: {status}");
            break;
        }
        if start.elapsed() > LONGEST {
            eprintln!("mutants: stopped after {} s", LONGEST.as_secs());
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let read = |name: &str| fs::read_to_string(out.join("mutants.out").join(name)).unwrap_or_default();
    let explained =
        fs::read_to_string(crate::root().join(EXPLAINED)).with_context(|| format!("no {EXPLAINED}"))?;
    let alive = unexplained(&read("missed.txt"), &explained);
    eprintln!(
        "mutants: {} caught, {} alive",
        read("caught.txt").lines().count(),
        read("missed.txt").lines().count()
    );
    if alive.is_empty() {
        return Ok(());
    }
    bail!("survivors without a test or a reason in {EXPLAINED}:\n  {}", alive.join("\n  "))
}

/// The survivors that the document does not list. Line and column numbers are ignored, because they change with every
/// edit.
fn unexplained(missed: &str, explained: &str) -> Vec<String> {
    let named: Vec<&str> =
        explained.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect();
    missed.lines().map(without_place).filter(|mutant| !named.contains(&mutant.as_str())).collect()
}

/// `a/b.rs:12:7: replace x with y` without the numbers.
fn without_place(mutant: &str) -> String {
    let Some((place, what)) = mutant.split_once(": ") else { return mutant.to_owned() };
    format!("{}: {what}", place.split(':').next().unwrap_or(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_day() {
        assert_eq!(shard_of(0, 0), (0, 1));
        let days: Vec<u64> = (100..104).map(|day| shard_of(day, 4 * OF_A_NIGHT - 1).0).collect();
        assert_eq!(days, [0, 1, 2, 3]);
    }

    #[test]
    fn a_survivor_is_explained_wherever_it_stands() {
        let document = "text\n- `a/b.rs: replace x -> u8 with 0`: no caller\n";
        let missed = "a/b.rs:3:9: replace x -> u8 with 0\na/b.rs:30:1: replace x -> u8 with 1\n";
        assert_eq!(unexplained(missed, document), ["a/b.rs: replace x -> u8 with 1"]);
    }
}
