//! A packed directory: two bytes of length, that much of a manifest, and the file of weights. The checksums of manifest and header
//! are made right, because no random change would get past them.
#![no_main]

mod scratch;

use libfuzzer_sys::fuzz_target;
use redline_weights::{Checksum, Infq};
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk::<2>() else { return };
    let (manifest, weights) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    scratch::write("model.safetensors", weights);
    scratch::write("infq.json", &with_checksums(manifest, weights).unwrap_or_else(|| manifest.to_vec()));
    let Ok(infq) = Infq::open(scratch::folder()) else { return };
    for name in infq.names() {
        let weight = infq.weight(name).expect("a weight that is listed");
        for part in &weight.parts {
            let bytes = infq.part_bytes(name, &part.suffix).expect("a part that is listed");
            assert!(bytes <= input.len() as u64, "{bytes} bytes in a file of {}", weights.len());
            let _ = infq.read_part(name, &part.suffix, &mut vec![0; bytes as usize]);
        }
    }
});

/// The manifest with the checksum of the header and its own; `None` where it is not an object.
fn with_checksums(manifest: &[u8], weights: &[u8]) -> Option<Vec<u8>> {
    let mut json: Value = serde_json::from_slice(manifest).ok()?;
    let object = json.as_object_mut()?;
    object.remove("checksum");
    // The files beside it are not part of the input.
    object.insert("files".into(), Value::Object(serde_json::Map::new()));
    let header = weights.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let end = header.and_then(|length| usize::try_from(length).ok()?.checked_add(8));
    if let Some(header) = end.and_then(|end| weights.get(..end)) {
        object.insert("header".into(), Checksum::of(header).to_string().into());
    }
    let mut text = json.to_string();
    let checksum = Checksum::of(text.as_bytes());
    text.pop();
    Some(format!("{text},\"checksum\":\"{checksum}\"}}\n").into_bytes())
}
