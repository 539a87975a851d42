//! `redline list`: the models that are found by name.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use redline_system::number;
use redline_weights::cached_models;

use super::Context;
use crate::message::Failure;
use crate::model::hub_roots;
use crate::{output, table};

/// Arguments of `list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Lists the embedded models, and those in the local cache of Hugging Face, which `redline pull` downloads."
)]
pub(super) struct ListArgs {}

/// Prints name, size and place of every model.
pub(super) fn run(_: &ListArgs, context: &Context) -> Result<ExitCode, Failure> {
    let row = |name: String, size: u64, place: String| vec![name, number::bytes(size), place];
    let mut rows = vec![["NAME", "SIZE", "PLACE"].map(str::to_owned).to_vec()];
    for model in redline_demo::EMBEDDED {
        rows.push(row(model.name.to_owned(), (model.weights)().len() as u64, "embedded".to_owned()));
    }
    for (id, dir) in cached_models(&hub_roots(context.environment)) {
        rows.push(row(id.to_string(), size(&dir), dir.display().to_string()));
    }
    output::piece(&table::align(&rows, 2))?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes of all files in a directory and those below it. Links to files count, as in the cache; links to directories do not.
fn size(dir: &Path) -> u64 {
    let of_entry = |entry: fs::DirEntry| {
        let Ok(kind) = entry.file_type() else { return 0 };
        if kind.is_dir() {
            return size(&entry.path());
        }
        fs::metadata(entry.path()).map_or(0, |of| if of.is_file() { of.len() } else { 0 })
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(of_entry).sum()
}
