//! Reads whole files, up to a limit.

use crate::TokenizerError;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Bytes of the longest file.
const LONGEST: u64 = 1 << 30;

/// The content of a file in a directory, or `None` if it does not exist. It must be a regular file: opening a pipe may block.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, TokenizerError> {
    match std::fs::metadata(path) {
        Ok(about) if about.is_file() => read_at_most(path).map(Some),
        Ok(_) => Err(unreadable(path, io::Error::other("it is not a regular file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// The content of a file that the user named, which may be a pipe; a device may have no end.
pub(crate) fn read_at_most(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)) {
        Ok(_) if bytes.len() as u64 > LONGEST => {
            Err(unreadable(path, io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20))))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &Path, source: io::Error) -> TokenizerError {
    TokenizerError::Read { path: path.to_owned(), source }
}
