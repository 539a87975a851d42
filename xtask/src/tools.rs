//! Programs installed with cargo: pinned versions, below `target/`, so that the machine stays unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::ci::cargo;
use crate::process::Call;

/// A program from crates.io.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Its installation folder, which contains the version in its name.
    fn folder(&self) -> PathBuf {
        crate::root().join("target/tools").join(format!("{}-{}", self.name, self.version))
    }

    fn binary(&self) -> PathBuf {
        self.folder().join("bin").join(self.name)
    }

    /// Whether it is already installed.
    pub(crate) fn is_installed(&self) -> bool {
        self.binary().is_file()
    }

    /// A command that runs it in the root of the repository.
    pub(crate) fn command(&self) -> Result<Command> {
        self.install()?;
        let mut command = Command::new(self.binary());
        command.current_dir(crate::root());
        Ok(command)
    }

    /// A call of the program.
    pub(crate) fn call(&self) -> Result<Call> {
        self.install()?;
        Ok(Call::new(self.binary().display().to_string()))
    }

    /// Installs the program unless it is installed already. Unoptimised, it is compiled in half of the time.
    fn install(&self) -> Result<()> {
        if !self.is_installed() {
            let folder = self.folder();
            cargo()
                .args(["install", "--locked", "--debug", "--config", "profile.dev.debug=false"])
                .args(["--version", self.version, "--root"])
                .path(&folder)
                .args(["--target-dir"])
                .path(Path::new("target/tools/build"))
                .arg(self.name)
                .run()
                .with_context(|| format!("`{}` {} cannot be installed", self.name, self.version))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_a_folder_of_its_own() {
        let tool = Tool { name: "cargo-x", version: "1.2.3" };
        assert!(tool.binary().ends_with("target/tools/cargo-x-1.2.3/bin/cargo-x"));
        assert!(!tool.is_installed());
    }
}
