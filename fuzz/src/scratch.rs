//! A folder for the files that a target reads, beside its binary.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder of this binary.
pub fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::current_exe().expect("the path of this binary").with_extension("files");
        std::fs::create_dir_all(&folder).expect("a folder for files");
        folder
    })
}

/// Writes a file of the folder.
pub fn write(name: &str, bytes: &[u8]) {
    std::fs::write(folder().join(name), bytes).expect("a file in the folder");
}
