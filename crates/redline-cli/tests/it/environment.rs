//! Environment variables.

use crate::harness::{command, finish, redline};

/// The `REDLINE_*` variables that the help lists.
fn variables() -> Vec<String> {
    let help = redline(&["--help"]).ok().out;
    let names =
        help.lines().filter_map(|line| line.split_whitespace().next()).filter(|w| w.starts_with("REDLINE_"));
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(names.len() >= 6, "{help}");
    names
}

const SCORE: &[&str] = &["score", "--query", "The", "--item", "", "--label-id", "7", "--json"];

#[test]
fn a_bad_value_names_its_variable() {
    // Any text is a valid model or file name. Variables of lanes are tested with the lanes.
    let names = [
        "REDLINE_API_KEY",
        "REDLINE_MODEL",
        "REDLINE_PLAN_CACHE",
        "REDLINE_PRECISION_TRACE",
        "REDLINE_PREFIX_CACHE_DIR",
        "REDLINE_PROFILE_TRACE",
        "REDLINE_TOKENIZER_MIN_SPEEDUP",
    ];
    for name in variables().iter().filter(|name| !names.contains(&name.as_str())) {
        let run = finish(command(SCORE).args(["--model", "demo"]).env(name, "bogus").output().unwrap());
        run.usage(&[name, "bogus"]);
    }
}

#[test]
fn the_model_may_come_from_the_environment() {
    finish(command(SCORE).env("REDLINE_MODEL", "demo").output().unwrap()).ok();
    finish(command(SCORE).env("REDLINE_MODEL", "").output().unwrap()).usage(&["no model given"]);
    finish(command(SCORE).env("REDLINE_MODEL", "/nonexistent/model").output().unwrap())
        .failed(&["/nonexistent/model"]);
}

#[test]
fn flags_win_over_the_environment() {
    let run = |flags: &[&str]| {
        let mut command = command(SCORE);
        command.args(["--model", "demo"]).args(flags);
        finish(command.env("REDLINE_THREADS", "2").env("REDLINE_ISA", "scalar").output().unwrap())
            .ok()
            .scoring()
    };
    let from_environment = run(&[]);
    assert_eq!(from_environment.meta.cost.threads, 2);
    assert!(
        from_environment.meta.cost.kernel_path.starts_with("scalar"),
        "{}",
        from_environment.meta.cost.kernel_path
    );
    assert_eq!(run(&["--threads", "1"]).meta.cost.threads, 1);
    // A variable is not read if its flag is given.
    let mut overruled = command(SCORE);
    overruled.args(["--model", "demo", "--threads", "1"]).env("REDLINE_THREADS", "bogus");
    finish(overruled.output().unwrap()).ok();
}
