//! The files that are read.

use std::fs;
use std::path::{Path, PathBuf};

use redline_weights::{FilesState, Sha256Digest};

use crate::error::BatchError;
use crate::table::{OpenTable, format_of, formats};

/// A file, opened and read once for its digest.
pub(crate) struct Input {
    pub(crate) open: OpenTable,
    /// Its name below what the caller named.
    pub(super) name: String,
    pub(super) digest: Sha256Digest,
    /// The file as it was when its digest was computed.
    pub(super) state: FilesState,
}

impl Input {
    /// Fails if the file is not as it was when its digest was computed.
    pub(super) fn check_unchanged(&self) -> Result<(), BatchError> {
        let path = &self.open.path;
        if FilesState::of(path).map_err(|error| BatchError::table(path, &error))? == self.state {
            return Ok(());
        }
        Err(BatchError::Changed { path: path.clone() })
    }
}

/// Opens files, and the tables in directories. All must have one format, and there must be some row. `read_bytes` gets the number of
/// bytes that have been read, and that of all.
pub(crate) fn read_inputs(
    named: &[PathBuf],
    output: &Path,
    read_bytes: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Input>, BatchError> {
    let mut files = Vec::new();
    for path in named {
        let about = fs::metadata(path).map_err(BatchError::file("look at the input", path))?;
        if about.is_dir() {
            let found = tables_in(path, output)?;
            if found.is_empty() {
                return Err(no_table("no table is there", path));
            }
            files.extend(found);
        } else {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            files.push((path.clone(), name));
        }
    }
    let Some((first, _)) = files.first() else {
        return Err(no_table("no input is given", Path::new(".")));
    };
    let format = format_of(first).ok_or_else(|| no_table("the ending of its name is of no format", first))?;
    let mut all = 0;
    for (path, _) in &files {
        if format_of(path).is_none_or(|other| other.name() != format.name()) {
            let fact = format!("`{}` is {}, and this is not", first.display(), format.name());
            return Err(BatchError::Inputs {
                fact,
                hint: "give files of one format at a time".to_owned(),
                path: path.clone(),
            });
        }
        all += fs::metadata(path).map_err(BatchError::file("look at the input", path))?.len();
    }
    let (mut inputs, mut read) = (Vec::new(), 0);
    for (path, name) in files {
        let state = FilesState::of(&path).map_err(|error| BatchError::table(&path, &error))?;
        let digest = Sha256Digest::of_file(&path, |bytes| {
            read += bytes as u64;
            read_bytes(read, all);
        })
        .map_err(|error| BatchError::table(&path, &error))?;
        let open = OpenTable { table: format.open(&path)?, format, path };
        let input = Input { open, name, digest, state };
        input.check_unchanged()?;
        inputs.push(input);
    }
    if inputs.iter().all(|input| input.open.table.groups().iter().sum::<u64>() == 0) {
        return Err(BatchError::Empty { files: inputs.len() });
    }
    Ok(inputs)
}

/// The tables in a directory and below, in the order of their names, without results and hidden files.
fn tables_in(dir: &Path, output: &Path) -> Result<Vec<(PathBuf, String)>, BatchError> {
    let (mut folders, mut found) = (vec![dir.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let failed = || BatchError::file("list the directory", &folder);
        for entry in fs::read_dir(&folder).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            if name.starts_with(['.', '_']) || is_same(&path, output) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if format_of(&path).is_some() {
                let below = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
                found.push((path, below));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn no_table(fact: &str, path: &Path) -> BatchError {
    let known = formats().map(|(name, endings)| {
        let endings = endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(", ");
        format!("{name} ({endings})")
    });
    BatchError::Inputs {
        fact: fact.to_owned(),
        hint: format!("tables are files of {}", known.collect::<Vec<_>>().join(", ")),
        path: path.to_owned(),
    }
}
