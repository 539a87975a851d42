//! The files that are read.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use redline_engine::Cancel;
use redline_weights::{FilesState, Sha256Digest, Sha256Hasher};

use crate::error::BatchError;
use crate::table::{OpenTable, format_of, formats, guarded};

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
    cancel: &Cancel,
    read_bytes: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Input>, BatchError> {
    let mut files = Vec::new();
    for path in named {
        let about = fs::metadata(path).map_err(BatchError::file("look at the input", path))?;
        if about.is_dir() {
            if is_same(path, output) {
                return Err(into_itself(path));
            }
            let found = tables_in(path, output)?;
            if found.is_empty() {
                return Err(no_table("no table is there", path));
            }
            files.extend(found);
        } else {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if is_same(folder.unwrap_or(Path::new(".")), output) {
                return Err(into_itself(path));
            }
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
        let digest = digest(&path, cancel, |bytes| {
            read += bytes;
            read_bytes(read, all);
        })?;
        let open = OpenTable { table: guarded(&path, || format.open(&path))?, format, path };
        let input = Input { open, name, digest, state };
        input.check_unchanged()?;
        inputs.push(input);
    }
    if inputs.iter().all(|input| input.open.table.groups().iter().all(|rows| *rows == 0)) {
        return Err(BatchError::Empty { files: inputs.len() });
    }
    Ok(inputs)
}

/// The digest of a file; `read` gets the length of each block.
fn digest(path: &Path, cancel: &Cancel, mut read: impl FnMut(u64)) -> Result<Sha256Digest, BatchError> {
    let failed = || BatchError::file("read the table", path);
    let mut file = File::open(path).map_err(failed())?;
    let (mut hash, mut block) = (Sha256Hasher::default(), vec![0; 1 << 20]);
    loop {
        if cancel.is_cancelled() {
            return Err(BatchError::Cancelled);
        }
        match file.read(&mut block) {
            Ok(0) => return Ok(hash.finish()),
            Ok(length) => {
                hash.add(&block[..length]);
                read(length as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed()(error)),
        }
    }
}

/// The tables in a directory and below, in the order of their names, without results and hidden files.
fn tables_in(dir: &Path, output: &Path) -> Result<Vec<(PathBuf, String)>, BatchError> {
    let (mut folders, mut found, mut visited) = (vec![dir.to_owned()], Vec::new(), HashSet::new());
    while let Some(folder) = folders.pop() {
        // A link may lead to a folder that was here before.
        if !visited.insert(folder.canonicalize().map_err(BatchError::file("list the directory", &folder))?) {
            continue;
        }
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

fn into_itself(path: &Path) -> BatchError {
    BatchError::Inputs {
        fact: "the results would be among the inputs".to_owned(),
        hint: "write them to a directory of their own".to_owned(),
        path: path.to_owned(),
    }
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
