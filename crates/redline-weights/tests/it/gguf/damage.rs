//! Damage to valid files never causes a panic, and a file that still opens is consistent.

use std::fs;

use proptest::prelude::*;
use redline_weights::{Gguf, GgufFault, GgufValue, WeightsError};

use super::{GAMMA, made, mix};
use redline_testing::gguf::{Field, Writer};

/// A file with a value of each kind, and tensors of three types.
fn small() -> Writer {
    let scale = 0x3c00u16.to_le_bytes();
    let writer = Writer::new().u32("general.alignment", 32).string("s", "ab").number("b", 7, &[1]);
    let writer =
        writer.numbers("n", 1, &[[1], [2], [3]]).numbers("a", 7, &[[0], [1]]).strings("t", &["x", "", "yz"]);
    let writer = writer.u16("split.count", 1).tensor("e", &[2, 1], 0, &[0; 8]);
    writer.tensor("q", &[32], 8, &[&scale[..], &[5; 32]].concat()).tensor("i", &[3], 26, &[0; 12])
}

/// Every tensor lies in the file, apart from the others, and can be read or is refused with a reason. Metadata takes no more
/// memory than the file.
fn consistent(gguf: &Gguf, length: usize) {
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for name in gguf.names() {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!(tensor.elements(), tensor.shape.iter().product::<usize>());
        assert_eq!(tensor.bytes(), tensor.rows() as u64 * tensor.row_bytes());
        let end = tensor.offset() + tensor.bytes();
        assert!(end <= length as u64, "{name}");
        if tensor.bytes() > 0 {
            ends.push((tensor.offset(), end));
        }
        match gguf.read_f32(name, &mut vec![0.0; tensor.elements()]) {
            Ok(()) => assert!(tensor.ggml_type.is_read()),
            Err(WeightsError::Gguf { fault: GgufFault::Unread { .. }, .. }) => {
                assert!(!tensor.ggml_type.is_read());
            }
            Err(WeightsError::Gguf { fault: GgufFault::NonFinite { .. }, .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let mut blocks = vec![0; tensor.bytes() as usize];
        let read = gguf.read_blocks(name, 0, tensor.rows(), &mut blocks);
        assert_eq!(read.is_ok(), tensor.ggml_type.is_read());
    }
    ends.sort_unstable();
    assert!(ends.is_sorted_by(|before, after| before.1 <= after.0));
    for key in gguf.metadata().keys() {
        match gguf.metadata().get(key).unwrap() {
            GgufValue::String(text) => assert!(text.len() <= length),
            GgufValue::Array(array) => assert!(array.len() <= length),
            _ => {}
        }
    }
}

fn open(bytes: Vec<u8>) {
    let length = bytes.len();
    match Gguf::from_bytes("damaged", bytes.leak()) {
        Ok(gguf) => consistent(&gguf, length),
        Err(error) => assert!(error.to_string().ends_with("\n  in `damaged`"), "{error}"),
    }
}

#[test]
fn every_changed_byte() {
    let whole = small().finish();
    consistent(&Gguf::from_bytes("whole", whole.clone().leak()).unwrap(), whole.len());
    for place in 0..whole.len() {
        for byte in 0..=u8::MAX {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            open(bytes);
        }
    }
}

/// Each field of eight bytes, or any eight bytes, with values around the limits of arithmetic.
#[test]
fn every_field_with_extreme_values() {
    let whole = small().finish();
    let extremes =
        (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, u64::MAX - (1 << bit), u64::MAX << bit]);
    for extreme in extremes {
        for place in 0..=whole.len() - 8 {
            let mut bytes = whole.clone();
            bytes[place..place + 8].copy_from_slice(&extreme.to_le_bytes());
            open(bytes);
        }
    }
}

#[test]
fn a_cut_in_every_field_is_named() {
    let writer = small();
    let whole = writer.finish();
    let mut fields = writer.fields();
    let counts = [
        Field::Count("the list of tensors".to_owned(), writer.tensors(), 25, 24),
        Field::Count("the list of keys".to_owned(), writer.keys(), 14, 24),
    ];
    fields.splice(4..4, &counts);
    let mut refused = 0;
    for cut in 0..whole.len() as u64 {
        let missing = fields.iter().find_map(|field| match field {
            Field::Bytes(what, at, needs) => (at + needs > cut).then(|| {
                format!("{what} takes {needs} bytes from byte {at} on, but the file has {cut}")
            }),
            Field::Count(what, count, least, at) => (at + count * least > cut).then(|| {
                format!("{what} has {count} entries from byte {at} on, which the {cut} bytes of the file cannot hold")
            }),
        });
        let opened = Gguf::from_bytes("cut", whole[..cut as usize].to_vec().leak());
        let message = opened.err().expect("a file that was cut").to_string();
        match missing {
            Some(fact) => {
                assert_eq!(message, format!("{fact}\n  in `cut`"));
                refused += 1;
            }
            None => assert!(message.contains(" data bytes\n"), "{message}"),
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn every_cut_of_a_file_of_the_reference_is_refused() {
    let whole = fs::read(made("single/model.gguf")).unwrap();
    let whole: &'static [u8] = whole.leak();
    // The last tensor has 20 bytes and 12 of padding.
    assert!(Gguf::from_bytes("whole", &whole[..whole.len() - 12]).is_ok());
    for cut in 0..whole.len() - 12 {
        assert!(Gguf::from_bytes("cut", &whole[..cut]).is_err(), "{cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_damaged_file(seed in any::<u64>(), count in 1u64..6) {
        let mut bytes = fs::read(made("single/model.gguf")).unwrap();
        for nth in 0..count {
            let word = mix(seed.wrapping_add((nth + 1).wrapping_mul(GAMMA)));
            // Half of the changes in the header.
            let end = if word >> 63 == 0 { 2200 } else { bytes.len() };
            bytes[(word >> 8) as usize % end] = word as u8;
        }
        open(bytes);
    }
}
