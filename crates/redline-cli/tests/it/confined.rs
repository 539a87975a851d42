//! Commands that only answer need no writable directory and no privileges: an unprivileged user whose home, cache and
//! working directory are read-only gets the same answers.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use crate::harness::{Run, bits, command, finish, limited, score};

/// A user and a group without rights; `nobody` on most systems.
const NOBODY: u32 = 65534;

const SCORE: &[&str] =
    &["--query", "I pledge allegiance", "--item", " to", "--item", " of", "--label", " the"];

/// Runs as user `nobody` if this process may switch users, else as the current user. Not even root can write below
/// `/proc`.
fn confined(arguments: &[&str], home: &str) -> Run {
    let ready = || {
        let mut command = command(arguments);
        command.env("HOME", home).env("XDG_CACHE_HOME", home).env("TMPDIR", home).current_dir("/proc");
        command.stdin(Stdio::null());
        command
    };
    match ready().uid(NOBODY).gid(NOBODY).output() {
        // Not root, or a checkout that only its owner may enter.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => finish(ready().output().unwrap()),
        other => finish(other.unwrap()),
    }
}

#[test]
fn the_main_commands_need_no_place_to_write() {
    for home in ["/proc", "/dev/null/home"] {
        let demo = confined(&["demo"], home).ok();
        assert!(demo.out.contains("questions right") && demo.err.is_empty(), "{home}: {}", demo.err);
        let asked = [&["score", "--model", "demo", "--json"], SCORE].concat();
        let plain = confined(&asked, home).ok();
        assert_eq!((bits(&plain.scoring()), &*plain.err), (bits(&score(SCORE)), ""), "{home}");
        confined(&["generate", "--model", "demo", "--prompt", "In", "--max-new-tokens", "3"], home).ok();
        confined(&["doctor"], home).ok();
    }
}

#[test]
fn a_plan_cache_that_cannot_be_written_is_a_warning() {
    for home in ["/proc", "/dev/null/home"] {
        let asked = [&["score", "--model", "demo", "--json", "--plan-policy", "tune"], SCORE].concat();
        let tuned = confined(&asked, home).ok();
        assert_eq!(bits(&tuned.scoring()), bits(&score(SCORE)), "{home}");
        assert!(tuned.err.contains("warning: a plan is not stored"), "{home}: {}", tuned.err);
        assert!(!tuned.err.contains("error: "), "{home}: {}", tuned.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_small_stack_is_enough() {
    for arguments in
        [&["--help"][..], &["generate", "--model", "demo", "--prompt", "In", "--max-new-tokens", "3"]]
    {
        finish(limited("ulimit -s 64;", arguments)).ok();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_the_system_refuses_ends_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines.txt");
    std::fs::write(&lines, "a\n".repeat(20 << 20)).unwrap();
    let classify = ["classify", "--model", "demo", "--class", "a", "--class", "b", "--file"];
    let run = finish(limited("ulimit -v 600000;", &[&classify[..], &[lines.to_str().unwrap()]].concat()));
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(
        run.err.starts_with("error: the system refused ") && run.err.contains("\n\nhint: "),
        "{}",
        run.err
    );
    assert_eq!(run.err.lines().count(), 3, "{}", run.err);
}
