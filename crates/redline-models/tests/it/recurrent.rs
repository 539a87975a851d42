//! Models with recurrences: their configuration, and sequences with states in pieces and after forks.

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::arch;
use redline_models::spec::MixerSpec;
use redline_weights::{Checkpoint, ConfigFile, DirWriter, Dtype, TensorDeclaration};
use serde_json::{Value, json};

use crate::reference::{Bench, bits, config_in, golden_root, open};

fn refusal(changes: &Value) -> Option<String> {
    refusal_of("qwen3_5-b", changes)
}

fn refusal_of(golden: &str, changes: &Value) -> Option<String> {
    let mut config = config_in(&golden_root().join(golden));
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let file = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
    arch::specification(&file).err().map(|error| error.to_string())
}

#[test]
fn keys_that_change_the_result_are_honoured_or_refused() {
    assert_eq!(refusal(&json!({})), None);
    assert_eq!(refusal(&json!({ "linear_num_value_heads": 6 })), None);
    for (changes, expect) in [
        (json!({ "attn_output_gate": false }), "attn_output_gate"),
        (json!({ "linear_num_value_heads": 4 }), "not a multiple of `linear_num_key_heads` 3"),
        (json!({ "linear_key_head_dim": 6 }), "linear_key_head_dim"),
        (json!({ "linear_conv_kernel_dim": 9 }), "linear_conv_kernel_dim"),
        (json!({ "linear_value_head_dim": null }), "linear_value_head_dim"),
        (json!({ "layer_types": ["linear_attention"] }), "1 entries for 2 layers"),
        (json!({ "layer_types": ["conv", "full_attention"] }), "layer_types"),
        (json!({ "sliding_window": 12 }), "sliding_window"),
        (json!({ "num_experts": 8 }), "num_experts"),
    ] {
        let message = refusal(&changes).unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(expect), "{changes}: {message}");
    }
}

#[test]
fn sizes_of_mamba_2_fit_each_other() {
    let none = json!([0.0, { "__float__": "Infinity" }]);
    let changes = [
        ("granite4h-b", json!({ "mamba_d_head": "auto", "time_step_limit": [0.0, 2.5] })),
        ("granite4h-b", json!({ "time_step_limit": none })),
        ("bamba-b", json!({ "attn_layer_indices": null })),
    ];
    for (golden, changes) in changes {
        assert_eq!(refusal_of(golden, &changes), None, "{changes}");
    }
    let huge = 1u64 << 40;
    for (golden, changes, expect) in [
        ("granite4h-b", json!({ "mamba_d_head": 16 }), "`mamba_n_heads` 8 of `mamba_d_head` 16"),
        ("granite4h-b", json!({ "mamba_d_head": "16" }), "mamba_d_head"),
        ("granite4h-b", json!({ "mamba_d_head": null, "mamba_n_heads": 7 }), "of `mamba_d_head` 17"),
        ("granite4h-b", json!({ "mamba_n_heads": huge }), "mamba_n_heads"),
        ("granite4h-b", json!({ "mamba_n_groups": 3 }), "not a multiple of `mamba_n_groups` 3"),
        ("granite4h-b", json!({ "mamba_n_groups": huge }), "mamba_n_groups"),
        ("granite4h-b", json!({ "mamba_d_conv": 9 }), "mamba_d_conv"),
        ("granite4h-b", json!({ "mamba_d_state": null }), "mamba_d_state"),
        ("granite4h-b", json!({ "mamba_expand": 0 }), "mamba_expand"),
        ("granite4h-b", json!({ "time_step_limit": [2.0, 1.0] }), "time_step_limit"),
        ("granite4h-b", json!({ "time_step_limit": [0.1] }), "time_step_limit"),
        ("granite4h-b", json!({ "time_step_limit": [-2.0, -1.0] }), "time_step_limit"),
        ("granite4h-b", json!({ "time_step_limit": [1e39, 1e40] }), "time_step_limit"),
        ("granite4h-b", json!({ "time_step_limit": [0.1, { "__float__": "-Infinity" }] }), "time_step_limit"),
        ("granite4h-b", json!({ "layer_types": ["mamba", "conv"] }), "layer_types"),
        ("bamba-b", json!({ "attn_layer_indices": [2] }), "indices of 2 layers"),
        ("bamba-b", json!({ "attn_layer_indices": [-1] }), "attn_layer_indices"),
        ("bamba-b", json!({ "attn_layer_indices": [0.5] }), "attn_layer_indices"),
        ("bamba-b", json!({ "attn_layer_indices": "1" }), "attn_layer_indices"),
        ("bamba-b", json!({ "mlp_bias": true }), "mlp_bias"),
        ("bamba-b", json!({ "mamba_n_heads": 5 }), "`mamba_n_heads` 5"),
    ] {
        let message = refusal_of(golden, &changes).unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(expect), "{changes}: {message}");
    }
}

