//! Tests of `deploy/install.sh` with a small release: what is installed is what SHA256SUMS says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{architecture, host};

/// A release whose program prints its name, in a folder that is removed.
struct Release(PathBuf);

impl Release {
    fn new(name: &str) -> Self {
        let release = Self(std::env::temp_dir().join(format!("redline-{name}-{}", std::process::id())));
        let folder = format!("redline-1.2.3-{}-unknown-linux-musl", architecture(&host().unwrap()));
        fs::create_dir_all(release.0.join(&folder)).unwrap();
        fs::write(release.0.join(&folder).join("redline"), "#!/bin/sh\necho the program\n").unwrap();
        release.sh(&format!("tar -czf {folder}.tar.gz {folder} && sha256sum *.tar.gz > SHA256SUMS"));
        release
    }

    /// Runs a line of shell in the folder.
    fn sh(&self, line: &str) {
        let run = Command::new("sh").args(["-ec", line]).current_dir(&self.0).status().unwrap();
        assert!(run.success(), "{line}");
    }

    fn install(&self, from: &str) -> Output {
        let script = crate::root().join("deploy/install.sh");
        let mut install = Command::new("sh");
        install.arg(script).args(["--from", from, "--to"]).arg(self.0.join("bin"));
        install.current_dir(&self.0).output().unwrap()
    }

    /// Expects an error with this text, and nothing installed.
    fn is_refused(&self, from: &str, expected: &str) {
        let run = self.install(from);
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && error.contains(expected), "{expected}: {run:?}");
        assert!(!Path::new(&self.0).join("bin").exists(), "{expected}");
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_release_is_installed_from_a_directory_and_from_an_address() {
    let release = Release::new("install");
    for from in [".".to_owned(), format!("file://{}/", release.0.display())] {
        if from.starts_with("file:") && Command::new("curl").arg("--version").output().is_err() {
            eprintln!("no curl here: the address was not tried");
            continue;
        }
        let run = release.install(&from);
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert!(said.starts_with("installed ") && said.contains("redline-1.2.3-"), "{said}");
        let program = Command::new(release.0.join("bin/redline")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&program.stdout), "the program\n");
        release.sh("rm -r bin");
    }
}

#[test]
fn an_archive_that_does_not_match_is_not_installed() {
    let release = Release::new("damage");
    release.sh("for file in *.tar.gz; do printf x >> \"$file\"; done");
    release.is_refused(".", "but SHA256SUMS says");
    release.sh("rm *.tar.gz");
    release.is_refused(".", "cannot get redline-1.2.3-");
    release.sh("echo > SHA256SUMS");
    release.is_refused(".", "names no archive for");
    release.sh("rm SHA256SUMS");
    release.is_refused(".", "cannot get SHA256SUMS");
}

#[test]
fn checksums_name_one_file_of_the_release() {
    let release = Release::new("names");
    release.sh("sed 's|redline-1|../redline-1|' SHA256SUMS > other && mv other SHA256SUMS");
    release.is_refused(".", "names no archive for");
    let release = Release::new("several");
    release.sh("sed 's/1.2.3/1.2.4/' SHA256SUMS > other && cat other >> SHA256SUMS");
    release.is_refused(".", "names several archives for");
}

#[test]
fn a_release_must_be_given_and_be_safe() {
    let release = Release::new("usage");
    release.is_refused("", "`--from` needs a value");
    release.is_refused("http://127.0.0.1", "is neither https:// nor file://");
    let script = crate::root().join("deploy/install.sh");
    let run = Command::new("sh").arg(script).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stderr).contains("no release given"));
}
