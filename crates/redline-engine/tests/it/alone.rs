//! Tests that run in a separate process, because they count the allocations of the whole process.

use std::process::Command;

/// Returns `true` in a process that runs only the test of this name. Otherwise starts such a process and expects it to succeed.
pub(crate) fn in_own_process(test: &str) -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "--exact") && arguments.iter().any(|a| a == test) {
        return true;
    }
    let binary = std::env::current_exe().unwrap();
    let run = Command::new(binary).args([test, "--exact", "--nocapture"]).output().unwrap();
    let shown =
        || format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && shown().contains("1 passed"), "{}", shown());
    false
}
