//! Child processes that can be repeated by hand: the printed command is the one that is run.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program, its arguments and the environment variables set for it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Call {
    /// A call of `program` without arguments.
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a path as an argument.
    pub(crate) fn path(self, path: &Path) -> Self {
        self.arg(path.display().to_string())
    }

    /// Adds arguments.
    pub(crate) fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs the call in the root of the repository and waits. A status other than 0 is an error that shows the call.
    pub(crate) fn run(&self) -> Result<()> {
        let status = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(crate::root())
            .status()
            .with_context(|| format!("cannot start `{}`", self.program))?;
        if !status.success() {
            bail!("{status}\n\nhint: repeat with\n  {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// Quotes `word` for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_as_a_shell_line() {
        let call = Call::new("cargo").env("RUSTDOCFLAGS", "-D warnings").args(["doc", "it's", ""]);
        assert_eq!(call.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc 'it'\''s' ''");
    }

    #[test]
    fn a_failed_call_shows_how_to_repeat_it() {
        let error = Call::new("false").arg("why").run().unwrap_err().to_string();
        assert!(error.contains("repeat with\n  false why"), "{error}");
    }
}
