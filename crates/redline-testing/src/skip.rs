//! Records skipped tests: the standard test harness counts a test that returns early as passed.

use std::fs;

/// The folder, beside the folder of test binaries, with one file for each skipped test. `cargo xtask test` empties it, and prints the
/// files at its end.
const SKIPPED: &str = "skipped";

/// Records that the running test is skipped, and why. The caller returns afterwards.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    println!("skipped: {test}: {reason}");
    // Test binaries are in `target/PROFILE/deps`. A record that cannot be written is no reason to fail the test.
    if let Some(folder) = std::env::current_exe().ok().as_deref().and_then(|path| path.parent()?.parent()) {
        let folder = folder.join(SKIPPED);
        let _ = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(test.replace("::", ".")), reason));
    }
}
