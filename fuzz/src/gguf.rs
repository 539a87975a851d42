//! A GGUF file: all its metadata, and every tensor that it lists is read.
#![no_main]

mod scratch;

use libfuzzer_sys::fuzz_target;
use redline_weights::Gguf;

fuzz_target!(|file: &[u8]| {
    scratch::write("model.gguf", file);
    let Ok(gguf) = Gguf::open(scratch::folder()) else { return };
    for key in gguf.metadata().keys() {
        let _ = gguf.metadata().u32s(key);
        let _ = gguf.metadata().strings(key);
    }
    for name in gguf.names() {
        let tensor = gguf.tensor(name).expect("a tensor that is listed");
        // A header that passed its checks describes no more than the file holds. No type has less than a bit for each value.
        assert!(tensor.bytes() <= file.len() as u64, "{} bytes in {}", tensor.bytes(), file.len());
        assert!(
            tensor.elements() <= file.len() * 8,
            "{} elements in {} bytes",
            tensor.elements(),
            file.len()
        );
        let _ = gguf.read_f32(name, &mut vec![0.0; tensor.elements()]);
        let _ = gguf.read_blocks(name, 0, tensor.rows(), &mut vec![0; tensor.bytes() as usize]);
    }
});
