//! The disk operations of a writer: their order, and the effect of a crash or an error at every one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use redline_weights::{
    Checksum, DirWriter, Disk, Dtype, Fields, FileOperation, InfqWriter, PlanStore, Scheme, StoredDtype,
    TensorDeclaration, Weight, WeightPart, write_file_on, write_new_file_on,
};
use tempfile::tempdir;

/// A disk that records its operations.
fn recording() -> (Disk, Arc<Mutex<Vec<FileOperation>>>) {
    let operations = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&operations);
    let disk = Disk::observed(move |operation| {
        seen.lock().unwrap().push(operation.clone());
        Ok(())
    });
    (disk, operations)
}

fn recorded(write: impl FnOnce(Disk)) -> Vec<FileOperation> {
    let (disk, operations) = recording();
    write(disk);
    operations.lock().unwrap().clone()
}

/// How the n-th operation fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The process dies: neither this operation nor any later one happens, including cleanup.
    Death,
    /// The disk is full, for this operation only.
    Full,
}

/// A disk whose operation number `n`, counted from 0, fails.
fn failing(n: usize, fault: Fault) -> Disk {
    Disk::failing(n, fault == Fault::Death).0
}

/// Every file under `dir` with its content, and every empty directory.
fn content(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        let entries: Vec<PathBuf> = fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()).collect();
        if entries.is_empty() && next != dir {
            found.insert(next.strip_prefix(dir).unwrap().to_owned(), None);
        }
        for path in entries {
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), Some(fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// Writes a directory with two plain files and one safetensors file.
fn write_dir(disk: Disk, destination: &Path) -> redline_weights::Result<()> {
    let mut writer = DirWriter::create_on(disk, destination)?;
    writer.write("config.json", b"{}")?;
    writer.write("tokenizer.json", b"{\"model\":{}}")?;
    let tensors = [TensorDeclaration::new("a", Dtype::F32, [4, 1000])];
    writer.safetensors("model.safetensors", &tensors, |file| {
        (0..4).try_for_each(|row| file.write_f32(&[row as f32; 1000]))
    })?;
    writer.finish()
}

/// Writes an INFQ directory with interleaved parts.
fn write_infq(disk: Disk, destination: &Path) -> redline_weights::Result<()> {
    let parts =
        vec![WeightPart::new("", StoredDtype::U8, [4096]), WeightPart::new("scales", Dtype::F32, [16])];
    let (name, encoding) = ("layers.0.weight".to_owned(), "w8".to_owned());
    let weight = Weight {
        name: name.clone(),
        shape: vec![64, 64],
        encoding: encoding.clone(),
        attributes: BTreeMap::new(),
        outlier_columns: Vec::new(),
        parts,
    };
    let scheme = Scheme { encoding, options: BTreeMap::new() };
    let mut writer = InfqWriter::create_on(disk, destination, scheme, vec![weight])?;
    writer.write_file("config.json", b"{}")?;
    for piece in 0..4u8 {
        writer.write_part(&name, "", &[piece; 1024])?;
        writer.write_part(&name, "scales", &[piece; 16])?;
    }
    writer.finish(Checksum::of(b"source"))
}

type WriteDir = fn(Disk, &Path) -> redline_weights::Result<()>;
const DIRECTORIES: [WriteDir; 2] = [write_dir, write_infq];

/// Checks that every created file was synced after its last write and before `end`.
fn files_are_synced(operations: &[FileOperation], end: usize) -> BTreeSet<PathBuf> {
    let mut created = BTreeSet::new();
    for operation in &operations[..end] {
        let FileOperation::CreateFile(file) = operation else { continue };
        let last_write = operations
            .iter()
            .rposition(|o| matches!(o, FileOperation::Write(path, _) if path == file))
            .expect("no file is empty here");
        let synced = operations[..end].iter().rposition(|o| *o == FileOperation::SyncFile(file.clone()));
        assert!(synced > Some(last_write), "{} is not synced: {operations:?}", file.display());
        created.insert(file.clone());
    }
    created
}

#[test]
fn a_directory_is_written_aside_synced_and_renamed_once() {
    for write in DIRECTORIES {
        let folder = tempdir().unwrap();
        let destination = folder.path().join("model");
        let operations = recorded(|disk| write(disk, &destination).unwrap());
        let [FileOperation::CreateDir(aside), ..] = &operations[..] else { panic!("{operations:?}") };
        let renamed = FileOperation::Rename(aside.clone(), destination.clone());
        let end = operations.iter().position(|o| *o == renamed).expect("the directory is renamed");
        let files = files_are_synced(&operations, end);
        assert!(files.len() >= 3 && files.iter().all(|file| file.parent() == Some(aside)), "{files:?}");
        // The file names are durable before the directory is renamed, and the rename is durable before success is reported.
        let last_file = operations.iter().rposition(|o| matches!(o, FileOperation::CreateFile(_))).unwrap();
        let synced = operations.iter().position(|o| *o == FileOperation::SyncDir(aside.clone()));
        assert!(synced > Some(last_file) && synced < Some(end), "{operations:?}");
        assert_eq!(operations[end + 1..], [FileOperation::SyncDir(folder.path().to_owned())]);
        // Only the rename touches the destination.
        let touches =
            |o: &FileOperation| format!("{o:?}").contains(&format!("{destination:?}").replace('"', ""));
        assert_eq!(operations.iter().filter(|o| touches(o)).count(), 1, "{operations:?}");
    }
}

#[test]
fn a_directory_in_the_current_one_is_synced_there() {
    let folder = tempdir().unwrap();
    let destination = folder.path().join("model");
    fs::create_dir(&destination).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("model", &link).unwrap();
    let operations = recorded(|disk| write_dir(disk, &link).unwrap());
    let parent = fs::canonicalize(folder.path()).unwrap();
    assert_eq!(operations.last(), Some(&FileOperation::SyncDir(parent)), "where the link leads");
    assert_eq!(fs::read_dir(&destination).unwrap().count(), 3);
}

#[test]
fn a_writer_that_dies_at_any_operation_leaves_nothing_or_everything() {
    for write in DIRECTORIES {
        let folder = tempdir().unwrap();
        let destination = folder.path().join("model");
        let all = recorded(|disk| write(disk, &destination).unwrap()).len();
        let whole = content(&destination);
        assert!(all > 10 && whole.len() >= 3, "{all} {whole:?}");
        let mut finished = 0;
        for n in 0..all {
            for occupied in [false, true] {
                let folder = tempdir().unwrap();
                let destination = folder.path().join("model");
                if occupied {
                    fs::create_dir(&destination).unwrap();
                }
                write(failing(n, Fault::Death), &destination).unwrap_err();
                let there = if destination.exists() { content(&destination) } else { BTreeMap::new() };
                if there.is_empty() {
                    assert_eq!(destination.exists(), occupied);
                    write(Disk::default(), &destination).unwrap();
                } else {
                    finished += 1;
                }
                assert_eq!(content(&destination), whole, "operation {n}");
                let left = fs::read_dir(folder.path()).unwrap().count();
                assert_eq!(left, 1, "what a dead writer left at operation {n} is removed by the next one");
            }
        }
        assert_eq!(finished, 2, "only the last sync comes after the rename");
    }
}

#[test]
fn an_error_at_any_operation_leaves_no_debris() {
    for write in DIRECTORIES {
        let folder = tempdir().unwrap();
        let destination = folder.path().join("model");
        let all = recorded(|disk| write(disk, &destination).unwrap()).len();
        for n in 0..all {
            let folder = tempdir().unwrap();
            let destination = folder.path().join("model");
            let error = write(failing(n, Fault::Full), &destination).unwrap_err().to_string();
            let (fact, place) = error.split_once("\n  in `").expect("a fact and its place");
            assert!(fact.starts_with("cannot ") && fact.lines().count() == 1, "{error}");
            assert!(place.contains("model") || place.contains(folder.path().to_str().unwrap()), "{error}");
            // The last operation syncs the rename: the directory is complete, only not known to be durable.
            let expect: &[&str] = if n + 1 == all { &["model"] } else { &[] };
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, expect, "operation {n}: {error}");
        }
    }
}

