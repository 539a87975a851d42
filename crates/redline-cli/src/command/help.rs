//! `redline help`: the help of a command.

use std::ffi::OsString;

use clap::Args;

use crate::help::Listed;

/// Arguments of `help`.
#[derive(Debug, Args)]
pub(super) struct HelpArgs {
    /// List the flags for machine, memory and plans too
    #[arg(long)]
    all: bool,
    /// The command, such as `score`, or `bench generate`; default: `redline` itself
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl HelpArgs {
    /// The arguments of a process that print this help.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let listed = if self.all { Listed::All } else { Listed::Own };
        let words = [&["redline".into()], self.command.as_slice(), &[listed.flag().into()]];
        words.concat()
    }
}
