//! `cargo xtask audit`: licences, sources and duplicates of all packages, and known vulnerabilities if the database can be
//! fetched. Checks that need no tool are the tests below, and run in every `cargo xtask ci`.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::Failure;
use crate::tools::Tool;

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
const AUDIT: Tool = Tool { name: "cargo-audit", version: "0.22.2" };

/// The workspace, and the programs beside it that have lock files of their own.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "fuzz/Cargo.toml", "xtask/clients/async-openai/Cargo.toml"];

/// The vulnerability database that both tools use.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// `paste` is archived; `deny.toml` states why it is used nevertheless.
const IGNORED: &str = "RUSTSEC-2024-0436";

/// Runs every check that is possible on this machine, and reports skipped ones.
pub(crate) fn command(_: &[String]) -> Result<(), Failure> {
    for manifest in MANIFESTS {
        let deny = DENY.call()?.args(["--manifest-path", manifest, "--locked", "--all-features", "check"]);
        deny.args(["--config", "deny.toml", "licenses", "bans", "sources"]).run()?;
    }
    if let Err(reason) = database() {
        eprintln!("audit: advisories skipped: {DATABASE} cannot be reached: {reason}");
        return Ok(());
    }
    DENY.call()?
        .args(["--locked", "--all-features", "check", "--config", "deny.toml", "advisories"])
        .run()?;
    for lock in locks() {
        AUDIT
            .call()?
            .args([
                "audit",
                "--deny",
                "warnings",
                "--file",
                &lock,
                "--ignore",
                IGNORED,
                "--db",
                "target/tools/advisory-db",
            ])
            .run()?;
    }
    Ok(())
}

/// The lock files beside the manifests.
fn locks() -> [String; MANIFESTS.len()] {
    MANIFESTS.map(|manifest| manifest.replace(".toml", ".lock"))
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
    use serde_json::Value;

    use super::*;

    /// Allowed licences. An expression must have an allowed licence in every `AND` part.
    const LICENCES: &[&str] = &[
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CDLA-Permissive-2.0",
        "ISC",
        "MIT",
        "MIT-0",
        "NCSA",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    ];

    /// Packages that their authors no longer maintain, with replacements.
    const UNMAINTAINED: &[(&str, &str)] = &[
        ("atty", "std::io::IsTerminal"),
        ("serde_yaml", "another format"),
        ("lazy_static", "std::sync::LazyLock"),
        ("ansi_term", "anstyle"),
        ("failure", "thiserror"),
        ("term", "anstyle"),
        ("instant", "std::time"),
        ("proc-macro-error", "proc-macro-error2"),
        ("derivative", "written-out implementations"),
        ("bincode", "another format"),
    ];

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
        let [workspace, beside @ ..] = locks();
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

    /// All packages in the lock files, for every platform, from cargo without network access.
    fn packages() -> Vec<Value> {
        let mut all = Vec::new();
        for manifest in MANIFESTS {
            let mut cargo = Command::new("cargo");
            cargo.args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--offline",
                "--manifest-path",
                manifest,
            ]);
            // Packages of other platforms may not be downloaded.
            cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
            let run = cargo.current_dir(crate::root()).output().expect("cargo starts");
            if manifest != "Cargo.toml" && !run.status.success() {
                // The packages of the others may not be downloaded, because few machines build them.
                continue;
            }
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            let metadata: Value = serde_json::from_slice(&run.stdout).expect("JSON");
            all.extend(metadata["packages"].as_array().expect("packages").iter().cloned());
        }
        all
    }

    /// Whether a licence expression can be satisfied with the list.
    fn is_allowed(expression: &str) -> bool {
        let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
        plain.split(" AND ").all(|term| term.split(" OR ").any(|licence| LICENCES.contains(&licence.trim())))
    }

    #[test]
    fn every_package_has_a_licence_of_the_list_and_comes_from_the_registry() {
        let packages = packages();
        assert!(packages.len() > 50);
        for package in &packages {
            let name = format!("{} {}", package["name"], package["version"]);
            let licence = package["license"].as_str();
            assert!(licence.is_some_and(is_allowed), "{name}: licence {licence:?}");
            // A package without a source is part of this repository.
            if let Some(source) = package["source"].as_str() {
                assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{name}");
            } else {
                let path = package["manifest_path"].as_str().unwrap_or("");
                assert!(path.starts_with(&crate::root().display().to_string()), "{name}: {path}");
            }
        }
    }

    #[test]
    fn no_package_is_unmaintained() {
        for package in packages() {
            let name = package["name"].as_str().unwrap_or("");
            let found = UNMAINTAINED.iter().find(|(given_up, _)| *given_up == name);
            assert!(found.is_none(), "{name} is not maintained; take {}", found.map_or("", |f| f.1));
        }
    }

    #[test]
    fn the_lock_files_name_no_other_source() {
        for lock in locks() {
            let text = std::fs::read_to_string(crate::root().join(&lock)).unwrap();
            let sources = text.lines().filter_map(|line| line.strip_prefix("source = "));
            for source in sources {
                assert_eq!(source, "\"registry+https://github.com/rust-lang/crates.io-index\"", "{lock}");
            }
        }
    }

    #[test]
    fn the_tool_has_the_same_list() {
        let file = std::fs::read_to_string(crate::root().join("deny.toml")).unwrap();
        let (_, list) = file.split_once("allow = [").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(listed, LICENCES);
    }

    #[test]
    fn licence_expressions_are_read() {
        for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "AGPL-3.0-only OR SSPL-1.0"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