#[test]
fn keys_of_nemotron_h_and_falcon_h1_are_honoured_or_refused() {
    let listed = json!(["mamba", "moe", "linear_attention", "attention", "moe"]);
    for (golden, changes) in [
        ("nemotron-h-b", json!({ "layers_block_type": listed, "hybrid_override_pattern": null })),
        ("nemotron-h-b", json!({ "num_hidden_layers": null, "moe_latent_size": null })),
        ("nemotron-h-c", json!({ "head_dim": null })),
        ("falcon-h1-b", json!({ "mamba_d_ssm": null, "mamba_d_head": "auto" })),
        ("falcon-h1-b", json!({ "mlp_multipliers": null, "ssm_multipliers": null })),
        ("falcon-h1-b", json!({ "attention_bias": true, "attention_in_multiplier": 1.0 })),
    ] {
        assert_eq!(refusal_of(golden, &changes), None, "{golden} {changes}");
    }
    let huge = 1u64 << 27;
    for (golden, changes, expect) in [
        ("nemotron-h-b", json!({ "hybrid_override_pattern": "MEM*X" }), "`M`, `*`, `-`, `E`"),
        ("nemotron-h-b", json!({ "hybrid_override_pattern": "MEM*" }), "4 entries for 5 layers"),
        (
            "nemotron-h-b",
            json!({ "hybrid_override_pattern": "", "num_hidden_layers": 0 }),
            "hybrid_override_pattern",
        ),
        ("nemotron-h-b", json!({ "hybrid_override_pattern": null }), "hybrid_override_pattern"),
        ("nemotron-h-b", json!({ "hybrid_override_pattern": "EE" }), "a layer of Mamba-2 or attention"),
        ("nemotron-h-b", json!({ "head_dim": null }), "attention_head_dim"),
        ("nemotron-h-b", json!({ "layers_block_type": ["conv"] }), "`linear_attention`, `mamba`"),
        ("nemotron-h-b", json!({ "mlp_hidden_act": "silu" }), "mlp_hidden_act"),
        ("nemotron-h-b", json!({ "mamba_hidden_act": "gelu" }), "mamba_hidden_act"),
        ("nemotron-h-b", json!({ "attention_bias": true }), "attention_bias"),
        ("nemotron-h-b", json!({ "sliding_window": 12 }), "sliding_window"),
        ("nemotron-h-b", json!({ "n_group": 2 }), "n_group"),
        ("nemotron-h-b", json!({ "topk_group": 2 }), "topk_group"),
        ("nemotron-h-b", json!({ "n_shared_experts": 2 }), "n_shared_experts"),
        ("nemotron-h-b", json!({ "moe_latent_size": 16 }), "moe_latent_size"),
        ("nemotron-h-b", json!({ "n_groups": 3 }), "not a multiple of `n_groups` 3"),
        ("nemotron-h-b", json!({ "conv_kernel": 9 }), "conv_kernel"),
        ("nemotron-h-b", json!({ "mamba_num_heads": huge, "mamba_head_dim": huge }), "channels"),
        ("falcon-h1-b", json!({ "mamba_d_ssm": 60 }), "are not `mamba_d_ssm`, 60"),
        ("falcon-h1-b", json!({ "mamba_d_ssm": null }), "`mamba_expand` times `hidden_size`, 96"),
        ("falcon-h1-b", json!({ "mlp_bias": true }), "mlp_bias"),
        ("falcon-h1-b", json!({ "attention_bias": true }), "attention_in_multiplier"),
        ("falcon-h1-b", json!({ "mamba_proj_bias": true }), "ssm_in_multiplier"),
        ("falcon-h1-b", json!({ "mlp_multipliers": [1.0] }), "mlp_multipliers"),
        ("falcon-h1-b", json!({ "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 0.0] }), "ssm_multipliers"),
        ("falcon-h1-b", json!({ "key_multiplier": -1.0 }), "key_multiplier"),
    ] {
        let message = refusal_of(golden, &changes).unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(expect), "{changes}: {message}");
    }
}

/// Without its key, the norm of a recurrence has the epsilon of the other norms.
#[test]
fn norms_of_a_model_have_one_epsilon() {
    let mut config = config_in(&golden_root().join("bamba-b"));
    config.as_object_mut().unwrap().remove("rms_norm_eps");
    let file = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
    let (_, spec) = arch::specification(&file).unwrap();
    let MixerSpec::Mamba2(mixer) = &spec.layers[0].mixer else { panic!("{:?}", spec.layers[0].mixer) };
    let before = spec.layers[0].mixer_norms.before.as_ref().unwrap();
    assert_eq!((mixer.norm.as_ref().unwrap().eps, before.eps), (1e-5, 1e-5));
}

#[test]
fn keys_of_qwen3_next_that_others_do_not_have_are_refused() {
    for (changes, key) in [
        (json!({ "mlp_only_layers": [1] }), "mlp_only_layers"),
        (json!({ "decoder_sparse_step": 2 }), "decoder_sparse_step"),
        (json!({ "norm_topk_prob": false }), "norm_topk_prob"),
    ] {
        let message = refusal_of("qwen3_5moe-a", &changes).unwrap_or_else(|| panic!("{changes} is accepted"));
        assert!(message.contains(key), "{changes}: {message}");
        assert_eq!(refusal_of("qwen3next-b", &changes), None, "{changes}");
    }
    let neutral = json!({ "mlp_only_layers": [], "decoder_sparse_step": 1, "norm_topk_prob": true });
    assert_eq!(refusal_of("qwen3_5moe-a", &neutral), None);
}

/// Over the ends of pages, in pieces of any size; from its end, a sequence continues in several ways.
#[test]
fn a_long_sequence_has_the_same_bits_in_pieces_and_after_forks() {
    let tokens: Vec<u32> = (0..127).map(|i| (i * i * 7 + i) % 131).collect();
    for (name, format, kv) in [
        ("qwen3_5-a", Format::F32, KvFormat::F32),
        ("qwen3_5-a", Format::W8 { group: 128 }, KvFormat::Bf16),
        ("qwen3_5-b", Format::Bf16, KvFormat::W8),
        ("qwen3_5-b", Format::W4 { group: 64 }, KvFormat::Bf16),
        ("qwen3_5moe-b", Format::W8 { group: 128 }, KvFormat::Bf16),
        ("qwen3next-a", Format::F32, KvFormat::F32),
        ("granite4h-a", Format::F32, KvFormat::F32),
        ("bamba-a", Format::W4 { group: 32 }, KvFormat::W8),
        ("granite4h-b", Format::W8 { group: 128 }, KvFormat::Bf16),
        ("granite4h-c", Format::W4 { group: 32 }, KvFormat::Bf16),
        ("falcon-h1-a", Format::W8 { group: 128 }, KvFormat::Bf16),
        ("nemotron-h-a", Format::F32, KvFormat::W8),
    ] {
        let mut bench = Bench::new(open(&golden_root().join(name), Some(format)), kv, Simd::best(), 2);
        let (whole, want) = bench.in_pieces(&tokens, tokens.len());
        let width = want.len() / tokens.len();
        for size in [1, 2, 3, 16, 63, 64, 65] {
            let (_, got) = bench.in_pieces(&tokens, size);
            assert!(got == want, "{name} in pieces of {size}");
        }
        // Elsewhere than at its end, it has no state.
        for at in 0..127 {
            assert_eq!(bench.continuable(whole, at), 0, "{at}");
        }
        assert_eq!(bench.continuable(whole, 127), 127);
        let stem = bench.sequence();
        bench.pass(&[(stem, &tokens[..70])]);
        for next in [tokens[70], 1, tokens[70]] {
            let fork = bench.fork(stem, 70);
            let got = bits(&bench.pass(&[(fork, &[next, tokens[71]])]));
            assert_eq!(got == want[70 * width..72 * width], next == tokens[70], "{name}");
        }
        // Several in one pass.
        let others = [bench.fork(stem, 70), bench.sequence(), bench.fork(stem, 70)];
        let pass = [(others[0], &tokens[70..90]), (others[1], &tokens[..33]), (others[2], &tokens[70..127])];
        let got = bits(&bench.pass(&pass));
        let rows = |range: std::ops::Range<usize>| want[range.start * width..range.end * width].to_vec();
        assert!(got == [rows(70..90), rows(0..33), rows(70..127)].concat(), "{name} in company");
    }
}

/// A checkpoint that also reads images has other names, and its decoder the same bits.
#[test]
fn the_decoder_of_a_model_with_images_is_found() {
    for (name, architecture, model_type) in [
        ("qwen3_5-b", "Qwen3_5ForConditionalGeneration", "qwen3_5"),
        ("qwen3_5moe-b", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
    ] {
        check_with_images(&golden_root().join(name), architecture, model_type);
    }
}

fn check_with_images(dir: &std::path::Path, architecture: &str, model_type: &str) {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let mut writer = DirWriter::create(&path).unwrap();
    let text: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
    let outer = json!({
        "architectures": [architecture], "model_type": model_type, "text_config": text,
        "tie_word_embeddings": text["tie_word_embeddings"], "vision_config": { "depth": 1 }, "image_token_id": 9
    });
    writer.write("config.json", outer.to_string().as_bytes()).unwrap();
    let renamed = |name: &str| name.replacen("model.", "model.language_model.", 1);
    let names: Vec<&str> = checkpoint.names().collect();
    let mut tensors: Vec<TensorDeclaration> = names
        .iter()
        .map(|name| {
            TensorDeclaration::new(renamed(name), Dtype::F32, checkpoint.info(name).unwrap().shape.clone())
        })
        .collect();
    let others = ["model.visual.blocks.0.norm1.weight", "mtp.fc.weight"];
    tensors.extend(others.map(|name| TensorDeclaration::new(name.to_owned(), Dtype::F32, vec![4])));
    let written = writer.safetensors("model.safetensors", &tensors, |out| {
        for name in &names {
            let mut values = vec![0.0; checkpoint.info(name).unwrap().elements()];
            checkpoint.read_f32(name, &mut values)?;
            out.write_f32(&values)?;
        }
        others.iter().try_for_each(|_| out.write_f32(&[1.0; 4]))
    });
    written.unwrap();
    writer.finish().unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| (i * 5 + 3) % 131).collect();
    let logits = |path: &std::path::Path| {
        let mut bench = Bench::new(open(path, Some(Format::F32)), KvFormat::F32, Simd::best(), 1);
        let sequence = bench.sequence();
        bits(&bench.pass(&[(sequence, &tokens)]))
    };
    assert!(logits(&path) == logits(dir), "{architecture}");
}
