//! Dream and LLaDA: tensors are recognised and checked, and rows see each other.

use redline_kernels::{Format, Simd};
use redline_models::arch;
use redline_models::kv::SeqId;
use redline_models::spec::{DecoderSpec, Objective};
use redline_models::{LoadOptions, ModelError, Weights, load};
use redline_weights::{Checkpoint, ConfigFile, DirWriter, Dtype, TensorDeclaration};
use serde_json::{Value, json};

use crate::reference::{Bench, bits, kv, masked_goldens, nmse, on_team, open, reference};

fn dream() -> Value {
    json!({"architectures": ["DreamModel"], "model_type": "Dream", "hidden_size": 24, "intermediate_size": 32,
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"}, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 1, "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "rope_scaling": null, "hidden_act": "silu", "use_sliding_window": false,
        "sliding_window": null, "use_mrope": false, "mask_token_id": 49, "tie_word_embeddings": false})
}

fn llada() -> Value {
    json!({"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": 24, "mlp_hidden_size": 32,
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"}, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1,
        "vocab_size": 50, "embedding_size": 56, "max_sequence_length": 64, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "activation_type": "silu", "block_type": "llama", "layer_norm_type": "rms", "include_bias": false,
        "include_qkv_bias": false, "alibi": false, "mask_token_id": 49, "weight_tying": false})
}