#[test]
fn a_file_is_written_aside_synced_and_renamed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run.json");
    for content in ["one", "two"] {
        let operations = recorded(|disk| write_file_on(&disk, &path, content.as_bytes()).unwrap());
        let [FileOperation::CreateFile(aside), ..] = &operations[..] else { panic!("{operations:?}") };
        assert_ne!(*aside, path);
        let expect = [
            FileOperation::CreateFile(aside.clone()),
            FileOperation::Write(aside.clone(), 3),
            FileOperation::SyncFile(aside.clone()),
            FileOperation::Rename(aside.clone(), path.clone()),
            FileOperation::SyncDir(folder.path().to_owned()),
        ];
        assert_eq!(operations, expect);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn a_new_file_is_there_whole_or_not_at_all_and_never_written_over() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run.json");
    let operations = recorded(|disk| write_new_file_on(&disk, &path, b"one").unwrap());
    let [FileOperation::CreateFile(aside), ..] = &operations[..] else { panic!("{operations:?}") };
    let expect = [
        FileOperation::CreateFile(aside.clone()),
        FileOperation::Write(aside.clone(), 3),
        FileOperation::SyncFile(aside.clone()),
        FileOperation::Link(aside.clone(), path.clone()),
        FileOperation::Remove(aside.clone()),
        FileOperation::SyncDir(folder.path().to_owned()),
    ];
    assert_eq!(operations, expect);
    let again = write_new_file_on(&Disk::default(), &path, b"two").unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(content(folder.path()), [("run.json".into(), Some(b"one".to_vec()))].into());
}

