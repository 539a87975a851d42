//! Writing: the data must match the declaration, and a directory appears completely or not at all.

use std::fs;
use std::io;
use std::path::Path;

use redline_weights::{
    Checkpoint, DirWriter, Dtype, Result, SafetensorsWriter, StoredDtype, TensorDeclaration, read_file,
};
use tempfile::tempdir;

use crate::check;

fn specs() -> [TensorDeclaration; 3] {
    [
        TensorDeclaration::new("a", Dtype::F32, [2, 2]),
        TensorDeclaration::new("empty", Dtype::BF16, [0]),
        TensorDeclaration::new("b", Dtype::F16, []),
    ]
}

fn written(fill: impl FnOnce(&mut SafetensorsWriter<&mut Vec<u8>>) -> Result<()>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = SafetensorsWriter::new(&mut bytes, &specs())?;
    fill(&mut writer)?;
    writer.finish()?;
    Ok(bytes)
}

fn says<T: std::fmt::Debug>(result: Result<T>, fact: &str) {
    let error = result.expect_err(fact).to_string();
    assert_eq!(error, format!("{fact}\n  in `safetensors stream`"));
}

#[test]
fn the_bytes_of_a_file() {
    let by_chunks = written(|writer| {
        writer.write_f32(&[1.0])?;
        writer.write_f32(&[])?;
        writer.write_f32(&[2.0, 3.0, 4.0])?;
        writer.write_f32(&[-2.0])
    });
    let by_name = written(|writer| {
        writer.tensor_f32("a", [&[1.0][..], &[2.0, 3.0, 4.0]])?;
        writer.tensor_f32("empty", [[0f32; 0]])?;
        writer.tensor_f32("b", [[-2.0]])
    });
    let by_name = by_name.unwrap();
    assert_eq!(by_chunks.unwrap(), by_name);
    let header =
        r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"#;
    let header = format!(
        "{header}{}{}",
        r#""empty":{"dtype":"BF16","shape":[0],"data_offsets":[16,16]},"#,
        r#""b":{"dtype":"F16","shape":[],"data_offsets":[16,18]}}"#
    );
    let header = format!("{header:248}");
    assert_eq!((8 + header.len()) % 64, 0);
    let data: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(by_name, crate::file(&header, &[&data[..], &[0x00, 0xc0]].concat()));
}

#[test]
fn a_file_without_tensors() {
    let bytes = SafetensorsWriter::new(Vec::new(), &[]).unwrap().finish().unwrap();
    assert_eq!(Checkpoint::from_bytes("none", bytes.leak()).unwrap().names().count(), 0);
    let write = SafetensorsWriter::new(Vec::new(), &[]).unwrap().write_f32(&[1.0]);
    says(write, "tensor `` was declared with 0 elements, but 1 were given");
}

#[test]
fn declared_and_given_must_agree() {
    says(written(|_| Ok(())), "tensor `a` was declared with 4 elements, but 0 were given");
    says(
        written(|writer| writer.write_f32(&[0.0; 3])),
        "tensor `a` was declared with 4 elements, but 3 were given",
    );
    says(
        written(|writer| writer.write_f32(&[0.0; 5])),
        "tensor `a` was declared with 4 elements, but 5 were given",
    );
    let after_the_end = written(|writer| {
        writer.write_f32(&[0.0; 4])?;
        writer.write_f32(&[0.0])?;
        writer.write_f32(&[0.0])
    });
    says(after_the_end, "tensor `b` was declared with 1 elements, but 2 were given");
    let too_many = written(|writer| writer.tensor_f32("a", [[0.0; 4]; 2]));
    says(too_many, "tensor `a` was declared with 4 elements, but 8 were given");
    let too_few = written(|writer| writer.tensor_f32("a", [[0.0; 3]]));
    says(too_few, "tensor `a` was declared with 4 elements, but 3 were given");
    says(written(|writer| writer.tensor_f32("b", [[0.0]])), "tensor `b` was given where `a` was declared");
    let begun = written(|writer| {
        writer.write_f32(&[0.0])?;
        writer.tensor_f32("a", [[0.0; 3]])
    });
    says(begun, "tensor `a` was given where `nothing` was declared");
}

