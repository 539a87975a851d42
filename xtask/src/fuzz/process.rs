//! Runs the binary as a child process with an empty environment, output to files, and a timeout.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The result of a run.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// The binary, and a folder for its files.
pub(super) struct Binary {
    pub(super) path: PathBuf,
    /// The folder of inputs and outputs.
    pub(super) folder: PathBuf,
}

/// A command line of the binary.
pub(super) struct CommandLine<'a>(pub(super) &'a Binary, pub(super) &'a [String]);

impl fmt::Display for CommandLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.path.display(), self.1.join(" "))
    }
}

impl Binary {
    /// Runs with these arguments; exceeding `seconds` is an error.
    pub(super) fn run(&self, arguments: &[String], seconds: u64) -> Result<Finished> {
        let (out, err) = (self.folder.join("out"), self.folder.join("err"));
        let create =
            |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let mut child = Command::new(&self.path)
            .args(arguments)
            .current_dir(crate::root())
            .env_clear()
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > Duration::from_secs(seconds) {
                child.kill()?;
                child.wait()?;
                bail!("no end within {seconds} s\n  {}", CommandLine(self, arguments));
            }
            sleep(Duration::from_millis(1));
        };
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Finished { code: status.code(), out: read(&out)?, err: read(&err)? })
    }

    /// Writes a file of requests and returns its path.
    pub(super) fn requests(&self, name: &str, lines: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }
}