#[test]
fn a_file_system_without_second_names_is_written_in_place() {
    // Linux answers `PermissionDenied` for FAT.
    for kind in [io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("run.json");
        let disk = Disk::observed(move |operation| match operation {
            FileOperation::Link(..) => Err(kind.into()),
            _ => Ok(()),
        });
        write_new_file_on(&disk, &path, b"one").unwrap();
        let again = write_new_file_on(&disk, &path, b"two").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "{kind:?}");
        assert_eq!(content(folder.path()), [("run.json".into(), Some(b"one".to_vec()))].into());
    }
}

#[test]
fn a_file_written_in_place_is_taken_back_if_its_writer_fails() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run.json");
    let own = path.clone();
    let disk = Disk::observed(move |operation| match operation {
        FileOperation::Link(..) => Err(io::ErrorKind::Unsupported.into()),
        FileOperation::SyncFile(file) if *file == own => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let error = write_new_file_on(&disk, &path, b"one").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(content(folder.path()).is_empty(), "{:?}", content(folder.path()));
}

/// A disk on which the first `names` temporary names are taken.
fn with_taken_names(names: usize) -> Disk {
    let tried = Mutex::new(0);
    Disk::observed(move |operation| {
        let FileOperation::CreateFile(_) = operation else { return Ok(()) };
        let mut tried = tried.lock().unwrap();
        *tried += 1;
        if *tried <= names { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    })
}

#[test]
fn another_temporary_name_is_tried_a_thousand_times() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("run.json");
    for (taken, bytes) in [(1, b"one"), (999, b"two")] {
        write_file_on(&with_taken_names(taken), &path, bytes).unwrap();
        assert_eq!(content(folder.path()), [("run.json".into(), Some(bytes.to_vec()))].into());
    }
    let error = write_file_on(&with_taken_names(1000), &path, b"six").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(content(folder.path()), [("run.json".into(), Some(b"two".to_vec()))].into());
}

#[test]
fn a_file_is_written_where_directories_cannot_be_synced() {
    use io::ErrorKind::{InvalidInput, Other, PermissionDenied, Unsupported};
    for (kind, fails) in
        [(InvalidInput, false), (PermissionDenied, false), (Unsupported, false), (Other, true)]
    {
        let folder = tempdir().unwrap();
        let (path, new) = (folder.path().join("run.json"), folder.path().join("new.json"));
        let disk = Disk::observed(move |operation| match operation {
            FileOperation::SyncDir(_) => Err(kind.into()),
            _ => Ok(()),
        });
        assert_eq!(write_file_on(&disk, &path, b"one").is_err(), fails, "{kind:?}");
        assert_eq!(write_new_file_on(&disk, &new, b"one").is_err(), fails, "{kind:?}");
        assert_eq!((path.exists(), new.exists()), (true, !fails), "{kind:?}");
    }
}

#[test]
fn a_file_is_the_old_or_the_new_one_wherever_its_writer_fails() {
    let (old, new) = (b"old".as_slice(), b"new and longer".as_slice());
    for (n, fault) in (0..5).flat_map(|n| [(n, Fault::Death), (n, Fault::Full)]) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs::write(&path, old).unwrap();
        write_file_on(&failing(n, fault), &path, new).unwrap_err();
        let expect = if n < 4 { old } else { new };
        assert_eq!(fs::read(&path).unwrap(), expect, "{fault:?} at operation {n}");
        if fault == Fault::Full {
            assert_eq!(content(folder.path()).len(), 1, "nothing is left after operation {n}");
        }
        write_file_on(&Disk::default(), &path, new).unwrap();
        assert_eq!(fs::read(&path).unwrap(), new);
    }
    for (n, fault) in (0..6).flat_map(|n| [(n, Fault::Death), (n, Fault::Full)]) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("run.json");
        let written = write_new_file_on(&failing(n, fault), &path, new);
        match (fs::read(&path), fault) {
            (Ok(read), _) => {
                assert_eq!(read, new, "{fault:?} at operation {n}");
                assert!(fault == Fault::Death || written.is_ok(), "an error at {n} takes the file back");
            }
            (Err(_), Fault::Full) => {
                assert!(written.is_err() && content(folder.path()).is_empty(), "operation {n}");
            }
            (Err(_), Fault::Death) => assert!(written.is_err() && n < 4, "operation {n}"),
        }
    }
}

