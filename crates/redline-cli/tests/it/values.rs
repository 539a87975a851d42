//! Bad values of the flags of every command.

use std::collections::BTreeSet;

use crate::harness::{commands, redline};

/// Placeholders of values that may be any text, or the path of a file.
const FREE: &[&str] = &[
    "TEXT", "FILE", "DIR", "PATH", "M", "[NAME=]M", "M2", "SRC", "RUN", "TEMPLATE", "FLAGS", "COMMAND",
    "NAME=DIR", "COLUMN",
];
/// Flags whose value is a name that may be any text: of an engine, of a parameter of cases, of adapters, of a model, of a prompt, and
/// of a column.
const FREE_NAMES: &[&str] = &[
    "file",
    "engine",
    "allow-different-param",
    "use",
    "model-alias",
    "served-model-name",
    "prompt-name",
    "column",
];

/// A value that no flag accepts, unless it accepts any text.
const BAD: &str = "no such value";

/// The flags of a command that take a value, each with the placeholder of the value.
fn flags(path: &[&str]) -> Vec<(String, String)> {
    let help = redline(&[path, &["--help-all"]].concat()).ok().out;
    let of_line = |line: &str| {
        let (_, flag) = line.split_once("--")?;
        let (name, value) = flag.split_once([' ', '=', '['])?;
        let value = value.split_once('<')?.1.split_once('>')?.0;
        Some((name.to_owned(), value.to_owned()))
    };
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    lines.filter_map(of_line).collect()
}

#[test]
fn a_bad_value_of_any_flag_is_wrong_usage() {
    let commands = commands();
    let lanes = redline_lab::lanes::ALL.iter().map(|lane| vec!["bench", lane.name]);
    let paths = commands.iter().map(|name| vec![name.as_str()]).chain(lanes).chain([
        vec!["bench", "all"],
        vec!["adapter", "inspect"],
        vec!["adapter", "merge"],
    ]);
    let mut seen = BTreeSet::new();
    for path in paths {
        for (name, value) in flags(&path) {
            // The flags that commands share are tested once, the lanes' own for each lane.
            let key =
                if path[0] == "bench" { format!("bench {name} {value}") } else { format!("{name} {value}") };
            let own = path.get(1).and_then(|lane| redline_lab::lanes::Lane::named(lane));
            let own = own.is_some_and(|lane| lane.flags.iter().any(|flag| flag.name == name));
            let known = !seen.insert(key) && !own;
            if known || FREE.contains(&value.as_str()) || FREE_NAMES.contains(&name.as_str()) {
                continue;
            }
            let flag = format!("--{name}={BAD}");
            let needed: &[&str] = if name == "csv-style" { &["--output=-"] } else { &[] };
            let run = redline(&[&path[..], &[flag.as_str()], needed].concat());
            assert_eq!(run.code, 2, "{path:?} {flag}: {} {}", run.out, run.err);
            let named = run.err.contains(&format!("--{name}")) || run.err.contains(BAD);
            assert!(named && run.err.contains("hint: "), "{path:?} {flag}: {}", run.err);
        }
    }
    assert!(seen.len() > 100, "{} flags", seen.len());
}
