//! Recordings that end early: at every disk operation, by a crash or by an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::small_machine;
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, RunDirectory, RunError, Start};
use redline_lab::{Direction, Row, Run, Samples};
use redline_weights::Disk;

/// A run with `cases` finished cases.
fn run(cases: usize) -> Run {
    let row = |case: usize| {
        let samples = Samples::new("s", Direction::Lower, vec![1.0, 2.0, case as f64]).unwrap();
        Row { checked: true, ..Row::new(format!("case {case}")).metric("seconds", samples) }
    };
    let rows = (0..cases).map(row).collect();
    let result = LaneResult { lane: "l".into(), machine: small_machine(), rows };
    Run { finished: false, ..Run::new(Build::default(), Start::default(), result).unwrap() }
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files =
        entries.map(|p| (p.file_name().unwrap().display().to_string(), fs::read_to_string(p).unwrap()));
    // Temporary files of a crashed process have hidden names and are never read.
    files.filter(|(name, _)| !name.starts_with('.')).collect()
}

/// The three files of a run.
fn written(run: &Run) -> BTreeMap<String, String> {
    let document = run.json().unwrap();
    [("results.csv", run.results_csv()), ("samples.csv", run.samples_csv()), ("run.json", document)]
        .map(|(name, text)| (name.to_owned(), text))
        .into()
}

#[test]
fn each_file_of_a_run_is_the_old_or_the_new_one_wherever_recording_ends() {
    let (old, new) = (run(1), run(2));
    let (disk, done) = Disk::failing(usize::MAX, false);
    let record = |disk: Disk, dir: &Path| -> Result<(), RunError> {
        let place = RunDirectory::claim_on(disk, dir, &run(0))?;
        place.write(&old)?;
        place.write(&new)
    };
    let folder = tempfile::tempdir().unwrap();
    record(disk, &folder.path().join("run")).unwrap();
    assert_eq!(files(&folder.path().join("run")), written(&new));
    let operations = done.load(Ordering::Relaxed);
    // The directory, the claim, then three files twice.
    assert_eq!(operations, 1 + 6 + 2 * 3 * 5);
    for (n, dead) in (0..operations).flat_map(|n| [(n, true), (n, false)]) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("run");
        let recorded = record(Disk::failing(n, dead).0, &dir);
        if !dir.exists() {
            assert!(recorded.is_err() && n < 7, "operation {n}");
            continue;
        }
        let found = files(&dir);
        let versions = [written(&run(0)), written(&old), written(&new)];
        let version = |name: &str| {
            found.get(name).map(|text| {
                versions
                    .iter()
                    .position(|v| v[name] == *text)
                    .unwrap_or_else(|| panic!("{name} at {n}: {text}"))
            })
        };
        // The document is written last, so the files beside it are at least as new.
        let document = version("run.json");
        if document >= Some(1) {
            assert!(version("results.csv") >= document && version("samples.csv") >= document, "{n}");
        }
        if !dead && recorded.is_err() {
            let debris = fs::read_dir(&dir).unwrap().count() - found.len();
            assert_eq!(debris, 0, "an error at operation {n} leaves nothing aside");
        }
        assert_eq!(document.is_some(), Run::read(&dir).is_ok(), "what is there can be read");
        if document.is_some() {
            let place = RunDirectory::claim(&dir, &new);
            assert!(matches!(place, Err(RunError::Occupied)), "nobody writes over it");
        } else {
            // Nothing was claimed, so the same command can run again and writes the same bytes.
            record(Disk::default(), &dir).unwrap();
            assert_eq!(files(&dir), written(&new));
        }
    }
}

#[test]
fn a_claim_that_fails_leaves_the_run_of_another_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    run(1).write(&dir).unwrap();
    let before = files(&dir);
    for n in 0..6 {
        RunDirectory::claim_on(Disk::failing(n, false).0, &dir, &run(2)).unwrap_err();
        assert_eq!(files(&dir), before, "operation {n}");
    }
}

#[test]
fn a_claim_that_fails_removes_the_directory_it_made_and_no_other() {
    let mut failed = 0;
    for n in 0..7 {
        let folder = tempfile::tempdir().unwrap();
        let (made, before) = (folder.path().join("made"), folder.path().join("before"));
        fs::create_dir(&before).unwrap();
        if RunDirectory::claim_on(Disk::failing(n, false).0, &made, &run(0)).is_err() {
            failed += 1;
            assert!(!made.exists(), "operation {n}");
        }
        // Whether it fails or not, this directory stays.
        let _ = RunDirectory::claim_on(Disk::failing(n, false).0, &before, &run(0));
        assert!(before.is_dir(), "operation {n}");
    }
    // Only the removal of the temporary file may fail without consequences.
    assert!(failed >= 5, "{failed}");
}
