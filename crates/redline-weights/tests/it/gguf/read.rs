//! Reads of rows and ranges, limits of the format, and the errors of reading.

use std::fs;

use redline_weights::{Gguf, GgufType, WeightsError};

use super::blocks::random_bytes;
use super::made;
use crate::check;
use redline_testing::gguf::Writer;

#[test]
fn any_range_is_a_part_of_the_whole() {
    let gguf = Gguf::open(&made("single")).unwrap();
    let mut buffer = Vec::new();
    for name in gguf.names() {
        let tensor = gguf.tensor(name).unwrap();
        let mut whole = vec![0.0; tensor.elements()];
        gguf.read_f32(name, &mut whole).unwrap();
        let block = tensor.ggml_type.block_values();
        let places = [0, 1, 5, 31, 32, 33, 64, 100, 191, 192, 255, 256, 257, 500, 511, 512, 1023, 1024];
        let places: Vec<_> = places.into_iter().filter(|&place| place <= whole.len()).collect();
        for &first in &places {
            for &end in places.iter().filter(|&&end| end >= first) {
                let mut range = vec![0.0; end - first];
                gguf.read_f32_range_with(name, first, &mut range, &mut buffer).unwrap();
                assert_eq!(range, whole[first..end], "{name} {first}..{end}, blocks of {block}");
            }
        }
    }
}

/// A tensor of several reads.
#[test]
fn long_tensors_are_read_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = random_bytes(5, 70_000 * 34);
    data.chunks_exact_mut(34).for_each(|block| block[..2].copy_from_slice(&[0x66, 0x2e]));
    let file = Writer::new().tensor("w", &[70, 32_000], 8, &data).finish();
    fs::write(dir.path().join("a.gguf"), file).unwrap();
    let gguf = Gguf::open(dir.path()).unwrap();
    let mut expected = vec![0.0; 70 * 32_000];
    assert!(GgufType::Q8_0.decode(&data, &mut expected));
    let mut whole = vec![0.0; 70 * 32_000];
    gguf.read_f32("w", &mut whole).unwrap();
    assert!(whole == expected);
    gguf.read_f32_range("w", 17, &mut whole[17..2_000_011]).unwrap();
    assert!(whole == expected);
}

#[test]
fn rows_are_read_as_stored() {
    let gguf = Gguf::open(&made("split")).unwrap();
    for name in gguf.names() {
        let tensor = gguf.tensor(name).unwrap();
        let file = fs::read(gguf.file_of(name).unwrap()).unwrap();
        let stored = &file[tensor.offset() as usize..][..tensor.bytes() as usize];
        let row = tensor.row_bytes() as usize;
        assert_eq!(tensor.rows() * row, stored.len());
        for first in 0..=tensor.rows() {
            for count in 0..=tensor.rows() - first {
                let mut rows = vec![0; count * row];
                gguf.read_blocks(name, first, count, &mut rows).unwrap();
                assert_eq!(rows, stored[first * row..(first + count) * row], "{name}");
            }
        }
    }
}

#[test]
fn shapes_are_row_major() {
    let gguf = Gguf::open(&made("single")).unwrap();
    let tensor = gguf.tensor("blk.0.weight").unwrap();
    assert_eq!(tensor.shape, [3, 2, 32]);
    assert_eq!((tensor.columns(), tensor.rows(), tensor.elements()), (32, 6, 192));
    assert_eq!((tensor.row_bytes(), tensor.bytes()), (128, 768));
    let tensor = gguf.tensor("blk.14.weight").unwrap();
    assert_eq!((tensor.columns(), tensor.rows(), tensor.row_bytes()), (512, 2, 420));
}

fn embedded(writer: &Writer) -> Gguf {
    Gguf::from_bytes("embedded", writer.finish().leak()).unwrap()
}

#[test]
fn scalars_and_empty_tensors() {
    let one = 1f32.to_le_bytes();
    let writer = Writer::new().tensor("scalar", &[], 0, &one).tensor("none", &[0], 0, &[]);
    let gguf = embedded(&writer.tensor("no rows", &[0, 32], 8, &[]).tensor("no columns", &[3, 0], 8, &[]));
    let mut value = [0.0];
    gguf.read_f32("scalar", &mut value).unwrap();
    assert_eq!(value, [1.0]);
    for (name, rows, columns) in [("scalar", 1, 1), ("none", 0, 0), ("no rows", 0, 32), ("no columns", 0, 0)]
    {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!((tensor.rows(), tensor.columns()), (rows, columns), "{name}");
        assert_eq!(tensor.elements(), rows * columns);
        gguf.read_f32(name, &mut value[..rows]).unwrap();
        gguf.read_blocks(name, 0, rows, &mut vec![0; rows * 4]).unwrap();
    }
}

