//! The tests that were skipped, which the test harness counts as passed. They leave a file each (`redline_testing::skip`).

use std::fs;
use std::path::PathBuf;

/// The folder of these files, beside this program, which cargo builds in the folder of its profile.
fn folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join("skipped"))
}

/// Removes the files of earlier runs.
pub(crate) fn forget() {
    if let Some(folder) = folder() {
        // There is none before the first skipped test.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Prints the name of each skipped test with its reason.
pub(crate) fn list() {
    let Some(files) = folder().and_then(|folder| fs::read_dir(folder).ok()) else { return };
    let mut lines: Vec<String> = files
        .flatten()
        .filter_map(|file| {
            let reason = fs::read_to_string(file.path()).ok()?;
            Some(format!("  {}: {}", file.file_name().to_string_lossy().replace('.', "::"), reason.trim()))
        })
        .collect();
    lines.sort();
    if !lines.is_empty() {
        eprintln!("==> {} tests skipped:\n{}", lines.len(), lines.join("\n"));
    }
}
