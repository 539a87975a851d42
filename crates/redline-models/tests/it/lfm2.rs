//! LFM2: short convolutions, whose last inputs stay in the pages of a sequence.

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::arch;
use redline_models::spec::DecoderSpec;
use redline_weights::ConfigFile;
use serde_json::{Value, json};

use crate::reference::{Bench, bits, golden_root, open};

/// The keys of a model of four layers, with some of them changed; null removes a key.
fn spec(changes: &Value) -> Result<DecoderSpec, String> {
    let mut config = json!({"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "vocab_size": 40,
        "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128, "layer_types": ["conv", "full_attention", "conv", "conv"]});
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let config = config.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
    let config: serde_json::Map<String, Value> =
        config.map(|(key, value)| (key.clone(), value.clone())).collect();
    let bytes = Value::from(config).to_string();
    let config = ConfigFile::from_bytes("config.json", bytes.as_bytes()).unwrap();
    (arch::find(&config).unwrap().spec)(&config).map_err(|error| error.to_string())
}

#[test]
fn layers_are_what_either_key_says() {
    let kinds = |changes: Value| -> Vec<bool> {
        spec(&changes).unwrap().layers.iter().map(|layer| layer.attention().is_some()).collect()
    };
    assert_eq!(kinds(json!({})), [false, true, false, false]);
    let listed = json!({"layer_types": null, "full_attn_idxs": [0, 3]});
    assert_eq!(kinds(listed), [true, false, false, true]);
    // As in the reference.
    assert_eq!(kinds(json!({"layer_types": null})), [true; 4]);
    assert_eq!(kinds(json!({"layer_types": null, "full_attn_idxs": []})), [false; 4]);
}

#[test]
fn the_inner_width_is_that_of_the_reference() {
    let inner = |changes: Value| spec(&changes).unwrap().layers[0].mlp.dense().unwrap().down.inputs;
    // LFM2-1.2B and LFM2-350M.
    assert_eq!(inner(json!({"block_ff_dim": 12288})), 8192);
    assert_eq!(inner(json!({"intermediate_size": 6656})), 4608);
    assert_eq!(inner(json!({"intermediate_size": 6656, "block_ff_dim": 300})), 256);
    assert_eq!(inner(json!({"block_auto_adjust_ff_dim": false})), 96);
    assert_eq!(inner(json!({"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 4})), 84);
    let config = |multiplier| json!({"intermediate_size": 6656, "block_multiple_of": 7, "block_ffn_dim_multiplier": multiplier});
    assert_eq!(inner(config(0.77)), 3416);
    assert_eq!(inner(config(1.0)), 4438);
}

#[test]
fn keys_are_honoured_or_refused_by_name() {
    for (changes, expect) in [
        (json!({"conv_L_cache": 9}), &["conv_L_cache", "at most 8"][..]),
        (json!({"conv_L_cache": 0}), &["conv_L_cache"]),
        (json!({"layer_types": ["conv", "conv"]}), &["layer_types", "2 entries for 4 layers"]),
        (
            json!({"layer_types": ["conv", "conv", "conv", "sliding_attention"]}),
            &["layer_types", "`full_attention`"],
        ),
        (json!({"layer_types": null, "full_attn_idxs": [1, 4]}), &["full_attn_idxs", "4 layers"]),
        (json!({"layer_types": null, "full_attn_idxs": [-1]}), &["full_attn_idxs"]),
        (json!({"block_ffn_dim_multiplier": -1.0}), &["block_ffn_dim_multiplier"]),
        (json!({"block_ffn_dim_multiplier": 1e30}), &["block_ffn_dim_multiplier"]),
        (json!({"block_multiple_of": 0}), &["block_multiple_of"]),
        (json!({"norm_eps": -1.0}), &["norm_eps"]),
        (json!({"attention_bias": true}), &["attention_bias", "`false`"]),
        (json!({"num_experts": 8}), &["num_experts"]),
        (json!({"sliding_window": 8}), &["sliding_window"]),
        (json!({"num_key_value_heads": null}), &["num_key_value_heads"]),
        (json!({"hidden_size": null}), &["hidden_size"]),
    ] {
        let message = spec(&changes).err().unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(expect.iter().all(|part| message.contains(part)), "{changes}: {message}");
    }
    assert!(spec(&json!({})).unwrap().tied);
    assert!(!spec(&json!({"tie_embedding": false})).unwrap().tied);
    assert!(!spec(&json!({"tie_word_embeddings": false})).unwrap().tied);
}

/// Over the end of a page: in pieces of any size, and from the end of a page that another sequence filled.
#[test]
fn a_long_sequence_has_the_same_bits_in_pieces_and_after_forks() {
    let tokens: Vec<u32> = (0..127).map(|i| (i * i * 7 + i) % 131).collect();
    for (name, format, kv) in [
        ("lfm2-a", Format::F32, KvFormat::F32),
        ("lfm2-a", Format::W8 { group: 128 }, KvFormat::Bf16),
        ("lfm2-b", Format::Bf16, KvFormat::W8),
        ("lfm2-b", Format::W4 { group: 64 }, KvFormat::Bf16),
    ] {
        let mut bench = Bench::new(open(&golden_root().join(name), Some(format)), kv, Simd::best(), 2);
        let (whole, want) = bench.in_pieces(&tokens, tokens.len());
        let width = want.len() / tokens.len();
        for size in [1, 2, 3, 16, 63, 64, 65] {
            let (sequence, got) = bench.in_pieces(&tokens, size);
            assert!(got == want, "{name} in pieces of {size}");
            let fork = bench.fork(sequence, 64);
            let got = bits(&bench.pass(&[(fork, &tokens[64..])]));
            assert!(got == want[64 * width..], "{name} after a fork, in pieces of {size}");
        }
        for at in 0..127 {
            assert_eq!(bench.continuable(whole, at), at / 64 * 64, "{at}");
        }
        // At its end, a sequence continues in several ways.
        let stem = bench.sequence();
        bench.pass(&[(stem, &tokens[..70])]);
        for next in [tokens[70], 1] {
            let fork = bench.fork(stem, 70);
            let got = bits(&bench.pass(&[(fork, &[next, tokens[71]])]));
            assert_eq!(got == want[70 * width..72 * width], next == tokens[70], "{name}");
        }
    }
}
