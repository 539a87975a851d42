//! Conversions that end early: the writer dies, or the disk is full, at any operation.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use redline_kernels::Format;
use redline_models::{ConvertOptions, ModelError, convert_on};
use redline_weights::Disk;

use crate::reference::{golden_root, on_team};

const FORMAT: Format = Format::W4 { group: 32 };

fn convert(disk: &Disk, destination: &Path) -> Result<(), ModelError> {
    let source = golden_root().join("llama-b");
    let options = ConvertOptions { format: FORMAT, outliers: 0.1 };
    on_team(|exec| convert_on(disk, exec, &source, destination, options, &mut |_| Ok(())))
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|p| (p.file_name().unwrap().display().to_string(), fs::read(p).unwrap())).collect()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().display().to_string()).collect()
}

/// A complete conversion, and its number of operations.
fn whole() -> (BTreeMap<String, Vec<u8>>, usize) {
    let work = tempfile::tempdir().unwrap();
    let (disk, done) = Disk::failing(usize::MAX, false);
    convert(&disk, &work.path().join("to")).unwrap();
    (files(&work.path().join("to")), done.load(Ordering::Relaxed))
}

#[test]
fn a_conversion_that_dies_at_any_operation_leaves_nothing_or_everything() {
    let source = files(&golden_root().join("llama-b"));
    let (whole, operations) = whole();
    assert!(operations > 50 && whole.len() >= 3, "{operations} {:?}", whole.keys());
    let mut finished = 0;
    for n in 0..operations {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        convert(&Disk::failing(n, true).0, &to).unwrap_err();
        if to.exists() {
            finished += 1;
        } else {
            convert(&Disk::default(), &to).unwrap();
        }
        assert!(files(&to) == whole, "the bytes after operation {n}");
        assert_eq!(names(work.path()), ["to"], "nothing is left of operation {n}");
    }
    assert_eq!(finished, 1, "only the last sync comes after the rename");
    assert!(files(&golden_root().join("llama-b")) == source, "the source is untouched");
}

#[test]
fn a_full_disk_at_any_operation_leaves_no_debris_and_names_its_cause() {
    let source = files(&golden_root().join("llama-b"));
    let (whole, operations) = whole();
    for n in 0..operations {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        let error = convert(&Disk::failing(n, false).0, &to).unwrap_err().to_string();
        let (fact, _) = error.split_once("\n  in `").expect("a fact, then the place");
        assert!(fact.starts_with("cannot ") && fact.lines().count() == 1, "{error}");
        if n + 1 == operations {
            assert!(files(&to) == whole, "it is whole, only not known to be durable");
        } else {
            assert_eq!(names(work.path()), [""; 0], "operation {n}: {error}");
        }
    }
    assert!(files(&golden_root().join("llama-b")) == source, "the source is untouched");
}
