//! The examples in the help of every command run as they are typed.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{commands, finish, redline};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// What examples read from the repository.
const READ: &[&str] = &["LICENSE-MIT", "models", "tests"];

/// The commands with examples, each as the words after `redline`: all commands, the lanes of `bench`, and what is below `adapter`.
fn paths() -> Vec<Vec<String>> {
    let commands = commands().into_iter().map(|name| vec![name]);
    let lanes = redline_lab::lanes::ALL.iter().map(|lane| lane.name).chain(["all"]);
    let lanes = lanes.map(|lane| vec!["bench".to_owned(), lane.to_owned()]);
    let below = ["convert", "inspect", "merge"].map(|name| vec!["adapter".to_owned(), name.to_owned()]);
    [vec![]].into_iter().chain(commands).chain(lanes).chain(below).collect()
}

/// The examples in the help of a command, each with its further lines.
fn examples(path: &[String]) -> Vec<String> {
    let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let help = redline(&words).ok().out;
    let (_, section) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("no examples: {help}"));
    let mut examples: Vec<String> = Vec::new();
    for line in section.lines().take_while(|line| !line.is_empty()) {
        match examples.last_mut() {
            Some(example) if line.starts_with("      ") => example.push_str(&format!("\n{line}")),
            _ => examples.push(line.trim_start().to_owned()),
        }
    }
    examples
}

/// An example whose measurements judge only what does not depend on the speed of the machine.
fn portable(example: &str) -> String {
    let added = |line: &str| match line.strip_prefix("redline ") {
        Some(rest) if rest.starts_with("compare ") && !line.contains("--portable") => {
            line.replacen("redline compare", "redline compare --portable", 1)
        }
        Some(rest)
            if rest.starts_with("bench ") && !rest.starts_with("bench -") && !line.contains("--portable") =>
        {
            let lane = rest.split(' ').nth(1).unwrap_or_default();
            line.replacen(&format!("bench {lane}"), &format!("bench {lane} --portable"), 1)
        }
        _ => line.to_owned(),
    };
    example.lines().map(added).collect::<Vec<_>>().join("\n")
}

/// Runs the examples of a command in order, in a directory of their own.
fn run(path: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in READ {
        std::os::unix::fs::symlink(Path::new(ROOT).join(name), here.join(name)).unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_redline")).parent().unwrap().display();
    let examples = examples(path);
    assert!((2..=4).contains(&examples.len()), "{path:?}: {examples:?}");
    // A download needs a hub, a server does not end, and the question for its state needs one: their own tests run them.
    let elsewhere = ["redline pull ", "redline serve ", "redline health"];
    let examples =
        examples.into_iter().filter(|example| !elsewhere.iter().any(|begin| example.starts_with(begin)));
    for example in examples {
        assert!(example.contains("redline "), "{path:?}: {example}");
        let mut shell = Command::new("sh");
        shell.env_clear().env("HOME", here).env("PATH", format!("{program}:/usr/bin:/bin")).current_dir(here);
        let run = finish(shell.args(["-c", &portable(&example)]).stdin(Stdio::null()).output().unwrap());
        let report = format!("{example}\nended with {}\n{}\n{}", run.code, run.out, run.err);
        assert!(run.code == 0 && !run.err.contains("panicked"), "{report}");
        let to_a_file = example.contains(" -o ") || example.contains(" > ");
        assert!(!run.out.is_empty() || to_a_file, "{report}");
    }
}

/// Runs the examples of every fourth command.
fn run_share(share: usize) {
    let paths = paths();
    assert!(paths.len() > 30, "{paths:?}");
    paths.iter().skip(share).step_by(4).for_each(|path| run(path));
}

#[test]
fn examples_of_a_quarter_of_the_commands() {
    run_share(0);
}

#[test]
fn examples_of_the_second_quarter() {
    run_share(1);
}

#[test]
fn examples_of_the_third_quarter() {
    run_share(2);
}

#[test]
fn examples_of_the_last_quarter() {
    run_share(3);
}