/// The bytes of a row can be counted even if there is none.
#[test]
fn a_row_of_an_empty_tensor_is_not_too_long() {
    let opened = |columns: u64| {
        let file = Writer::new().tensor("w", &[0, columns], 0, &[]).finish();
        Gguf::from_bytes("embedded", file.leak())
    };
    let gguf = opened(1 << 61).unwrap();
    let tensor = gguf.tensor("w").unwrap();
    assert_eq!((tensor.rows(), tensor.row_bytes(), tensor.bytes()), (0, 1 << 63, 0));
    let message = opened(1 << 62).err().unwrap().to_string();
    let fact = "tensor `w` has shape 0 x 4611686018427387904: more elements or bytes than can be counted";
    assert_eq!(message, format!("{fact}\n  in `embedded`"));
}

#[test]
fn what_the_format_allows() {
    let [one, two] = [1f32, 2f32].map(f32::to_le_bytes);
    let pair = |writer: Writer| writer.tensor("a", &[1], 0, &one).tensor("b", &[1], 0, &two);
    let read = |file: Vec<u8>| {
        let gguf = Gguf::from_bytes("embedded", file.leak()).unwrap();
        let mut values = [0.0; 2];
        gguf.read_f32("a", &mut values[..1]).unwrap();
        gguf.read_f32("b", &mut values[1..]).unwrap();
        assert_eq!(values, [1.0, 2.0]);
    };
    // Version 2.
    read(pair(Writer::new().version(2)).finish());
    // Alignments of any integer type.
    read(pair(Writer::new().u32("general.alignment", 1)).finish_with(1));
    read(pair(Writer::new().number("general.alignment", 11, &16i64.to_le_bytes())).finish_with(16));
    // Bytes after the last tensor, and between tensors, which may be in any order.
    read([pair(Writer::new()).finish(), vec![7; 100]].concat());
    let tensors = Writer::new().tensor_at("b", &[1], 0, 64).tensor_at("a", &[1], 0, 0).finish();
    read([&tensors[..], &one, &[7; 60], &two].concat());
    // An empty tensor anywhere.
    read(pair(Writer::new()).tensor_at("none", &[0], 0, 0).finish());
    // A file of metadata only, without the rest of its last 32 bytes.
    let vocabulary = Writer::new().strings("tokenizer.ggml.tokens", &["a", "b"]).finish();
    let gguf = Gguf::from_bytes("embedded", vocabulary.leak()).unwrap();
    assert_eq!(gguf.metadata().strings("tokenizer.ggml.tokens").unwrap(), ["a", "b"]);
}

#[test]
fn types_that_are_not_read_are_listed() {
    let mut writer = Writer::new();
    for ggml_type in GgufType::all() {
        let (values, bytes) = (ggml_type.block_values() as u64, ggml_type.block_bytes());
        writer = writer.tensor(ggml_type.name(), &[2, values], ggml_type.number(), &vec![0; 2 * bytes]);
    }
    let gguf = embedded(&writer);
    for ggml_type in GgufType::all() {
        let tensor = gguf.tensor(ggml_type.name()).unwrap();
        assert_eq!((tensor.ggml_type, tensor.rows()), (ggml_type, 2));
        assert_eq!(tensor.bytes(), 2 * ggml_type.block_bytes() as u64);
        let mut values = vec![7.0; tensor.elements()];
        let read = gguf.read_f32(ggml_type.name(), &mut values);
        let rows = gguf.read_blocks(ggml_type.name(), 0, 1, &mut vec![0; ggml_type.block_bytes()]);
        if ggml_type.is_read() {
            rows.unwrap();
            read.unwrap();
            assert!(values.iter().all(|&value| value == 0.0));
            continue;
        }
        let fact = format!("tensor `{ggml_type}` is {ggml_type}, which is not read\n  in `embedded`");
        assert_eq!(read.unwrap_err().to_string(), fact);
        assert_eq!(rows.unwrap_err().to_string(), fact);
        let short = gguf.read_f32(ggml_type.name(), &mut []);
        assert_eq!(short.unwrap_err().to_string(), fact);
    }
}