#[test]
fn a_plan_is_the_old_or_the_new_one_wherever_its_writer_fails() {
    let fields = |name: &str, value: &str| Fields::from([(name.to_owned(), value.to_owned())]);
    let (key, old, new) = (fields("threads", "2"), fields("qkv", "dot"), fields("qkv", "tiles"));
    let folder = tempdir().unwrap();
    let dir = folder.path().join("made/here");
    let all = recorded(|disk| PlanStore::new(&dir).on(disk).write(&key, &new).unwrap());
    let path = PlanStore::new(&dir).path(&key);
    assert_eq!(all[0], FileOperation::CreateDir(dir.clone()));
    assert!(matches!(&all[all.len() - 2], FileOperation::Rename(_, to) if *to == path), "{all:?}");
    assert_eq!(all.last(), Some(&FileOperation::SyncDir(dir.clone())));
    files_are_synced(&all, all.len() - 2);
    let bytes = fs::read(&path).unwrap();
    for (n, fault) in (0..all.len()).flat_map(|n| [(n, Fault::Death), (n, Fault::Full)]) {
        for first in [true, false] {
            let folder = tempdir().unwrap();
            let store = PlanStore::new(folder.path().join("plans"));
            if !first {
                store.write(&key, &old).unwrap();
            }
            // An existing directory saves one operation.
            let written = store.clone().on(failing(n, fault)).write(&key, &new);
            assert_eq!(written.is_err(), first || n + 1 < all.len(), "operation {n}");
            let read = store.read(&key).expect("never a damaged plan");
            let before = (!first).then(|| old.clone());
            assert!(read == before || read.as_ref() == Some(&new), "{fault:?} at operation {n}: {read:?}");
            store.write(&key, &new).unwrap();
            assert_eq!(fs::read(store.path(&key)).unwrap(), bytes, "a rerun gives the same bytes");
        }
    }
}

#[test]
fn another_temporary_directory_is_tried_a_hundred_times() {
    for (taken, fails) in [(1, false), (100, false), (101, true)] {
        let folder = tempdir().unwrap();
        let tried = Mutex::new(0);
        let disk = Disk::observed(move |operation| {
            let FileOperation::CreateDir(_) = operation else { return Ok(()) };
            let mut tried = tried.lock().unwrap();
            *tried += 1;
            if *tried <= taken { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
        });
        let created = DirWriter::create_on(disk, &folder.path().join("model"));
        assert_eq!(created.is_err(), fails, "{taken} names are taken");
        drop(created);
        assert!(content(folder.path()).is_empty(), "{:?}", content(folder.path()));
    }
}
