//! `pytorch_model.bin`: an archive as it is, or a pickle put into a sound archive, because few random changes leave an archive
//! sound.
#![no_main]

mod scratch;

use libfuzzer_sys::fuzz_target;
use redline_weights::Checkpoint;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else { return };
    let file =
        if kind == b'P' { input.to_vec() } else { archive(&[("a/data.pkl", rest), ("a/data/0", &[0; 64])]) };
    scratch::write("pytorch_model.bin", &file);
    let Ok(checkpoint) = Checkpoint::open(scratch::folder()) else { return };
    for name in checkpoint.names() {
        let elements = checkpoint.info(name).expect("a tensor that is listed").elements();
        assert!(elements <= file.len(), "{elements} elements in {} bytes", file.len());
        let _ = checkpoint.read_f32(name, &mut vec![0.0; elements]);
    }
});

/// A zip archive of stored entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let offset = file.len() as u32;
        let sizes = [data.len() as u32; 2].map(u32::to_le_bytes).concat();
        let name_bytes = (name.len() as u16).to_le_bytes();
        // Version, flags, method, time, date, check sum (not read), sizes, lengths of name and extra field.
        let common =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sizes, &name_bytes, &[0, 0]].concat();
        file.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), data].concat());
        let rest = [&[0; 10][..], &offset.to_le_bytes(), name.as_bytes()].concat();
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &common, &rest].concat());
    }
    let (at, count) = (file.len() as u32, (entries.len() as u16).to_le_bytes());
    let length = (directory.len() as u32).to_le_bytes();
    file.extend(&directory);
    file.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &length, &at.to_le_bytes(), &[0, 0]].concat());
    file
}
