//! `config.json`: up to the shapes of all tensors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_models::arch;
use redline_weights::ConfigFile;

/// Layers beyond this only take time.
const MAX_LAYERS: usize = 1 << 12;

fuzz_target!(|json: &[u8]| {
    let Ok(config) = ConfigFile::from_bytes("config.json", json) else { return };
    for key in ["eos_token_id", "mask_token_id"] {
        let _ = config.ids(key);
    }
    let Ok(architecture) = arch::find(&config) else { return };
    let Ok(spec) = (architecture.spec)(&config) else { return };
    if spec.layers.len() <= MAX_LAYERS {
        let _ = spec.tensors();
    }
});
