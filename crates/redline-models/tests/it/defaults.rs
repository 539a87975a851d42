//! What a configuration leaves out, and settings that no golden checkpoint has: the values of the reference implementation.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_models::arch;
use redline_models::spec::DecoderSpec;
use redline_weights::ConfigFile;
use serde_json::{Value, json};

fn spec(config: &Value) -> DecoderSpec {
    let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
    (arch::find(&config).unwrap().spec)(&config).unwrap()
}

/// A configuration of a family with the keys that every member needs.
fn rotary(architecture: &str, layers: usize) -> Value {
    json!({"architectures": [architecture], "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_hidden_layers": layers, "vocab_size": 100, "max_position_embeddings": 64})
}

fn with(mut config: Value, changes: &Value) -> Value {
    let keys = changes.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(keys);
    config
}

/// The base of the rotations; heads have 16 values.
fn theta(spec: &DecoderSpec) -> f64 {
    let [rotation] = spec.rotations() else { panic!("no rotation, or several") };
    let frequencies = &rotation.inverse_frequencies;
    assert_eq!((frequencies.len(), frequencies[0]), (8, 1.0));
    frequencies[1].powi(-8).round()
}

#[test]
fn a_llama_without_its_optional_keys() {
    let llama = rotary("LlamaForCausalLM", 2);
    let absent = spec(&llama);
    let null = json!({"rms_norm_eps": null, "rope_theta": null, "tie_word_embeddings": null, "head_dim": null,
        "num_key_value_heads": null, "hidden_act": null, "attention_bias": null, "mlp_bias": null});
    for spec in [absent, spec(&with(llama, &null))] {
        let attention = spec.layers[1].attention().unwrap();
        assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (4, 4, 16));
        assert_eq!((attention.scale, attention.window), (0.25, None));
        assert!(!attention.qkv.has_bias() && !attention.output.has_bias());
        let mlp = spec.layers[1].mlp.dense().unwrap();
        assert!(!mlp.up.has_bias() && !mlp.down.has_bias());
        assert!(spec.layers[0].norms().chain(&spec.final_norm).all(|norm| norm.eps == 1e-6));
        assert!(!spec.tied && attention.query_norm.is_none());
        assert_eq!(theta(&spec), 10_000.0);
    }
}

#[test]
fn the_other_members_have_the_same_epsilon_and_a_head_of_their_own() {
    let keys = json!({"num_key_value_heads": 2, "head_dim": 16, "sliding_window": null});
    for architecture in ["MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"] {
        let spec = spec(&with(rotary(architecture, 1), &keys));
        assert_eq!(
            (spec.final_norm.as_ref().unwrap().eps, spec.tied, theta(&spec)),
            (1e-6, false, 10_000.0),
            "{architecture}"
        );
    }
}

