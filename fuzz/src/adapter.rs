//! `adapter_config.json`: up to targets, ranks and scalings of some modules.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_weights::AdapterConfig;

const MODULES: &[&str] =
    &["model.layers.0.self_attn.q_proj", "transformer.h.11.mlp.c_proj", "embed_tokens", "lm_head"];

fuzz_target!(|json: &[u8]| {
    let Ok(config) = AdapterConfig::from_bytes("adapter_config.json", json) else { return };
    for module in MODULES {
        if let Ok(true) = config.targets(module, *module != "lm_head") {
            let _ = config.rank(module);
            let _ = config.scaling(module);
        }
    }
});
