//! `redline batch`: as a command, killed and finished by others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{command, redline, tiers};

/// A table of short texts, of which every 50th is missing.
fn table(dir: &Path, rows: usize) -> String {
    let words = ["king", "ship", "sea", "war", "bread", "winter", "night"];
    let line = |row: usize| match row % 50 {
        49 => format!("{{\"id\":{row},\"text\":null}}\n"),
        _ => format!("{{\"id\":{row},\"text\":\"the {} and the {}\"}}\n", words[row % 7], words[row % 5]),
    };
    let path = dir.join("in.jsonl");
    fs::write(&path, (0..rows).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The files below a directory, without locks.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            all.extend(content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else if path.extension().is_none_or(|ending| ending != "lock") {
            all.insert(name, fs::read(&path).unwrap());
        }
    }
    all
}

fn arguments<'a>(input: &'a str, output: &'a str, shard: &'a str) -> Vec<&'a str> {
    let asked = [
        "batch",
        "classify",
        "--model",
        "demo",
        "--set",
        "classes=[\"war\",\"peace\"]",
        "--rows-per-file",
        "40",
    ];
    let places = ["--input", input, "--output", output, "--shard", shard, "--threads", "1"];
    [&asked[..], &places].concat()
}

#[test]
fn killed_workers_are_replaced_by_any_number_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let input = table(folder.path(), 2000);
    let output = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let whole = output("whole");
    let run = redline(&arguments(&input, &whole, "1/1"));
    assert_eq!(run.code, 1, "rows without a text fail: {}", run.err);
    assert!(run.err.contains("2000 rows, 40 with an error"), "{}", run.err);
    let expected = content(Path::new(&whole));
    assert_eq!(expected.len(), 50 + 2);
    for (number, wait_ms) in [0, 5, 20, 40, 80, 120, 200, 350].into_iter().enumerate() {
        let disturbed = output(&format!("disturbed-{number}"));
        let mut workers: Vec<_> = ["1/2", "2/2"]
            .map(|shard| {
                let mut worker = command(&arguments(&input, &disturbed, shard));
                worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .into();
        thread::sleep(Duration::from_millis(wait_ms));
        for worker in &mut workers {
            // Where it has ended, there is nothing to kill.
            let _ = worker.kill();
            worker.wait().unwrap();
        }
        if Path::new(&disturbed).exists() {
            for (name, bytes) in content(Path::new(&disturbed)) {
                assert!(name.contains(".partial") || expected.get(&name) == Some(&bytes), "{name}");
            }
        }
        for shard in ["3/3", "1/3", "2/3"] {
            redline(&arguments(&input, &disturbed, shard));
        }
        assert!(content(Path::new(&disturbed)) == expected, "killed after {wait_ms} ms");
    }
}

#[test]
fn results_do_not_depend_on_instructions_or_threads() {
    let folder = tempfile::tempdir().unwrap();
    let input = table(folder.path(), 90);
    let mut all = Vec::new();
    for (number, tier) in tiers().into_iter().enumerate() {
        let output = folder.path().join(number.to_string());
        let arguments = arguments(&input, output.to_str().unwrap(), "1/1");
        let threads = (number % 3 + 1).to_string();
        let mut arguments = arguments[..arguments.len() - 2].to_vec();
        arguments.extend(["--isa", tier, "--threads", &threads]);
        redline(&arguments);
        all.push(content(&output));
    }
    assert!(all.len() > 1 && all.iter().all(|content| *content == all[0] && content.len() == 3 + 2));
}

#[test]
fn a_report_says_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let input = table(folder.path(), 60);
    let output = folder.path().join("out");
    let output = output.to_str().unwrap();
    let report = |shard: &str| -> Value {
        let run = redline(&[&arguments(&input, output, shard)[..], &["--json"]].concat());
        assert_eq!(run.err, "");
        serde_json::from_str(&run.out).unwrap()
    };
    let first = report("2/2");
    let counts = |report: &Value| {
        ["rows", "answered", "failed", "files_done", "files"].map(|key| report[key].as_u64().unwrap())
    };
    assert_eq!((counts(&first), &first["manifest"]), ([20, 20, 1, 1, 2], &Value::Null));
    let second = report("1/2");
    assert_eq!(counts(&second), [40, 40, 0, 2, 2]);
    assert!(second["manifest"].as_str().unwrap().ends_with("_manifest.json"));
    let quiet = redline(&[&arguments(&input, output, "1/2")[..], &["--quiet"]].concat());
    assert_eq!((quiet.out.trim_end(), quiet.err.as_str(), quiet.code), (output, "", 1));
    for (flags, fact) in [
        (&["--set", "x"][..], "`x` has no key and value"),
        (&["--column", "=x"], "`=x` has no key and value"),
        (&["--shard", "0/2"], "`0/2` is no shard"),
        (&["--set", "end=a", "--set", "end=b"], "`--set end=` is given twice"),
        (&["--column", "text=none"], "there is no column `none`"),
        (&["--set", "threshold=0.5"], "another request"),
        (&["--chat"], "`demo` has no chat template"),
    ] {
        let run = redline(&[&arguments(&input, output, "1/1")[..12], flags].concat());
        assert!(run.code != 0 && run.err.contains(fact), "{flags:?}: {}", run.err);
    }
}

/// Two workers of one shard, of which the second ends with an error.
#[cfg(unix)]
#[test]
fn a_second_worker_of_a_shard_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = table(folder.path(), 4000);
    let output = folder.path().join("out");
    let output = output.to_str().unwrap();
    let mut first: Command = command(&arguments(&input, output, "1/1"));
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !Path::new(output).join("_redline/plan.json").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let second = redline(&arguments(&input, output, "1/1"));
    first.kill().unwrap();
    first.wait().unwrap();
    let holder = format!("process {} works on shard 1/1", first.id());
    assert!(second.code == 1 && second.err.contains(&holder), "{}", second.err);
    assert!(second.err.contains("give every worker a shard of its own"), "{}", second.err);
}