#[test]
fn raw_bytes_of_every_type() {
    let specs = [
        TensorDeclaration::new("bytes", StoredDtype::U8, [3]),
        TensorDeclaration::new("half", Dtype::F16, [2]),
        TensorDeclaration::new("none", StoredDtype::I32, [0]),
        TensorDeclaration::new("nibbles", StoredDtype::F4, [4]),
        TensorDeclaration::new("ids", StoredDtype::I64, [1]),
    ];
    let mut bytes = Vec::new();
    let mut writer = SafetensorsWriter::new(&mut bytes, &specs).unwrap();
    for piece in [&[1][..], &[], &[2, 3], &[0x00], &[0x3c]] {
        writer.write_raw(piece).unwrap();
    }
    writer.write_f32(&[-2.0]).unwrap();
    writer.write_raw(&[4, 5]).unwrap();
    writer.write_raw(&7u64.to_le_bytes()).unwrap();
    writer.finish().unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(bytes[8 + header..], [1, 2, 3, 0x00, 0x3c, 0x00, 0xc0, 4, 5, 7, 0, 0, 0, 0, 0, 0, 0]);

    let checkpoint = Checkpoint::from_bytes("raw", bytes.leak()).unwrap();
    let dtypes = ["bytes", "half", "none", "nibbles", "ids"].map(|name| checkpoint.info(name).unwrap().dtype);
    assert_eq!(dtypes, specs.map(|spec| spec.dtype));
    let mut half = [0.0; 2];
    checkpoint.read_f32("half", &mut half).unwrap();
    assert_eq!(half, [1.0, -2.0]);
}

#[test]
fn raw_bytes_and_values_must_agree_with_the_declaration() {
    let bytes =
        [TensorDeclaration::new("x", StoredDtype::U8, [4]), TensorDeclaration::new("y", Dtype::F32, [2])];
    let written = |fill: fn(&mut SafetensorsWriter<io::Sink>) -> Result<()>| {
        let mut writer = SafetensorsWriter::new(io::sink(), &bytes)?;
        fill(&mut writer)?;
        writer.finish().map(drop)
    };
    says(written(|_| Ok(())), "tensor `x` was declared with 4 bytes, but 0 were given");
    says(written(|file| file.write_raw(&[0; 3])), "tensor `x` was declared with 4 bytes, but 3 were given");
    says(written(|file| file.write_raw(&[0; 5])), "tensor `x` was declared with 4 bytes, but 5 were given");
    let values = written(|file| file.write_f32(&[0.0]));
    says(values, "tensor `x` is U8, but values are written as F32, F16 and BF16");
    let half_an_element = written(|file| {
        file.write_raw(&[0; 4])?;
        file.write_raw(&[0; 2])?;
        file.write_f32(&[0.0])
    });
    says(half_an_element, "tensor `y` was declared with 8 bytes, but 2 were given");
    let too_few = written(|file| {
        file.write_raw(&[0; 4])?;
        file.write_raw(&[0; 7])
    });
    says(too_few, "tensor `y` was declared with 8 bytes, but 7 were given");
    let after_the_end = written(|file| {
        file.write_raw(&[0; 4])?;
        file.write_f32(&[0.0; 2])?;
        file.write_raw(&[0])
    });
    says(after_the_end, "tensor `y` was declared with 8 bytes, but 9 were given");
}

#[test]
fn values_that_the_reader_would_refuse_are_not_written() {
    let nan = written(|writer| writer.write_f32(&[0.0, f32::NAN])).unwrap_err().to_string();
    assert_eq!(nan, "tensor `a` is NaN at element 1\n  in `safetensors stream` (F32)");
    let large = written(|writer| {
        writer.write_f32(&[0.0; 4])?;
        writer.write_f32(&[65520.0])
    });
    says(large, "tensor `b` is 65520 at element 0, which is infinite in F16");
}

#[test]
fn an_element_that_is_refused_is_counted_from_the_beginning_of_its_tensor() {
    let after_a_piece = written(|writer| {
        writer.write_f32(&[0.0; 2])?;
        writer.write_f32(&[0.0, f32::INFINITY])
    });
    let message = after_a_piece.unwrap_err().to_string();
    assert_eq!(message, "tensor `a` is inf at element 3\n  in `safetensors stream` (F32)");

    // More values than are converted at once.
    let specs = [TensorDeclaration::new("w", Dtype::BF16, [200_001])];
    let mut values = vec![1.0; 200_001];
    values[200_000] = 2.0;
    let mut writer = SafetensorsWriter::new(Vec::new(), &specs).unwrap();
    writer.write_f32(&values).unwrap();
    let bytes = writer.finish().unwrap();
    let mut read = vec![0.0; values.len()];
    Checkpoint::from_bytes("large", bytes.leak()).unwrap().read_f32("w", &mut read).unwrap();
    assert!(read == values);
    values[200_000] = -f32::INFINITY;
    let refused = SafetensorsWriter::new(io::sink(), &specs).unwrap().write_f32(&values);
    let message = refused.unwrap_err().to_string();
    assert_eq!(message, "tensor `w` is -inf at element 200000\n  in `safetensors stream` (BF16)");
}

#[test]
fn declarations_that_the_reader_would_refuse() {
    let declared = |specs: &[TensorDeclaration]| SafetensorsWriter::new(io::sink(), specs).map(drop);
    let spec = |name: &str, shape: &[usize]| TensorDeclaration::new(name, Dtype::F32, shape);
    let huge = declared(&[spec("w", &[usize::MAX, 2])]);
    says(
        huge,
        &format!("tensor `w` has shape {} x 2: more elements or bytes than can be counted", usize::MAX),
    );
    for (specs, fact) in [
        (vec![spec("w", &[1]), spec("w", &[1])], "the key `w` stands twice"),
        (vec![spec("", &[1])], "a tensor without a name"),
        (vec![spec("__metadata__", &[1])], "the key `__metadata__` stands twice"),
        (vec![spec("w", &[1; 9])], "more than 8 numbers in a list"),
        (vec![spec("v", &[1 << 58]); 17], "can be counted"),
    ] {
        let message = declared(&specs).unwrap_err().to_string();
        assert!(message.contains(fact), "{message}");
    }
}

