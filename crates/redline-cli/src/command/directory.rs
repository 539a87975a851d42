//! The directory that a command writes: an argument, or `--output`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::message::Failure;

/// Where a command writes a model.
#[derive(Debug, Args)]
pub(super) struct DirectoryArgs {
    /// The directory to write; if it exists, it must be empty
    #[arg(value_name = "DIR", conflicts_with = "output")]
    directory: Option<PathBuf>,
    /// The directory, as a flag
    #[arg(short, long, alias = "out", value_name = "DIR")]
    output: Option<PathBuf>,
}

impl DirectoryArgs {
    /// The directory that was given.
    pub(super) fn path(&self) -> Result<&Path, Failure> {
        let given = self.directory.as_deref().or(self.output.as_deref());
        given.ok_or_else(|| Failure::usage("no directory given", "name it last, or with `--output DIR`"))
    }
}
