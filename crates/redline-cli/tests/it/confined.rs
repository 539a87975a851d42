//! Commands that only answer need no writable directory and no privileges: an unprivileged user whose home, cache and
//! working directory are read-only gets the same answers.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use crate::harness::{Run, bits, command, finish, score};

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