fn write_model(writer: &mut DirWriter) -> Result<()> {
    writer.write("config.json", b"{}")?;
    writer.safetensors("model.safetensors", &specs(), |file| {
        file.write_f32(&[1.0; 4]).and_then(|()| file.write_f32(&[2.0]))
    })
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_directory_appears_when_it_is_finished() {
    let dir = tempdir().unwrap();
    let mut writer = DirWriter::create(&dir.path().join("model")).unwrap();
    write_model(&mut writer).unwrap();
    assert_eq!(entries(dir.path()), [format!(".model.tmp-{}", std::process::id())]);
    writer.finish().unwrap();
    assert_eq!(entries(dir.path()), ["model"]);
    assert_eq!(entries(&dir.path().join("model")), ["config.json", "model.safetensors"]);
    let mut value = [0.0];
    Checkpoint::open(&dir.path().join("model")).unwrap().read_f32("b", &mut value).unwrap();
    assert_eq!(value, [2.0]);
    assert_eq!(read_file(&dir.path().join("model/config.json"), 2).unwrap(), b"{}");
}

#[test]
fn an_unfinished_directory_leaves_nothing() {
    let dir = tempdir().unwrap();
    let mut writer = DirWriter::create(&dir.path().join("model")).unwrap();
    write_model(&mut writer).unwrap();
    drop(writer);
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn an_empty_destination_is_replaced() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    fs::create_dir(&model).unwrap();
    let mut writer = DirWriter::create(&model).unwrap();
    write_model(&mut writer).unwrap();
    writer.finish().unwrap();
    assert_eq!(entries(&model).len(), 2);
}

#[test]
fn an_occupied_destination_is_refused_at_the_beginning_and_at_the_end() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    let expect = "the directory to be written exists and is not empty\n  in `DIR/model`\n\n\
                  choose a new directory, or remove this one first";
    let writer = DirWriter::create(&model).unwrap();
    fs::create_dir(&model).unwrap();
    fs::write(model.join("mine"), "").unwrap();
    check(writer.finish(), dir.path(), expect);
    check(DirWriter::create(&model), dir.path(), expect);
    assert_eq!(entries(dir.path()), ["model"]);
    assert_eq!(entries(&model), ["mine"]);
    let expect = "a model directory is needed, but this is a file\n  in `DIR/model/mine`\n\n\
                  give the directory that holds `config.json` and the weights, or a GGUF file";
    check(DirWriter::create(&model.join("mine")), dir.path(), expect);
}

#[test]
fn two_writers_of_one_destination_do_not_meet() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    let (mut first, mut second) = (DirWriter::create(&model).unwrap(), DirWriter::create(&model).unwrap());
    write_model(&mut first).unwrap();
    second.write("config.json", b"{\"second\":true}").unwrap();
    first.finish().unwrap();
    assert!(second.finish().is_err());
    assert_eq!(entries(dir.path()), ["model"]);
    assert_eq!(fs::read(model.join("config.json")).unwrap(), b"{}");
}

#[test]
fn names_and_places_that_cannot_be_written() {
    let dir = tempdir().unwrap();
    let mut writer = DirWriter::create(&dir.path().join("model")).unwrap();
    for name in ["../x", "/x", "a/b", "", ".", "..", "a\\b"] {
        check(
            writer.write(name, b""),
            dir.path(),
            &format!("`{name}` is not a plain file name\n  in `DIR/model`"),
        );
    }
    writer.write("x", b"").unwrap();
    let expect = "cannot create the file: File exists (os error 17)\n  in `DIR/model/x`";
    check(writer.write("x", b""), dir.path(), expect);
    let error = DirWriter::create(&dir.path().join("no/model")).unwrap_err().to_string();
    assert!(error.starts_with("cannot create the directory: No such file or directory"), "{error}");
}

/// A writer that fails after a number of bytes.
#[derive(Debug)]
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = bytes.len().min(self.0);
        self.0 -= room;
        if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_wherever_it_fills() {
    let whole =
        written(|writer| writer.write_f32(&[1.0; 4]).and_then(|()| writer.write_f32(&[2.0]))).unwrap().len();
    for room in 0..=whole {
        let written = SafetensorsWriter::new(Full(room), &specs()).and_then(|mut writer| {
            writer.write_f32(&[1.0; 4])?;
            writer.write_f32(&[2.0])?;
            writer.finish()
        });
        assert_eq!(written.is_ok(), room == whole, "{room} of {whole}");
    }
}
