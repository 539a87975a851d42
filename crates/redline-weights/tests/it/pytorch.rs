//! `pytorch_model.bin`: files written by PyTorch give the same tensors as safetensors; damaged files are rejected.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use redline_weights::{Checkpoint, StoredDtype, WeightsError};
use tempfile::tempdir;

const BIN: &str = "pytorch_model.bin";

/// A file or folder that `torch/make.py` made.
fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/torch").join(name)
}

fn expected() -> Checkpoint {
    let bytes = fs::read(made("expected.safetensors")).unwrap();
    Checkpoint::from_bytes("expected", bytes.leak()).unwrap()
}

fn values(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let mut values = vec![f32::NAN; checkpoint.info(name).unwrap().elements()];
    checkpoint.read_f32(name, &mut values).unwrap();
    values
}

#[test]
fn pytorchs_own_files_hold_what_the_safetensors_hold() {
    let expected = expected();
    for folder in ["single", "sharded", "wide"] {
        let checkpoint = Checkpoint::open(&made(folder)).unwrap();
        assert!(checkpoint.names().eq(expected.names()), "{folder}");
        for name in expected.names() {
            let (info, wanted) = (checkpoint.info(name).unwrap(), expected.info(name).unwrap());
            assert_eq!((info.dtype, &info.shape), (wanted.dtype, &wanted.shape), "{folder}: {name}");
            assert_eq!((info.elements(), info.bytes()), (wanted.elements(), wanted.bytes()));
            if info.dtype.float().is_some() {
                assert_eq!(values(&checkpoint, name), values(&expected, name), "{folder}: {name}");
            }
        }
        assert_eq!(checkpoint.digest().unwrap(), expected.digest().unwrap(), "{folder}");
        let mut range = [0.0; 3];
        checkpoint.read_f32_range("slice", 1, &mut range).unwrap();
        assert_eq!(range, values(&expected, "slice")[1..]);
    }
    let single = Checkpoint::open(&made("single")).unwrap();
    assert_eq!(values(&single, "tied.weight"), values(&single, "layer.weight"));
    assert_eq!(values(&single, "slice"), values(&single, "layer.weight")[5..9]);
    assert_eq!(single.info("positions").unwrap().dtype, StoredDtype::I64);
    assert_eq!(single.file_of("half").unwrap(), made("single").join(BIN));
}

#[test]
fn safetensors_win() {
    let dir = tempdir().unwrap();
    fs::copy(made("single").join(BIN), dir.path().join(BIN)).unwrap();
    assert!(Checkpoint::open(dir.path()).is_ok());
    fs::write(dir.path().join("model.safetensors"), crate::file("{}", &[])).unwrap();
    assert_eq!(Checkpoint::open(dir.path()).unwrap().names().count(), 0);
}

#[test]
fn a_refusal_says_what_to_do() {
    let attack = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks").join(name);
    for (name, expect) in [
        ("pytorch_legacy", "load it with transformers and `save_pretrained` it: that writes safetensors"),
        (
            "pytorch_not_zip",
            "the file is incomplete, or a git LFS pointer: download it again, or take the safetensors files",
        ),
        (
            "pytorch_global_os_system",
            "a pickle can run any program, so only what a state dict needs is read; take the safetensors files",
        ),
        (
            "pytorch_state_nested",
            "perhaps a training checkpoint: save its `state_dict()` alone, or take the safetensors files",
        ),
        (
            "pytorch_tensor_transposed",
            "call `contiguous()` on it before saving, or take the safetensors files",
        ),
    ] {
        let error = Checkpoint::open(&attack(name)).err().unwrap();
        assert_eq!(error.hint().map(|hint| hint.to_string()).as_deref(), Some(expect), "{name}");
    }
}

/// An archive in the form of `pytorch_model.bin` with this pickle.
fn with_pickle(pickle: &[u8]) -> Vec<u8> {
    let length = pickle.len() as u32;
    with_directory(pickle, [length, length, 0], &[])
}