#[test]
fn a_gpt2_without_its_optional_keys() {
    let gpt2 = json!({"architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 2,
        "vocab_size": 100, "n_ctx": 80});
    let plain = spec(&gpt2);
    assert!(plain.tied && plain.context == 80);
    assert_eq!(
        (plain.final_norm.as_ref().unwrap().eps, plain.layers[0].mlp.dense().unwrap().up.outputs()),
        (1e-5, 256)
    );
    let scales = |changes: Value| -> Vec<f32> {
        spec(&with(gpt2.clone(), &changes))
            .layers
            .iter()
            .map(|layer| layer.attention().unwrap().scale)
            .collect()
    };
    assert_eq!(scales(json!({})), [0.25, 0.25]);
    assert_eq!(scales(json!({"scale_attn_weights": false})), [1.0, 1.0]);
    assert_eq!(scales(json!({"scale_attn_by_inverse_layer_idx": true})), [0.25, 0.125]);
    let neither = json!({"scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true});
    assert_eq!(scales(neither), [1.0, 0.5]);
    assert_eq!(spec(&with(gpt2, &json!({"n_positions": 96}))).context, 96);
}

#[test]
fn both_names_of_an_activation() {
    let mlp = |spec: &DecoderSpec| {
        let mlp = spec.layers[0].mlp.dense().unwrap();
        (mlp.activation, mlp.gate)
    };
    for name in ["silu", "swish"] {
        let llama = spec(&with(rotary("LlamaForCausalLM", 1), &json!({"hidden_act": name})));
        let gate = Gating::Function(ActivationFunction::Silu);
        assert_eq!(mlp(&llama), (ActivationFunction::None, Some(gate)), "{name}");
    }
    let gpt2 = json!({"architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 1,
        "vocab_size": 100, "n_positions": 80});
    for name in ["gelu_new", "gelu_pytorch_tanh"] {
        let gpt2 = spec(&with(gpt2.clone(), &json!({"activation_function": name})));
        assert_eq!(mlp(&gpt2), (ActivationFunction::GeluNew, None), "{name}");
    }
}

#[test]
fn the_window_begins_with_the_layer_that_is_named() {
    let qwen2 = |layers: usize, changes: &Value| -> Vec<Option<usize>> {
        let window = json!({"num_key_value_heads": 2, "use_sliding_window": true, "sliding_window": 8});
        let config = with(with(rotary("Qwen2ForCausalLM", layers), &window), changes);
        spec(&config).layers.iter().map(|layer| layer.attention().unwrap().window).collect()
    };
    let (none, eight) = (None, Some(8));
    assert_eq!(qwen2(3, &json!({"max_window_layers": 0})), [eight; 3]);
    assert_eq!(qwen2(3, &json!({"max_window_layers": 1})), [none, eight, eight]);
    assert_eq!(qwen2(3, &json!({"max_window_layers": 2})), [none, none, eight]);
    assert_eq!(qwen2(3, &json!({"max_window_layers": 3})), [none; 3]);
    assert_eq!(qwen2(3, &json!({"max_window_layers": 0, "use_sliding_window": false})), [none; 3]);
    assert_eq!(qwen2(3, &json!({"max_window_layers": 0, "use_sliding_window": null})), [none; 3]);
    assert_eq!(qwen2(30, &json!({})), [[none; 28].as_slice(), &[eight; 2]].concat());
}

#[test]
fn the_base_of_the_rotations_is_where_either_version_writes_it() {
    let of = |changes: Value| theta(&spec(&with(rotary("LlamaForCausalLM", 1), &changes)));
    let default = json!({"rope_type": "default"});
    assert_eq!(of(json!({"rope_theta": 5e5})), 5e5);
    assert_eq!(of(json!({"rope_theta": 5e5, "rope_scaling": default})), 5e5);
    assert_eq!(of(json!({"rope_theta": 5e5, "rope_scaling": {"type": "default"}})), 5e5);
    assert_eq!(of(json!({"rope_theta": 5e5, "rope_parameters": default})), 5e5);
    assert_eq!(
        of(json!({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})),
        1e6
    );
    assert_eq!(of(json!({"rope_parameters": {"rope_theta": 1e6}})), 1e6);
}

#[test]
fn an_architecture_that_is_not_named_is_that_of_the_type_of_the_model() {
    for architecture in arch::ALL {
        let of = architecture.model_type;
        // Of several forms, the first: without a head for other tasks.
        if arch::ALL.iter().position(|other| other.model_type == of)
            != arch::ALL.iter().position(|other| other.name == architecture.name)
        {
            continue;
        }
        for config in [
            json!({"model_type": of}),
            json!({"model_type": of, "architectures": null}),
            json!({"model_type": of, "architectures": []}),
        ] {
            let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
            assert_eq!(arch::find(&config).unwrap().name, architecture.name);
        }
    }
    let both = json!({"model_type": "llama", "architectures": ["Qwen2ForCausalLM", "LlamaForCausalLM"]});
    let both = ConfigFile::from_bytes("config.json", both.to_string().as_bytes()).unwrap();
    assert_eq!(arch::find(&both).unwrap().name, "Qwen2ForCausalLM");
}
