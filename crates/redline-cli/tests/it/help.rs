//! `--help`, `--help-all`, `help`, `completions`, `man` and `--version`.

use std::fs;

use crate::harness::{commands, redline};

/// Flags that many commands share, one of each kind.
const SHARED: [&str; 3] = ["--isa", "--prefix-cache", "--plan-policy"];

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
    let score = redline(&["score", "--help-all"]).ok().out;
    let variables = help.lines().filter(|line| line.trim_start().starts_with("REDLINE_"));
    for line in variables {
        // A lane's flag is documented with its lane.
        let lane = line.split_once("(bench ").map(|(_, lane)| lane.trim_end_matches(')'));
        let help = match lane {
            Some(lane) => redline(&["bench", lane, "--help"]).ok().out,
            None if line.ends_with("(serve)") => redline(&["serve", "--help-all"]).ok().out,
            None => score.clone(),
        };
        let flag = line.split_whitespace().nth(1).expect("a flag");
        let there = [' ', '['].iter().any(|end| help.contains(&format!("{flag}{end}")));
        assert!(there, "{line} names no flag");
    }
}

#[test]
fn flags_that_commands_share_are_listed_on_request() {
    for flag in ["-h", "--help"] {
        let help = redline(&["score", flag]).ok().out;
        assert!(help.contains("--query") && help.contains("--help-all"), "{help}");
        assert!(SHARED.iter().all(|flag| !help.contains(&format!("{flag} <"))), "{help}");
    }
    let all = redline(&["score", "--help-all"]).ok().out;
    assert!(SHARED.iter().all(|flag| all.contains(&format!("{flag} <"))), "{all}");
    assert!(
        all.contains("--query") && all.lines().count() > redline(&["score", "-h"]).ok().out.lines().count()
    );
    assert_eq!(redline(&["score", "--help_all"]).ok().out, all);
    // A command without such flags does not offer the flag, but knows it.
    assert!(!redline(&["compare", "--help"]).ok().out.contains("--help-all"));
    assert_eq!(redline(&["compare", "--help-all"]).ok().out, redline(&["compare", "--help"]).ok().out);
}

#[test]
fn the_command_help_prints_the_help_of_a_command() {
    let same = |command: &[&str], flags: &[&str]| {
        assert_eq!(redline(command).ok().out, redline(flags).ok().out, "{command:?}");
    };
    same(&["help"], &["--help"]);
    same(&["help", "score"], &["score", "--help"]);
    same(&["help", "bench", "generate"], &["bench", "generate", "--help"]);
    same(&["help", "--all", "bench", "generate"], &["bench", "generate", "--help-all"]);
    same(&["help", "help"], &["help", "--help"]);
}

#[test]
fn every_command_lists_its_exit_codes() {
    let lanes = redline_lab::lanes::ALL.iter().map(|lane| vec!["bench", lane.name]);
    let commands = commands();
    let commands = commands.iter().map(|name| vec![name.as_str()]);
    let adapter = ["convert", "inspect", "merge"].map(|name| vec!["adapter", name]);
    let below = adapter.into_iter().chain([vec!["bench", "all"], vec![]]);
    for path in lanes.chain(commands).chain(below) {
        let help = redline(&[&path[..], &["--help"]].concat()).ok().out;
        let codes = help.split_once("Exit codes:").unwrap_or_else(|| panic!("{path:?}: {help}")).1;
        let own = path != ["bench"];
        assert!(!codes.contains("Exit codes:"), "{path:?} lists them twice: {help}");
        assert!(!own || ["0 ", "1 ", "2 "].iter().all(|code| codes.contains(code)), "{path:?}: {codes}");
    }
}

#[test]
fn shells_get_all_commands_and_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = redline(&["completions", shell]).ok().out;
        for word in ["perplexity", "sched-zipf", "help-all", "plan-policy"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    let script = redline(&["completions", "bash"]).ok().out;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redline.bash");
    fs::write(&file, script).unwrap();
    let complete = "source \"$0\"; COMP_WORDS=(redline score --lab); COMP_CWORD=2; _redline redline --lab score; \
                    echo \"${COMPREPLY[@]}\"";
    let Ok(output) = std::process::Command::new("bash").args(["-c", complete]).arg(&file).output() else {
        redline_testing::skip("no `bash` here");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--label --label-id", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let page = redline(&["man"]).ok().out;
    assert!(page.contains(".TH redline 1") && page.contains("redline\\-score(1)"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man/man1");
    redline(&["man", "-o", dir.to_str().unwrap()]).ok();
    let mut expected = vec!["redline.1".to_owned(), "redline-bench-all.1".to_owned()];
    expected.extend(["convert", "inspect", "merge"].map(|name| format!("redline-adapter-{name}.1")));
    expected.extend(commands().iter().map(|name| format!("redline-{name}.1")));
    expected.extend(redline_lab::lanes::ALL.iter().map(|lane| format!("redline-bench-{}.1", lane.name)));
    let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    let score = fs::read_to_string(dir.join("redline-score.1")).unwrap();
    assert!(score.contains("plan\\-policy") && score.contains("Examples:"), "{score}");
    let title = format!(".TH redline-score 1  \"redline {}\"", env!("CARGO_PKG_VERSION"));
    assert!(score.contains(&title), "{score}");
    redline(&["man", "/dev/null/x"]).failed(&["/dev/null/x"]);
}