#[test]
fn errors_of_reading() {
    let gguf = Gguf::open(&made("single")).unwrap();
    let dir = made("single");
    let expect = |result, fact: &str| check(result, &dir, &format!("{fact}\n  in `DIR/model.gguf`"));
    let name = "blk.8.weight";
    expect(
        gguf.read_f32(name, &mut [0.0; 3]),
        "tensor `blk.8.weight` has 192 elements, but the buffer for it has 3",
    );
    expect(
        gguf.read_f32_range(name, 190, &mut [0.0; 3]),
        "tensor `blk.8.weight` has 192 elements, but 3 from 190 on are to be read",
    );
    expect(
        gguf.read_f32_range(name, usize::MAX, &mut [0.0; 3]),
        "tensor `blk.8.weight` has 192 elements, but 3 from 18446744073709551615 on are to be read",
    );
    expect(
        gguf.read_blocks(name, 5, 2, &mut [0; 68]),
        "tensor `blk.8.weight` has 6 rows, but 2 from 5 on are to be read",
    );
    expect(
        gguf.read_blocks(name, 1, usize::MAX, &mut [0; 68]),
        "tensor `blk.8.weight` has 6 rows, but 18446744073709551615 from 1 on are to be read",
    );
    expect(
        gguf.read_blocks(name, 1, 2, &mut [0; 67]),
        "tensor `blk.8.weight` has 68 bytes, but the buffer for it has 67",
    );
    let message = gguf.read_f32("absent", &mut []).unwrap_err().to_string();
    assert_eq!(message, format!("tensor `absent` is missing\n  in `{}`", dir.display()));
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    let scale = |bits: u16| [&bits.to_le_bytes()[..], &[1; 32]].concat();
    let data = [scale(0x3c00), scale(0x3c00), scale(0xfc00), scale(0x7e00)].concat();
    let gguf = embedded(&Writer::new().tensor("w", &[2, 64], 8, &data));
    let mut values = [0.0; 128];
    let read = |first: usize, values: &mut [f32]| {
        gguf.read_f32_range("w", first, values).map_err(|error| error.to_string())
    };
    read(0, &mut values[..64]).unwrap();
    let infinite =
        |index: usize| Err(format!("tensor `w` is -inf at element {index} (Q8_0)\n  in `embedded`"));
    assert_eq!(read(0, &mut values), infinite(64));
    assert_eq!(read(33, &mut values[..40]), infinite(64));
    assert_eq!(read(70, &mut values[..3]), infinite(70));
    assert_eq!(
        read(96, &mut values[..32]),
        Err("tensor `w` is NaN at element 96 (Q8_0)\n  in `embedded`".to_owned())
    );
    // What is stored is read as it is.
    let mut blocks = [0; 136];
    gguf.read_blocks("w", 0, 2, &mut blocks).unwrap();
    assert_eq!(blocks[..], data[..]);
}

#[test]
fn a_file_that_shrinks_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let bytes = Writer::new().tensor("w", &[64], 0, &[0; 256]).finish();
    fs::write(&path, &bytes).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let end = bytes.len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(end as u64 - 4).unwrap();
    let fact = format!(
        "tensor `w` ends at byte {end}, but the file now has {}\n  in `DIR/a.gguf`\n\n\
         the file changed while it was being read",
        end - 4
    );
    check(gguf.read_f32("w", &mut [0.0; 64]), dir.path(), &fact);
    check(gguf.read_blocks("w", 0, 1, &mut [0; 256]), dir.path(), &fact);
    gguf.read_f32_range("w", 0, &mut [0.0; 63]).unwrap();
}

/// A file that is long enough for any count, most of it a hole on the disk.
#[test]
fn a_long_header_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let limit = 256u64 << 20;
    for (writer, element) in [
        (Writer::new().numbers::<1>("n", 0, &[]), 1),
        (Writer::new().strings("n", &[]), 8),
        (Writer::new().string("n", ""), 1),
    ] {
        let mut bytes = writer.finish();
        let end = bytes.len();
        // The fewest elements that exceed the limit.
        let count = (limit - end as u64) / element + 1;
        bytes[end - 8..].copy_from_slice(&count.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
        let error = Gguf::open(&path).map(drop).unwrap_err();
        let fact = format!(
            "the header has more than {limit} bytes, the most that are read, with the value of `n`\n"
        );
        assert!(matches!(error, WeightsError::Gguf { .. }));
        assert!(error.to_string().starts_with(&fact), "{error}");
    }
}