/// The same shape without biases.
fn without_bias() -> Value {
    let llama = with(dream(), "architectures", json!(["LlamaForCausalLM"]));
    let mut llama = with(llama, "auto_map", Value::Null);
    for key in ["auto_map", "use_sliding_window", "sliding_window", "use_mrope"] {
        llama.as_object_mut().unwrap().remove(key);
    }
    llama
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

fn file(config: &Value) -> ConfigFile {
    ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap()
}

fn spec(config: &Value) -> Result<DecoderSpec, ModelError> {
    let config = file(config);
    arch::find(&config).and_then(|a| (a.spec)(&config))
}

/// `name shape` of every tensor in the checkpoint.
fn tensors(spec: &DecoderSpec) -> Vec<String> {
    spec.tensors().iter().map(|t| format!("{} {:?}", spec.prefixed(&t.name), t.shape)).collect()
}

#[test]
fn dream_is_qwen2_with_a_head_of_its_own_that_attends_both_ways() {
    let dream = spec(&dream()).unwrap();
    let qwen = with(self::dream(), "architectures", json!(["Qwen2ForCausalLM"]));
    let qwen = spec(&with(qwen, "auto_map", Value::Null)).unwrap();
    assert_eq!(tensors(&dream), tensors(&qwen));
    assert_eq!(
        (dream.objective, qwen.objective),
        (Objective { shift: 1, ..Objective::MASKED }, Objective::NEXT)
    );
    let names = tensors(&dream);
    for expect in [
        "model.embed_tokens.weight [50, 24]",
        "model.layers.1.self_attn.q_proj.bias [24]",
        "model.layers.1.self_attn.k_proj.bias [8]",
        "model.norm.weight [24]",
        "lm_head.weight [50, 24]",
    ] {
        assert!(names.iter().any(|n| n == expect), "{expect}: {names:?}");
    }
    assert!(!names.iter().any(|n| n.contains("o_proj.bias")), "{names:?}");
}

#[test]
fn llada_has_the_names_of_its_checkpoints() {
    let spec = spec(&llada()).unwrap();
    let layer = |i: usize| {
        [
            ("attn_norm", "[24]"),
            ("q_proj", "[24, 24]"),
            ("k_proj", "[8, 24]"),
            ("v_proj", "[8, 24]"),
            ("attn_out", "[24, 24]"),
            ("ff_norm", "[24]"),
            ("ff_proj", "[32, 24]"),
            ("up_proj", "[32, 24]"),
            ("ff_out", "[24, 32]"),
        ]
        .map(|(name, shape)| format!("model.transformer.blocks.{i}.{name}.weight {shape}"))
    };
    let mut expect = vec!["model.transformer.wte.weight [56, 24]".to_owned()];
    expect.extend(layer(0));
    expect.extend(layer(1));
    expect.push("model.transformer.ln_f.weight [24]".into());
    expect.push("model.transformer.ff_out.weight [56, 24]".into());
    assert_eq!(tensors(&spec), expect);
    assert_eq!(spec.objective, Objective::MASKED);
    assert!(!spec.tied && spec.context == 64 && spec.vocab == 56);
    let [rotation] = spec.rotations() else { panic!("no rotation, or several") };
    let frequencies = &rotation.inverse_frequencies;
    assert_eq!((frequencies.len(), frequencies[0]), (4, 1.0));
    assert!((frequencies[1] - 5e5f64.powf(-0.25)).abs() < 1e-15);
    let tied = self::spec(&with(llada(), "weight_tying", json!(true))).unwrap();
    assert_eq!(tied.tensors().len(), spec.tensors().len() - 1);
    let biased = tensors(&self::spec(&with(llada(), "include_qkv_bias", json!(true))).unwrap());
    assert_eq!(biased.iter().filter(|n| n.ends_with("_proj.bias [8]")).count(), 4, "{biased:?}");
}

#[test]
fn variants_of_either_are_refused_by_key() {
    for (base, key, value) in [
        (dream(), "sliding_window", json!(16)),
        (dream(), "use_mrope", json!(true)),
        (dream(), "num_key_value_heads", Value::Null),
        (dream(), "rms_norm_eps", Value::Null),
        (dream(), "rope_theta", Value::Null),
        (llada(), "block_type", json!("sequential")),
        (llada(), "layer_norm_type", json!("low_precision")),
        (llada(), "activation_type", json!("swiglu")),
        (llada(), "include_bias", json!(true)),
        (llada(), "alibi", json!(true)),
        (llada(), "rope", json!(false)),
        (llada(), "scale_logits", json!(true)),
        (llada(), "attention_layer_norm", json!(true)),
        (llada(), "bias_for_layer_norm", json!(true)),
        (llada(), "input_emb_norm", json!(true)),
        (llada(), "multi_query_attention", json!(true)),
        (llada(), "layer_norm_with_affine", json!(false)),
        (llada(), "weight_tying", Value::Null),
        (llada(), "clip_qkv", json!(8.0)),
        (llada(), "n_heads", json!(5)),
        (llada(), "n_kv_heads", json!(2)),
        (llada(), "rope_theta", Value::Null),
        (llada(), "mlp_hidden_size", Value::Null),
        (llada(), "embedding_size", json!(1_u64 << 60)),
        (llada(), "n_layers", json!(1_u64 << 40)),
    ] {
        let mut config = with(base, key, value);
        if config[key].is_null() {
            config.as_object_mut().unwrap().remove(key);
        }
        let Err(error) = spec(&config) else { panic!("accepted {key}: {config}") };
        let message = error.to_string();
        assert!(message.contains(key) && message.contains("config.json"), "{message}");
    }
}

/// A checkpoint with weights of various sizes.
fn written(config: &Value) -> tempfile::TempDir {
    let spec = spec(config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tensors = spec.tensors();
    let files: Vec<_> = tensors
        .iter()
        .map(|t| TensorDeclaration::new(spec.prefixed(&t.name), Dtype::F32, t.shape.clone()))
        .collect();
    let mut writer = DirWriter::create(&folder.path().join("model")).unwrap();
    writer.write("config.json", config.to_string().as_bytes()).unwrap();
    let mut state = 1u32;
    let mut value = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    writer
        .safetensors("model.safetensors", &files, |out| {
            tensors.iter().try_for_each(|t| {
                let values: Vec<f32> = (0..t.shape.iter().product()).map(|_| value() * 0.5).collect();
                out.write_f32(&values)
            })
        })
        .unwrap();
    writer.finish().unwrap();
    folder
}

fn bench(config: &Value, format: Format, simd: Simd, threads: usize) -> Bench {
    let folder = written(config);
    Bench::new(open(&folder.path().join("model"), Some(format)), kv(format), simd, threads)
}

fn canvas(tokens: u32, seed: u32) -> Vec<u32> {
    (0..tokens).map(|i| if i % 3 == 2 { 49 } else { (i * 7 + seed) % 49 }).collect()
}

#[test]
fn a_row_sees_what_stands_behind_it() {
    for config in [dream(), llada()] {
        let first_row = |tokens: &[u32]| {
            let mut bench = bench(&config, Format::F32, Simd::best(), 2);
            let sequence = bench.sequence();
            bench.draw(&[(sequence, 0, tokens, tokens.len())]).swap_remove(0)
        };
        let tokens = canvas(40, 1);
        let mut other = tokens.clone();
        other[39] = 7;
        assert_ne!(first_row(&tokens), first_row(&other));
    }
}

/// Rows that are run again over the keys and values of a whole pass give the same results as in that pass: on every tier, with
/// any number of threads, beside other canvases.
#[test]
fn a_patch_with_the_same_tokens_has_the_same_bits() {
    for (config, format) in
        [(dream(), Format::F32), (llada(), Format::Bf16), (dream(), Format::W8 { group: 128 })]
    {
        let canvases: Vec<Vec<u32>> = [64, 33, 1].into_iter().map(|n| canvas(n, n)).collect();
        let mut first: Option<Vec<Vec<u32>>> = None;
        for (simd, threads) in Simd::variants().into_iter().map(|simd| (simd, 1)).chain([(Simd::best(), 2)]) {
            let mut bench = bench(&config, format, simd, threads);
            let mut alone = Vec::new();
            for tokens in &canvases {
                let sequence = bench.sequence();
                let n = tokens.len();
                let whole = bench.draw(&[(sequence, 0, tokens, n)]);
                for rows in [0..n.min(1), n / 3..n - n / 4, n / 2..n] {
                    let patch = bench.draw(&[(sequence, rows.start, &tokens[rows.clone()], n)]);
                    assert_eq!(bits(&patch), bits(&whole[rows.clone()]), "{format} rows {rows:?} of {n}");
                }
                alone.push(bits(&whole));
            }
            let ids: Vec<SeqId> = canvases.iter().map(|_| bench.sequence()).collect();
            let parts: Vec<_> =
                ids.iter().zip(&canvases).map(|(&id, t)| (id, 0, t.as_slice(), t.len())).collect();
            assert_eq!(bits(&bench.draw(&parts)), alone.concat(), "{format} together");
            assert_eq!(
                *first.get_or_insert(alone.clone()),
                alone,
                "{format} on {} with {threads}",
                simd.name()
            );
        }
    }
}

/// Published logits: `reference.safetensors` of every golden checkpoint, computed by another implementation.
#[test]
fn logits_are_those_of_the_reference() {
    for dir in masked_goldens() {
        let want = reference(&dir);
        let mut bench = Bench::new(open(&dir, None), kv(Format::F32), Simd::best(), 2);
        let sequence = bench.sequence();
        let got = bench.draw(&[(sequence, 0, &want.prompt, want.prompt.len())]).concat();
        let error = nmse(&got, &want.logits);
        assert!(error < 1e-9, "{}: {error:e}", dir.display());
    }
}

#[test]
fn a_missing_bias_refuses_to_load() {
    let folder = written(&without_bias());
    let config = file(&dream());
    let checkpoint = Checkpoint::open(&folder.path().join("model")).unwrap();
    let weights = Weights::Checkpoint(&checkpoint);
    let error = on_team(|exec| load(exec, &config, weights, LoadOptions::default())).unwrap_err().to_string();
    assert!(error.contains("model.layers.0.self_attn.q_proj.bias"), "{error}");
}

#[test]
fn a_head_of_an_odd_number_of_values_cannot_be_rotated() {
    let with_heads = |heads: usize| spec(&with(llada(), "n_heads", json!(heads)));
    assert_eq!(with_heads(6).unwrap().layers[0].attention().unwrap().head_dim, 4);
    let message = with_heads(8).unwrap_err().to_string();
    assert!(message.starts_with("a head of 3 values is odd and cannot be rotated\n"), "{message}");
}

#[test]
fn every_query_head_of_llada_has_keys_of_its_own_unless_a_number_is_given() {
    let kv_heads = |given: Value| {
        let spec = spec(&with(llada(), "n_kv_heads", given)).unwrap();
        let attention = spec.layers[0].attention().unwrap();
        (attention.kv_heads, attention.qkv.outputs())
    };
    assert_eq!(kv_heads(json!(1)), (1, 24 + 2 * 8));
    assert_eq!(kv_heads(Value::Null), (3, 3 * 24));
}
