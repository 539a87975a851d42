//! A file of weights: every tensor that it lists is read.
#![no_main]

mod scratch;

use libfuzzer_sys::fuzz_target;
use redline_weights::Checkpoint;

fuzz_target!(|file: &[u8]| {
    scratch::write("model.safetensors", file);
    let Ok(checkpoint) = Checkpoint::open(scratch::folder()) else { return };
    for name in checkpoint.names() {
        let elements = checkpoint.info(name).expect("a tensor that is listed").elements();
        // A header that passed its checks describes no more than the file holds.
        assert!(elements <= file.len() * 8, "{elements} elements in {} bytes", file.len());
        let _ = checkpoint.read_f32(name, &mut vec![0.0; elements]);
    }
    let _ = checkpoint.digest();
});
