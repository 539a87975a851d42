//! `tokenizer.json`, by both encoders: what loads encodes and decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_tokenizer::{Encoder, Tokenizer};

const TEXT: &str =
    "It's 1,234  e\u{301}\u{fb01} \u{4f60}\u{597d}\n\n\t<s>a</s> \u{1f469}\u{200d}\u{1f467} Zz ";

fuzz_target!(|json: &[u8]| {
    for encoder in [Encoder::Native, Encoder::Library] {
        let Ok(tokenizer) = Tokenizer::from_bytes_with("tokenizer.json", json, encoder) else { continue };
        let Ok(ids) = tokenizer.encode(TEXT, true) else { continue };
        let _ = tokenizer.decode(&ids, true);
        let _ = tokenizer.decode(&ids, false);
        let _ = tokenizer.encode_with_offsets(TEXT, false);
        let mut stream = tokenizer.stream();
        for id in ids {
            let _ = stream.push(id);
        }
        stream.finish();
    }
});
