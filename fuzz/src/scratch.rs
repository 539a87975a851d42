//! A folder for the files that a target reads, beside its binary. Each process has its own, because libFuzzer can run several jobs.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder of this process.
pub fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::current_exe()
            .expect("the path of this binary")
            .with_extension(format!("{}.files", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for files");
        folder
    })
}

/// Writes a file of the folder.
pub fn write(name: &str, bytes: &[u8]) {
    std::fs::write(folder().join(name), bytes).expect("a file in the folder");
}