/// The same. The archive's directory states for its entry this length, length as packed and offset, and has these extra fields.
fn with_directory(pickle: &[u8], [length, packed, offset]: [u32; 3], extra: &[u8]) -> Vec<u8> {
    let name = b"m/data.pkl";
    let fields = |packed: u32, length: u32, extra: &[u8]| {
        let mut fields = [0; 22];
        fields[10..14].copy_from_slice(&packed.to_le_bytes());
        fields[14..18].copy_from_slice(&length.to_le_bytes());
        fields[18..20].copy_from_slice(&(name.len() as u16).to_le_bytes());
        fields[20..22].copy_from_slice(&(extra.len() as u16).to_le_bytes());
        fields
    };
    let own = fields(pickle.len() as u32, pickle.len() as u32, &[]);
    let local = [b"PK\x03\x04\x14\0\0\0", &own[..], &name[..], pickle].concat();
    let (listed, offset) = (fields(packed, length, extra), offset.to_le_bytes());
    let central = [b"PK\x01\x02\x14\0\x14\0\0\0", &listed[..], &[0; 10], &offset, &name[..], extra].concat();
    let at = (local.len() as u32).to_le_bytes();
    let size = (central.len() as u32).to_le_bytes();
    [&local, &central, &b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..], &size, &at, &[0; 2]].concat()
}

fn opened(bytes: &[u8]) -> redline_weights::Result<Checkpoint> {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join(BIN), bytes).unwrap();
    Checkpoint::open(dir.path())
}

#[test]
fn of_several_layouts_the_first_is_read() {
    let dir = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let named = |name: &str| {
        let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[],"data_offsets":[0,4]}}}}"#);
        crate::file(&header, &[0; 4])
    };
    let read = || -> Vec<String> {
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        checkpoint.names().map(str::to_owned).collect()
    };
    for entry in fs::read_dir(made("sharded")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    assert_eq!(read(), expected().names().collect::<Vec<_>>());
    write(BIN, &with_pickle(b"\x80\x02}."));
    assert_eq!(read(), [""; 0]);
    write("one.safetensors", &named("shard"));
    write("model.safetensors.index.json", br#"{"weight_map":{"shard":"one.safetensors"}}"#);
    assert_eq!(read(), ["shard"]);
    write("model.safetensors", &named("single"));
    assert_eq!(read(), ["single"]);
}

/// The field of 64-bit sizes holds only those that do not fit in their places, and other fields may precede it.
#[test]
fn large_sizes_are_found_among_the_extra_fields() {
    let pickle = b"\x80\x02}.";
    let (length, large) = (pickle.len() as u32, u32::MAX);
    let wide = |sizes: &[u64]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        [&b"\x01\0"[..], &(sizes.len() as u16).to_le_bytes(), &sizes].concat()
    };
    // A time stamp.
    let other = b"UT\x05\0\x01\x02\x03\x04\x05".to_vec();
    let long = u64::from(length);
    for (sizes, extra) in [
        ([length, length, large], wide(&[0])),
        ([large, large, 0], wide(&[long, long])),
        ([large, length, large], wide(&[long, 0])),
        ([length, length, large], [other.clone(), wide(&[0])].concat()),
        ([large, large, large], [other.clone(), wide(&[long, long, 0]), other.clone()].concat()),
    ] {
        let checkpoint = opened(&with_directory(pickle, sizes, &extra));
        assert_eq!(checkpoint.unwrap().names().count(), 0, "{sizes:?} {extra:?}");
    }
    for extra in [other, wide(&[])] {
        let refused = opened(&with_directory(pickle, [length, length, large], &extra)).err().unwrap();
        let expect = "entry 0 of the archive's directory is cut short or has no valid name";
        assert!(refused.to_string().starts_with(expect), "{refused}");
    }
}

#[test]
fn pickles_that_would_grow_are_bounded() {
    assert_eq!(opened(&with_pickle(b"\x80\x02}.")).unwrap().names().count(), 0);
    let many = 1 << 20;
    let remember = |key: u32| [&b"r"[..], &key.to_le_bytes()].concat();
    let remembered: Vec<u8> = (0..=many as u32).flat_map(remember).collect();
    for (pickle, fact) in [
        ([b"N".to_vec(), remembered].concat(), "more than 1048576 values remembered at byte 5242883"),
        (b"N".repeat(many + 1), "the pickle has more than 1048576 values at byte 1048578"),
        ([b"Nq\0".to_vec(), b"h\0".repeat(many)].concat(), "more than 1048576 values on the stack"),
        (b"}".repeat(16 << 20), "the archive's pickle is 16777219, but at most 16777216 is read"),
    ] {
        let pickle = [&b"\x80\x02"[..], &pickle, b"."].concat();
        let message = opened(&with_pickle(&pickle)).err().unwrap().to_string();
        assert!(message.contains(fact), "{message}");
    }
}

