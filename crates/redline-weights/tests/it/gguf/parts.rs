//! Models in one file, in a directory, and in parts.

use std::fs;

use redline_weights::Gguf;

use super::{digest, made};
use crate::check;
use redline_testing::gguf::Writer;

/// Name, type, shape and digest of every tensor that the package `gguf` wrote.
const TENSORS: &str = include_str!("tensors.txt");

fn listed(gguf: &Gguf) -> Vec<String> {
    let line = |name: &str| {
        let tensor = gguf.tensor(name).unwrap();
        let shape: Vec<_> = tensor.shape.iter().map(usize::to_string).collect();
        let mut values = vec![0.0; tensor.elements()];
        gguf.read_f32(name, &mut values).unwrap();
        format!("{name} {} {} {:016x}", tensor.ggml_type, shape.join("x"), digest(&values))
    };
    gguf.names().map(line).collect()
}

#[test]
fn files_of_the_reference_are_read() {
    let mut expected: Vec<_> = TENSORS.lines().collect();
    expected.sort_unstable();
    for path in [
        "single",
        "single/model.gguf",
        "split",
        "split/model-00001-of-00003.gguf",
        "split/model-00002-of-00003.gguf",
        "split/model-00003-of-00003.gguf",
    ] {
        let gguf = Gguf::open(&made(path)).unwrap();
        assert_eq!(listed(&gguf), expected, "{path}");
        assert_eq!(gguf.origin(), made(path));
        assert_eq!(gguf.metadata().u32("test.u16").unwrap(), 65535);
        let first =
            if path.starts_with("single") { "single/model.gguf" } else { "split/model-00001-of-00003.gguf" };
        assert_eq!(gguf.metadata().file(), made(first));
    }
    let gguf = Gguf::open(&made("split")).unwrap();
    assert_eq!(gguf.file_of("vector"), Some(made("split/model-00003-of-00003.gguf").as_path()));
    assert_eq!(gguf.file_of("absent"), None);
}

fn part(number: u16, count: u16) -> Writer {
    Writer::new().u16("split.no", number).u16("split.count", count)
}

#[test]
fn a_single_part_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let one = |writer: Writer| writer.tensor("w", &[1], 0, &1f32.to_le_bytes()).finish();
    for (name, content) in [
        ("a-00001-of-00001.gguf", one(part(0, 1))),
        ("a-00001-of-00001.gguf", one(Writer::new())),
        ("a.gguf", one(part(0, 1))),
        ("a.gguf", one(part(0, 0))),
        // Names that are like those of parts.
        ("a-00001-of-2.gguf", one(Writer::new())),
        ("a-00003-of-00002.gguf", one(Writer::new())),
        // Beside other files.
        ("a.txt", Vec::new()),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, &content).unwrap();
        if content.is_empty() {
            fs::write(dir.path().join("b.gguf"), one(Writer::new())).unwrap();
        }
        assert_eq!(Gguf::open(dir.path()).unwrap().names().collect::<Vec<_>>(), ["w"], "{name}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn an_embedded_part_is_refused() {
    let file: &'static [u8] = part(1, 3).finish().leak();
    check(
        Gguf::from_bytes("embedded", file).map(drop),
        &made(""),
        "the file is part 2 of 3, but its name does not end in `-00002-of-00003.gguf`\n  in `embedded`\n\n\
         give the file its name back: the other parts are found by it",
    );
}

#[test]
fn a_path_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let message = Gguf::open(&path).map(drop).unwrap_err().to_string();
    assert!(message.starts_with("cannot open the model: ") && message.contains("model.gguf"), "{message}");
    fs::create_dir(&path).unwrap();
    check(
        Gguf::open(dir.path()).map(drop),
        dir.path(),
        "a regular file is needed, but this is something else\n  in `DIR/model.gguf`",
    );
}
