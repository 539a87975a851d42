//! Which parts the work has, which are done, and who does them.

mod inputs;
mod manifest;
mod plan;
mod shard;

use std::path::{Path, PathBuf};
use std::{fs, io};

use redline_api::jsonl::model::ChatModel;
use redline_engine::Cancel;
use redline_weights::{Disk, write_file_on};

use self::plan::{Fixed, Plan};
use self::shard::Claim;
use crate::error::BatchError;
use crate::kind::Kind;
use crate::request::TableRequest;

pub(crate) use self::inputs::{Input, read_inputs};
pub(crate) use self::plan::Part;
pub use self::shard::{BadShard, Shard};

/// The directory, inside that of the results, with what workers tell each other. Readers of tables skip names with an underscore.
const OWN: &str = "_redline";
/// The file with the plan, in that directory.
const PLAN: &str = "plan.json";
/// The file that is written when all parts are done.
const MANIFEST: &str = "_manifest.json";

/// Where the work reads and writes.
#[derive(Clone, Debug)]
pub struct BatchPlaces {
    /// Files, and directories whose files are read in the order of their names.
    pub inputs: Vec<PathBuf>,
    /// The directory of the results, created if it does not exist.
    pub output: PathBuf,
    /// The part of the work to do.
    pub shard: Shard,
    /// How files are written.
    pub disk: Disk,
}

/// How far the work of all shards is.
pub(crate) struct Finish {
    /// Number of files of results that are there.
    pub(crate) done: usize,
    /// Number of files that there will be.
    pub(crate) files: usize,
    /// If all are: the manifest, and the number of all rows without an answer.
    pub(crate) manifest: Option<(PathBuf, u64)>,
}

/// The work, divided into parts. Nobody else works on its shard as long as this exists.
pub(crate) struct Work<'a> {
    inputs: &'a [Input],
    plan: Plan,
    output: PathBuf,
    shard: Shard,
    disk: Disk,
    _claim: Claim,
}

impl<'a> Work<'a> {
    /// Joins the work in the directory of the results, or begins it.
    pub(crate) fn join(
        places: &BatchPlaces,
        request: &TableRequest,
        kind: &dyn Kind,
        on: ChatModel<'_>,
        inputs: &'a [Input],
    ) -> Result<Self, BatchError> {
        let BatchPlaces { output, shard, disk, .. } = places;
        let own = output.join(OWN);
        disk.create_dir_all(&own).map_err(BatchError::file("create the directory", &own))?;
        let claim = Claim::take(disk, &own, *shard, output)?;
        let plan = Plan::new(Fixed::new(request, kind, on, inputs)?, inputs)?;
        plan.join(&own.join(PLAN), disk, output)?;
        let (output, shard, disk) = (output.clone(), *shard, disk.clone());
        Ok(Self { inputs, plan, output, shard, disk, _claim: claim })
    }

    /// The parts of the shard that are not done yet, and the number of rows of all of its parts.
    pub(crate) fn open_parts(&self) -> Result<(Vec<Part>, u64), BatchError> {
        let own = |(index, _): &(usize, &Part)| self.shard.has(*index);
        let parts: Vec<&Part> =
            self.plan.parts.iter().enumerate().filter(own).map(|(_, part)| part).collect();
        let rows = parts.iter().map(|part| part.rows()).sum();
        let mut open = Vec::new();
        for part in parts {
            if !self.is_done(part)? {
                open.push(part.clone());
            }
        }
        Ok((open, rows))
    }

    fn is_done(&self, part: &Part) -> Result<bool, BatchError> {
        let path = self.output.join(&part.file);
        path.try_exists().map_err(BatchError::file("look for the results", &path))
    }

    /// Writes the results of a part, unless an input has changed since it was read.
    pub(crate) fn write(&self, part: &Part, bytes: &[u8]) -> Result<(), BatchError> {
        self.inputs[part.input].check_unchanged()?;
        let path = self.output.join(&part.file);
        self.put(&path, bytes).map_err(BatchError::file("write the results", &path))
    }

    /// Writes a file that other workers may be writing too, with the same bytes.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match write_file_on(&self.disk, path, bytes) {
            // A worker that found all done removed what was under way here.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && fs::read(path).is_ok_and(|there| there == bytes) =>
            {
                Ok(())
            }
            written => written,
        }
    }

    /// The error about an input that has changed, if one has.
    pub(crate) fn changed(&self) -> Option<BatchError> {
        self.inputs.iter().find_map(|input| input.check_unchanged().err())
    }

    /// Writes the manifest if all parts of all shards are done.
    pub(crate) fn finish(&self, cancel: &Cancel) -> Result<Finish, BatchError> {
        let mut done = 0;
        for part in &self.plan.parts {
            done += usize::from(self.is_done(part)?);
        }
        let files = self.plan.parts.len();
        if done < files {
            return Ok(Finish { done, files, manifest: None });
        }
        let path = self.output.join(MANIFEST);
        let (manifest, failed) = manifest::of(&self.plan, &self.output, cancel)?;
        self.put(&path, &manifest).map_err(BatchError::file("write the manifest", &path))?;
        self.clean_up();
        Ok(Finish { done, files, manifest: Some((path, failed)) })
    }

    /// Removes what killed workers left behind.
    fn clean_up(&self) {
        let own = self.output.join(OWN);
        for dir in [&own, &self.output] {
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries.flatten().filter(|entry| is_partial(&entry.file_name().to_string_lossy())) {
                // Best effort: they are no harm.
                let _ = self.disk.remove_file(&entry.path());
            }
        }
    }
}

/// Whether this is the name of a file that was not written to its end.
fn is_partial(name: &str) -> bool {
    let ours =
        [".part-", &format!(".{PLAN}"), &format!(".{MANIFEST}")].iter().any(|begin| name.starts_with(begin));
    ours && name.ends_with(".partial")
}
