//! The directory that adapters may be loaded from.

use std::fs;
use std::path::{Path, PathBuf};

use super::fault::AdapterFault;
use crate::error::{Result, WeightsError};

/// The real path of `path`, which must lie in the directory `root` after all links are followed. A relative path begins at
/// `root`.
///
/// # Errors
/// [`AdapterFault::Outside`], or [`WeightsError::Io`] if one of them does not exist.
pub fn path_in_root(root: &Path, path: &Path) -> Result<PathBuf> {
    let real = |path: &Path| fs::canonicalize(path).map_err(WeightsError::io("find the real path", path));
    let root = real(root)?;
    let found = real(&root.join(path))?;
    if found.starts_with(&root) {
        return Ok(found);
    }
    let fault = AdapterFault::Outside { path: found, root };
    Err(WeightsError::Adapter { place: path.to_owned(), fault })
}
