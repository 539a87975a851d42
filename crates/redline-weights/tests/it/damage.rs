//! Random damage to valid files never causes a panic, and a file that still opens is consistent.

use std::fmt::Debug;

use proptest::prelude::*;
use redline_weights::{Checkpoint, ConfigFile, Result};
use serde_json::{Map, Value};

const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"BF16","shape":[],"data_offsets":[32,34]},"d":{"dtype":"I64","shape":[1],"data_offsets":[34,42]}}"#;
const INDEX: &str = r#"{"metadata":{"total_size":42},"weight_map":{"a":"m.safetensors","b":"m.safetensors","c":"m.safetensors","d":"m.safetensors"}}"#;
const CONFIG: &str =
    r#"{"hidden_size":64,"eps":1e-5,"scaling":{"type":"x","factor":8.0},"ids":[1,2],"tie":true,"none":null}"#;

/// One change to a file; positions are taken modulo its length.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    /// Copies a range of the file to another position.
    Copy(usize, usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    // JSON's own characters, so that damage is not always rejected at the first character.
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(br#"{}[]:,"0123456789-.eFBI\u "#.to_vec())];
    let place = || any::<usize>();
    let change = prop_oneof![
        4 => (place(), byte()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (place(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        1 => (place(), 1usize..20).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => (place(), place(), 1usize..80).prop_map(|(from, to, length)| Change::Copy(from, to, length)),
    ];
    prop::collection::vec(change, 1..4)
}

fn damaged(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let end = bytes.len() + 1;
        match *change {
            Change::Set(at, byte) if end > 1 => bytes[at % (end - 1)] = byte,
            Change::Insert(at, byte) | Change::Set(at, byte) => bytes.insert(at % end, byte),
            Change::Remove(at, length) => drop(bytes.drain(at % end..(at % end + length).min(end - 1))),
            Change::Copy(from, to, length) => {
                let stretch: Vec<u8> = bytes.iter().copied().skip(from % end).take(length).collect();
                bytes.splice(to % end..to % end, stretch);
            }
        }
    }
    bytes
}

/// The file with the header length corrected after the damage, so that parsing reaches the JSON.
fn with_damaged_header(changes: &[Change]) -> Vec<u8> {
    let header = damaged(HEADER.into(), changes);
    [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 42]].concat()
}

fn whole() -> Vec<u8> {
    crate::file(HEADER, &[0; 42])
}

/// Every tensor has as many bytes as its shape and type require, and together the tensors cover all data.
fn consistent(checkpoint: &Checkpoint, bytes: &[u8]) {
    let mut data = 0;
    for name in checkpoint.names() {
        let info = checkpoint.info(name).unwrap();
        assert_eq!(info.elements(), info.shape.iter().product::<usize>());
        assert_eq!(info.bytes() * 8, (info.elements() * info.dtype.bits()) as u64);
        data += info.bytes();
        let mut values = vec![f32::NAN; info.elements()];
        if let Err(error) = checkpoint.read_f32(name, &mut values) {
            let message = error.to_string();
            assert!(message.starts_with("tensor `") && message.contains("\n  in `damaged`"), "{message}");
        } else {
            assert!(values.iter().all(|value| value.is_finite()));
        }
    }
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(8 + header + data, bytes.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_damaged_file(changes in changes(), only_header in any::<bool>()) {
        let bytes = if only_header { with_damaged_header(&changes) } else { damaged(whole(), &changes) };
        let bytes: &'static [u8] = bytes.leak();
        match Checkpoint::from_bytes("damaged", bytes) {
            Ok(checkpoint) => consistent(&checkpoint, bytes),
            Err(error) => prop_assert!(error.to_string().ends_with("\n  in `damaged`")),
        }
    }

    #[test]
    fn a_damaged_config(changes in changes()) {
        let bytes = damaged(CONFIG.into(), &changes);
        let plain = serde_json::from_slice::<Value>(&bytes);
        match (ConfigFile::from_bytes("damaged", &bytes), plain) {
            (Ok(config), Ok(Value::Object(values))) => same_values(&config, &values),
            (Ok(_), plain) => prop_assert!(false, "taken, but it is {:?}", plain),
            (Err(error), plain) => {
                let message = error.to_string();
                prop_assert!(message.starts_with("not a JSON object: ") && message.ends_with("\n  in `damaged`"));
                // A valid object is rejected for one reason only.
                prop_assert!(!plain.is_ok_and(|v| v.is_object()) || message.contains("stands twice"), "{message}");
            }
        }
    }
}

/// Every getter returns the stored value, or an error that names the key if the value has another type.
fn same_values(config: &ConfigFile, values: &Map<String, Value>) {
    assert!(config.keys().eq(values.keys()));
    for (key, value) in values {
        let absent = value.is_null();
        same(config.opt_usize(key), value.as_u64().map(|n| n as usize), absent);
        same(config.opt_f64(key), value.as_f64(), absent);
        let narrow = value.as_f64().map(|wide| wide as f32).filter(|narrow| narrow.is_finite());
        same(config.opt_f32(key), narrow, absent);
        same(config.opt_bool(key), value.as_bool(), absent);
        same(config.opt_str(key), value.as_str(), absent);
        let list = || value.as_array().map(Vec::as_slice);
        let strings = list().and_then(|l| l.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        same(config.strings(key).map(|list| Some(list).filter(|_| !absent)), strings, absent);
        let one = list().unwrap_or(std::slice::from_ref(value));
        let ids = one.iter().map(|v| u32::try_from(v.as_u64()?).ok()).collect();
        same(config.ids(key).map(|list| Some(list).filter(|_| !absent)), ids, absent);
        // A required value is rejected if it is null.
        assert_eq!(config.usize(key).ok(), value.as_u64().map(|n| n as usize));
        match (config.object(key), value.as_object()) {
            (Ok(Some(inner)), Some(values)) => {
                assert!(inner.refuse("x", "y").to_string().contains(".x` is"));
                same_values(&inner, values);
            }
            (found, values) => assert!(values.is_none() && found.is_ok_and(|o| o.is_none()) == absent),
        }
    }
}

/// A getter returns the stored value; a value of another type is an error that names the key.
fn same<T: PartialEq + Debug>(found: Result<Option<T>>, there: Option<T>, absent: bool) {
    match found {
        Ok(found) => assert!(found == there && found.is_none() == absent, "{found:?}, not {there:?}"),
        Err(error) => {
            let message = error.to_string();
            assert!(!absent && there.is_none(), "{message}");
            assert!(
                message.contains("` is ") && message.ends_with(" is needed\n  in `damaged`"),
                "{message}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_index(changes in changes()) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("m.safetensors"), whole()).unwrap();
        let index = damaged(INDEX.into(), &changes);
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        match Checkpoint::open(dir.path()) {
            Ok(checkpoint) => prop_assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b", "c", "d"]),
            Err(error) => prop_assert!(error.to_string().contains("\n  in `")),
        }
    }
}

#[test]
fn every_cut_file_is_refused() {
    let bytes = whole();
    for cut in 0..bytes.len() {
        assert!(Checkpoint::from_bytes("cut", bytes[..cut].to_vec().leak()).is_err(), "{cut}");
    }
}