#[test]
fn every_cut_file_is_refused() {
    let whole = fs::read(made("single").join(BIN)).unwrap();
    for cut in (0..whole.len()).step_by(7) {
        assert!(opened(&whole[..cut]).is_err(), "{cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_damaged_file(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        wide in any::<bool>(),
    ) {
        let mut bytes = fs::read(made(if wide { "wide" } else { "single" }).join(BIN)).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        match opened(&bytes) {
            Ok(checkpoint) => for name in checkpoint.names() {
                let info = checkpoint.info(name).unwrap();
                prop_assert!(info.bytes() <= bytes.len() as u64);
                match checkpoint.read_f32(name, &mut vec![0.0; info.elements()]) {
                    Ok(()) | Err(WeightsError::Dtype { .. } | WeightsError::NonFinite { .. }) => {}
                    Err(error) => prop_assert!(false, "{error}"),
                }
            },
            Err(error) => prop_assert!(error.to_string().contains("\n  in `"), "{error}"),
        }
    }
}

#[test]
fn an_entry_whose_data_have_another_meaning_is_refused() {
    let whole = with_pickle(b"\x80\x02}.");
    opened(&whole).unwrap();
    // The directory follows a header, the name and the pickle; in it, the flags follow a signature and two versions.
    let flags = 30 + 10 + 4 + 8;
    for bit in 0..16 {
        let mut bytes = whole.clone();
        bytes[flags + bit / 8] |= 1 << (bit % 8);
        let refused = opened(&bytes).err().map(|error| error.to_string());
        // Encrypted, patched, strongly encrypted, masked.
        if [0, 5, 6, 13].contains(&bit) {
            let message = refused.unwrap_or_default();
            assert!(message.starts_with("entry `m/data.pkl` is encrypted, "), "bit {bit}: {message}");
        } else {
            assert_eq!(refused, None, "bit {bit}");
        }
    }
}

#[test]
fn every_field_of_an_archive_that_must_be_zero_is() {
    let whole = with_pickle(b"\x80\x02}.");
    let end = whole.len() - 22;
    let disk = "the archive's number of its disk is 1, but 0 is needed";
    for (at, fact) in [
        (end + 4, disk),
        (end + 6, disk),
        // The length of a comment.
        (end + 20, "the file has 122 bytes and does not end like a zip archive"),
        // The compression in the entry's own header.
        (8, "entry `m/data.pkl` differs between the archive's directory and its own header"),
    ] {
        let mut bytes = whole.clone();
        assert_eq!(bytes[at], 0);
        bytes[at] = 1;
        let message = opened(&bytes).err().expect(fact).to_string();
        assert!(message.starts_with(&format!("{fact}\n")), "{message}");
    }
}

/// The short record at the end of an archive either says that a figure does not fit, or repeats that of the long record.
#[test]
fn the_two_records_at_the_end_of_an_archive_agree() {
    let whole = fs::read(made("wide").join(BIN)).unwrap();
    let record = whole.len() - 22;
    // The long record precedes its 20 bytes long locator.
    let long = record - 20 - 56;
    for (short, wide, size, name) in
        [(10, 32, 2, "number of entries"), (12, 40, 4, "directory length"), (16, 48, 4, "directory offset")]
    {
        let mut bytes = whole.clone();
        let figure = bytes[long + wide..long + wide + size].to_vec();
        bytes[record + short..record + short + size].copy_from_slice(&figure);
        opened(&bytes).unwrap();
        bytes[record + short] ^= 1;
        let message = opened(&bytes).err().expect(name).to_string();
        assert!(message.starts_with(&format!("the archive's {name} is ")), "{message}");
    }
}
