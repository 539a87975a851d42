//! `--help` and `--version`.

use crate::harness::{commands, redline};

#[test]
fn every_command_describes_itself() {
    for name in commands() {
        let run = redline(&[&name, "--help"]).ok();
        assert!(run.out.contains("Usage: redline") && run.out.contains(&name), "{}", run.out);
        assert_eq!(run.err, "");
    }
}

#[test]
fn the_main_help_lists_the_variables() {
    let help = redline(&["--help"]).ok().out;
    for name in
        ["REDLINE_MODEL", "REDLINE_THREADS", "REDLINE_ISA", "REDLINE_FORMAT", "HF_HUB_CACHE", "HF_HOME"]
    {
        assert!(help.contains(name), "{name}");
    }
}

#[test]
fn the_version_is_printed() {
    assert!(redline(&["--version"]).ok().out.starts_with("redline "));
}

#[test]
fn every_flag_named_in_a_variable_exists() {
    let help = redline(&["--help"]).ok().out;
    let score = redline(&["score", "--help"]).ok().out;
    let variables = help.lines().filter(|line| line.trim_start().starts_with("REDLINE_"));
    for line in variables {
        // A lane's flag is documented with its lane.
        let lane = line.split_once("(bench ").map(|(_, lane)| lane.trim_end_matches(')'));
        let help = lane.map_or_else(|| score.clone(), |lane| redline(&["bench", lane, "--help"]).ok().out);
        let flag = line.split_whitespace().nth(1).expect("a flag");
        let there = [' ', '['].iter().any(|end| help.contains(&format!("{flag}{end}")));
        assert!(there, "{line} names no flag");
    }
}
