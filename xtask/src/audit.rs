//! `cargo xtask licences` and `cargo xtask audit`: what `cargo deny` says about the packages of every lock file.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::Failure;
use crate::tools::Tool;

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// The workspace, and the programs beside it that have lock files of their own.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "fuzz/Cargo.toml", "xtask/clients/async-openai/Cargo.toml"];

/// The vulnerability database.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// `cargo xtask licences`: licences, sources and duplicates.
pub(crate) fn licences(_: &[String]) -> Result<(), Failure> {
    Ok(check(&["licenses", "bans", "sources"])?)
}

/// `cargo xtask audit`: the same, and known vulnerabilities if the database can be fetched.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    licences(arguments)?;
    if let Err(reason) = database() {
        eprintln!("audit: advisories skipped: {DATABASE} cannot be reached: {reason}");
        return Ok(());
    }
    Ok(check(&["advisories"])?)
}

fn check(what: &[&str]) -> Result<()> {
    for manifest in MANIFESTS {
        let deny = DENY.call()?.args(["--manifest-path", manifest, "--config", "deny.toml", "--locked"]);
        deny.args(["--all-features", "check", "--hide-inclusion-graph"]).args(what.iter().copied()).run()?;
    }
    Ok(())
}

/// Checks whether the database can be fetched; the error is git's message.
fn database() -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-remote", "--exit-code", DATABASE, "HEAD"]).env("GIT_TERMINAL_PROMPT", "0");
    let found = git.stdin(Stdio::null()).output()?;
    if found.status.success() {
        return Ok(());
    }
    bail!("{}", String::from_utf8_lossy(&found.stderr).trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packages of this project in a lock file, each with what it depends on.
    fn own_packages(lock: &str) -> Vec<(String, Vec<String>)> {
        let text = std::fs::read_to_string(crate::root().join(lock)).expect("a lock file");
        let name =
            |line: &str| line.trim().trim_matches([',', '"']).split(' ').next().unwrap_or("").to_owned();
        let of = |package: &str| {
            let package_name = package.lines().find_map(|line| line.strip_prefix("name = ")).map(name)?;
            let dependencies = package.split_once("dependencies = [").map_or("", |(_, after)| after);
            let dependencies = dependencies.lines().filter(|line| line.starts_with(' ')).map(name);
            Some((package_name, dependencies.collect())).filter(|(name, _)| name.starts_with("redline-"))
        };
        text.split("[[package]]").filter_map(of).collect()
    }

    /// What cannot be built with `--locked` is noticed here, not in the night.
    #[test]
    fn lock_files_beside_the_workspace_know_its_packages() {
        let [workspace, beside @ ..] = MANIFESTS.map(|manifest| manifest.replace(".toml", ".lock"));
        let known = own_packages(&workspace);
        assert!(known.iter().any(|(name, all)| name == "redline-models" && all.len() > 3), "{known:?}");
        for lock in beside {
            for (name, dependencies) in own_packages(&lock) {
                let Some((_, here)) = known.iter().find(|(known, _)| *known == name) else { continue };
                // The lock file of the workspace lists what tests need, too.
                let unknown: Vec<_> = dependencies.iter().filter(|one| !here.contains(one)).collect();
                assert!(unknown.is_empty(), "{lock}: `{name}` no longer depends on {unknown:?}");
                let only_tests = ["redline-testing", "redline-reference", "redline-interpreter"];
                let own = here.iter().filter(|one| one.starts_with("redline-"));
                let own = own.filter(|one| !only_tests.contains(&one.as_str()));
                let missing: Vec<_> = own.filter(|one| !dependencies.contains(one)).collect();
                assert!(missing.is_empty(), "{lock}: `{name}` lacks {missing:?}");
            }
        }
    }
}
