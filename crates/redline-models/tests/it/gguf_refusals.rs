//! GGUF files that do not describe a model, or one that would be computed in another way.

use redline_kernels::Format;
use redline_models::{LoadOptions, Loader, Weights, gguf_config};
use redline_weights::Gguf;
use serde_json::{Value, json};

use redline_testing::gguf::Writer;

const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
/// Types of tensors.
const OF_F32: u32 = 0;
const OF_IQ2_XXS: u32 = 16;

/// A value of the metadata.
#[derive(Clone, Copy)]
enum Set {
    Count(u32),
    Counts(&'static [u32]),
    Number(f32),
    Flag(bool),
    Text(&'static str),
    Nothing,
}
use Set::{Count, Counts, Flag, Nothing, Number, Text};

const KEYS: &[(&str, Set)] = &[
    ("general.architecture", Text("llama")),
    ("llama.context_length", Count(16)),
    ("llama.embedding_length", Count(32)),
    ("llama.block_count", Count(1)),
    ("llama.feed_forward_length", Count(48)),
    ("llama.attention.head_count", Count(2)),
    ("llama.attention.head_count_kv", Count(1)),
    ("llama.attention.layer_norm_rms_epsilon", Number(1e-5)),
];
const TENSORS: &[(&str, &[u64])] = &[
    ("token_embd.weight", &[24, 32]),
    ("blk.0.attn_norm.weight", &[32]),
    ("blk.0.attn_q.weight", &[32, 32]),
    ("blk.0.attn_k.weight", &[16, 32]),
    ("blk.0.attn_v.weight", &[16, 32]),
    ("blk.0.attn_output.weight", &[32, 32]),
    ("blk.0.ffn_norm.weight", &[32]),
    ("blk.0.ffn_gate.weight", &[48, 32]),
    ("blk.0.ffn_up.weight", &[48, 32]),
    ("blk.0.ffn_down.weight", &[32, 48]),
    ("output_norm.weight", &[32]),
];

/// What differs from a model that is loaded.
type Change<'a> = (&'a [(&'a str, Set)], &'a [(&'a str, &'a [u64], u32)]);

/// The metadata with a value more.
fn set(writer: Writer, key: &str, value: Set) -> Writer {
    let counts = |counts: &[u32]| counts.iter().map(|count| count.to_le_bytes()).collect::<Vec<_>>();
    match value {
        Count(count) => writer.number(key, U32, &count.to_le_bytes()),
        Counts(list) => writer.numbers(key, I32, &counts(list)),
        Number(number) => writer.number(key, F32, &number.to_le_bytes()),
        Flag(flag) => writer.number(key, BOOL, &[u8::from(flag)]),
        Text(text) => writer.string(key, text),
        Nothing => writer,
    }
}

/// The message of a file with other keys and tensors; a tensor without a shape is left out. `None`: it is accepted.
fn refused((keys, tensors): Change<'_>) -> Option<String> {
    let others = keys.iter().filter(|(key, _)| !KEYS.iter().any(|(known, _)| known == key));
    let mut writer = Writer::new();
    for (key, value) in KEYS.iter().chain(others) {
        let value = keys.iter().find(|(changed, _)| changed == key).map_or(*value, |(_, value)| *value);
        writer = set(writer, key, value);
    }
    let others = tensors.iter().filter(|(name, ..)| !TENSORS.iter().any(|(known, _)| known == name));
    let known = TENSORS.iter().map(|(name, shape)| (*name, *shape, OF_F32));
    for (name, shape, number) in known.chain(others.copied()) {
        let changed = tensors.iter().find(|(changed, ..)| *changed == name);
        let (_, shape, number) = changed.copied().unwrap_or((name, shape, number));
        if !shape.is_empty() {
            // Ones, so that factors are valid.
            let values = shape.iter().product::<u64>() as usize;
            let data = if number == OF_F32 { 1f32.to_le_bytes().repeat(values) } else { vec![0; values] };
            writer = writer.tensor(name, shape, number, &data);
        }
    }
    let gguf = Gguf::from_bytes("x.gguf", writer.finish().leak()).unwrap();
    let load = || {
        let config = gguf_config::config(&gguf)?;
        Loader::new(&config, Weights::Gguf(&gguf), LoadOptions::default()).map(|loader| loader.format())
    };
    match load() {
        Ok(format) => {
            assert_eq!(format, Format::F32);
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn experts_that_llama_cpp_chooses_by_a_softmax_are_not_those_of_lfm2() {
    let of = |function| {
        let keys =
            [("general.architecture", Text("lfm2moe")), ("lfm2moe.expert_gating_func", Count(function))];
        refused((&keys, &[])).unwrap()
    };
    assert!(
        ["expert_gating_func` is 1", "`2` (sigmoid)"].iter().all(|part| of(1).contains(part)),
        "{}",
        of(1)
    );
    assert!(of(2).contains("lfm2moe.expert_count"), "{}", of(2));
}

#[test]
fn keys_that_change_the_result_are_honoured_or_refused_by_name() {
    assert_eq!(refused((&[], &[])), None);
    let refused: [(Set, &str, &[&str]); 22] = [
        (Text("quux"), "general.architecture", &["`quux` is not known"]),
        (Nothing, "general.architecture", &["general.architecture"]),
        (Nothing, "llama.context_length", &["llama.context_length", "missing"]),
        (Counts(&[2, 3]), "llama.attention.head_count", &["the same for all layers"]),
        (Count(0), "llama.attention.head_count", &["head_count"]),
        (Count(3), "llama.attention.head_count", &["a divisor of 32"]),
        (Count(0), "llama.block_count", &["num_hidden_layers"]),
        (Count(8), "llama.expert_count", &["`llama.expert_used_count`", "missing"]),
        (
            Count(8),
            "llama.leading_dense_block_count",
            &["leading_dense_block_count` is 8", "`0`, or no such key"],
        ),
        (Number(5.0), "llama.attention.clamp_kqv", &["clamp_kqv"]),
        (Number(30.0), "llama.final_logit_softcapping", &["final_logit_softcapping"]),
        (Count(4), "llama.attention.sliding_window", &["sliding_window"]),
        (Flag(false), "llama.attention.causal", &["`true`"]),
        (Count(8), "llama.attention.value_length", &["value_length", "`16`"]),
        (Count(32), "llama.rope.dimension_count", &["at most 16"]),
        (Count(8), "llama.rope.dimension_count", &["partial_rotary_factor"]),
        (Text("ntk"), "llama.rope.scaling.type", &["`linear`"]),
        (Text("longrope"), "llama.rope.scaling.type", &["factors"]),
        (Number(0.5), "llama.rope.scaling.factor", &["at least 1"]),
        (Number(-1.0), "llama.rope.freq_base", &["rope_theta", "positive"]),
        (Text("x"), "llama.feed_forward_length", &["feed_forward_length"]),
        (Number(-1.0), "llama.attention.layer_norm_rms_epsilon", &["rms_norm_eps"]),
    ];
    for (value, key, expect) in refused {
        let message = self::refused((&[(key, value)], &[])).unwrap_or_else(|| panic!("{key} is accepted"));
        assert!(expect.iter().all(|part| message.contains(part)), "{key}: {message}");
        assert!(message.contains("x.gguf"), "{message}");
    }
    let accepted: [(&str, Set); 8] = [
        ("llama.attention.head_count", Counts(&[2, 2])),
        ("llama.expert_count", Count(0)),
        ("llama.attention.causal", Flag(true)),
        ("llama.rope.dimension_count", Count(16)),
        ("llama.rope.scaling.type", Text("none")),
        ("llama.rope.scaling.factor", Number(4.0)),
        ("llama.vocab_size", Count(24)),
        ("general.name", Text("a model")),
    ];
    for (key, value) in accepted {
        assert_eq!(self::refused((&[(key, value)], &[])), None, "{key}");
    }
    // As llama.cpp's converter writes Hunyuan, whose base is enlarged already.
    let enlarged = [
        ("llama.rope.scaling.type", Text("none")),
        ("llama.rope.scaling.factor", Number(1.0)),
        ("llama.rope.scaling.original_context_length", Count(262_144)),
    ];
    assert_eq!(self::refused((&enlarged, &[])), None);
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let refused: [(&str, &[u64], u32, &[&str]); 8] = [
        ("token_embd.weight", &[], OF_F32, &["token_embd.weight"]),
        ("blk.0.ffn_up.weight", &[], OF_F32, &["blk.0.ffn_up.weight"]),
        (
            "blk.0.ffn_up.weight",
            &[32, 48],
            OF_F32,
            &["`blk.0.ffn_up.weight` has the shape [32, 48]", "[48, 32]"],
        ),
        ("blk.1.attn_q.weight", &[32, 32], OF_F32, &["1 tensors are not part", "`blk.1.attn_q.weight`"]),
        // Other models have it.
        ("blk.0.attn_norm.bias", &[32], OF_F32, &["1 tensors are not part", "`blk.0.attn_norm.bias`"]),
        ("rope_freqs.weight", &[7], OF_F32, &["rope_factors", "8 positive numbers"]),
        ("rope_freqs.weight", &[4096], OF_F32, &["rope_freqs.weight", "4096 values"]),
        ("rope_factors_long.weight", &[8], OF_F32, &["rope.scaling.type"]),
    ];
    for (name, shape, number, expect) in refused {
        let message =
            self::refused((&[], &[(name, shape, number)])).unwrap_or_else(|| panic!("{name} is accepted"));
        assert!(expect.iter().all(|part| message.contains(part)), "{name}: {message}");
    }
    assert_eq!(self::refused((&[], &[("rope_freqs.weight", &[8], OF_F32)])), None);
    assert_eq!(self::refused((&[], &[("output.weight", &[24, 32], OF_F32)])), None, "a head of its own");
    // Rows of a type that is not read, in a model that is wide enough for its blocks.
    let wide: [(&str, &[u64], u32); 8] = [
        ("token_embd.weight", &[24, 256], OF_F32),
        ("blk.0.attn_norm.weight", &[256], OF_F32),
        ("blk.0.attn_q.weight", &[256, 256], OF_IQ2_XXS),
        ("blk.0.attn_k.weight", &[128, 256], OF_F32),
        ("blk.0.attn_v.weight", &[128, 256], OF_F32),
        ("blk.0.ffn_norm.weight", &[256], OF_F32),
        ("output_norm.weight", &[256], OF_F32),
        ("blk.0.ffn_down.weight", &[256, 48], OF_F32),
    ];
    let message = self::refused((&[("llama.embedding_length", Count(256))], &wide)).unwrap();
    assert!(message.contains("blk.0.attn_q.weight") && message.contains("IQ2_XXS"), "{message}");
}

#[test]
fn experts_are_one_tensor_of_each_layer() {
    let keys = [
        ("general.architecture", Text("qwen2moe")),
        ("qwen2moe.context_length", Count(16)),
        ("qwen2moe.embedding_length", Count(32)),
        ("qwen2moe.block_count", Count(1)),
        ("qwen2moe.feed_forward_length", Count(48)),
        ("qwen2moe.attention.head_count", Count(2)),
        ("qwen2moe.attention.head_count_kv", Count(1)),
        ("qwen2moe.expert_count", Count(4)),
        ("qwen2moe.expert_used_count", Count(2)),
        ("qwen2moe.expert_feed_forward_length", Count(20)),
        ("qwen2moe.expert_shared_feed_forward_length", Count(24)),
    ];
    let tensors: [(&str, &[u64], u32); 11] = [
        ("blk.0.ffn_gate.weight", &[], OF_F32),
        ("blk.0.ffn_up.weight", &[], OF_F32),
        ("blk.0.ffn_down.weight", &[], OF_F32),
        ("blk.0.ffn_gate_inp.weight", &[4, 32], OF_F32),
        ("blk.0.ffn_gate_exps.weight", &[4, 20, 32], OF_F32),
        ("blk.0.ffn_up_exps.weight", &[4, 20, 32], OF_F32),
        ("blk.0.ffn_down_exps.weight", &[4, 32, 20], OF_F32),
        ("blk.0.ffn_gate_inp_shexp.weight", &[1, 32], OF_F32),
        ("blk.0.ffn_gate_shexp.weight", &[24, 32], OF_F32),
        ("blk.0.ffn_up_shexp.weight", &[24, 32], OF_F32),
        ("blk.0.ffn_down_shexp.weight", &[32, 24], OF_F32),
    ];
    let with = |name: &'static str, shape: &'static [u64]| {
        let other =
            |of: &(&'static str, &'static [u64], u32)| if of.0 == name { (name, shape, of.2) } else { *of };
        refused((&keys, &tensors.each_ref().map(other)))
    };
    assert_eq!(with("", &[]), None);
    assert_eq!(with("blk.0.ffn_gate_inp_shexp.weight", &[32]), None, "a matrix of one row may be a vector");
    for (name, shape, expect) in [
        ("blk.0.ffn_gate_inp_shexp.weight", &[2, 32][..], "[2, 32], but [1, 32] is needed"),
        ("blk.0.ffn_up_exps.weight", &[3, 20, 32], "[3, 20, 32], but [4, 20, 32] is needed"),
        ("blk.0.ffn_down_exps.weight", &[], "blk.0.ffn_down_exps.weight"),
        (
            "blk.0.ffn_up.weight",
            &[48, 32],
            "1 tensors are not part of this architecture: `blk.0.ffn_up.weight`",
        ),
    ] {
        let message = with(name, shape).unwrap_or_else(|| panic!("{name} is accepted"));
        assert!(message.contains(expect), "{message}");
    }
    let more = [&keys[..8], &[("qwen2moe.expert_used_count", Count(5))], &keys[9..]].concat();
    let message = refused((&more, &tensors)).unwrap();
    assert!(message.contains("`num_experts_per_tok` 5 is more than `num_experts` 4"), "{message}");
}

/// Metadata of a model of which some layers are Mamba-2, with changes.
fn hybrid(architecture: &str, changes: &[(&str, Set)]) -> Result<Value, String> {
    let of: [(&str, Set); 15] = [
        ("context_length", Count(16)),
        ("embedding_length", Count(32)),
        ("block_count", Count(4)),
        ("feed_forward_length", Counts(&[0, 48, 0, 0])),
        ("attention.head_count", Count(2)),
        ("attention.head_count_kv", Counts(&[0, 0, 1, 0])),
        ("attention.layer_norm_rms_epsilon", Number(0.25)),
        ("ssm.conv_kernel", Count(4)),
        ("ssm.inner_size", Count(64)),
        ("ssm.state_size", Count(8)),
        ("ssm.group_count", Count(1)),
        ("ssm.time_step_rank", Count(4)),
        ("rope.scaling.finetuned", Flag(false)),
        ("nextn_predict_layers", Nothing),
        ("attention.layer_norm_epsilon", Nothing),
    ];
    let others = changes.iter().filter(|(key, _)| !of.iter().any(|(known, _)| known == key));
    let mut writer = Writer::new().string("general.architecture", architecture);
    for (key, value) in of.iter().chain(others) {
        let value = changes.iter().find(|(changed, _)| changed == key).map_or(*value, |(_, value)| *value);
        writer = set(writer, &format!("{architecture}.{key}"), value);
    }
    let writer = writer.tensor("token_embd.weight", &[24, 32], OF_F32, &[0; 4 * 24 * 32]);
    let gguf = Gguf::from_bytes("x.gguf", writer.finish().leak()).unwrap();
    let json = gguf_config::config_json(&gguf).map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&json).unwrap())
}

/// The layer at the end that predicts further tokens has a KV head and a feed-forward width.
#[test]
fn layers_of_nemotron_h_are_told_by_their_kv_heads_and_widths() {
    let kinds = |changes: &[(&str, Set)]| {
        let config = hybrid("nemotron_h", changes).unwrap();
        (
            config["layers_block_type"].clone(),
            config["num_hidden_layers"].clone(),
            config["intermediate_size"].clone(),
        )
    };
    let all = json!(["mamba", "mlp", "attention", "mamba"]);
    assert_eq!(kinds(&[]), (all, json!(4), json!(48)));
    let further = [
        ("nextn_predict_layers", Count(1)),
        ("feed_forward_length", Counts(&[0, 48, 0, 20])),
        ("attention.head_count_kv", Counts(&[0, 0, 1, 1])),
    ];
    assert_eq!(kinds(&further), (json!(["mamba", "mlp", "attention"]), json!(3), json!(48)));
    let eps = |changes: &[(&str, Set)]| hybrid("nemotron_h", changes).unwrap()["layer_norm_epsilon"].clone();
    assert_eq!(eps(&[]), json!(0.25));
    let other = ("attention.layer_norm_epsilon", Number(0.5));
    assert_eq!(eps(&[other, ("attention.layer_norm_rms_epsilon", Nothing)]), json!(0.5));
}

#[test]
fn keys_of_hybrids_fit_each_other() {
    for (architecture, changes, expect) in [
        ("nemotron_h", &[("nextn_predict_layers", Count(4))][..], "fewer than `block_count`"),
        ("nemotron_h", &[("block_count", Count(1 << 15))], "block_count` is 32768"),
        ("nemotron_h", &[("ssm.inner_size", Count(63))], "a multiple of `ssm.time_step_rank`, 4"),
        ("nemotron_h", &[("ssm.time_step_rank", Count(0))], "ssm.inner_size"),
        ("nemotron_h", &[("attention.head_count_kv", Counts(&[1, 0, 2, 0]))], "all layers with attention"),
        ("nemotron_h", &[("feed_forward_length", Counts(&[0, 48]))], "a number for each of 4 layers"),
        (
            "granitehybrid",
            &[("feed_forward_length", Count(48)), ("ssm.inner_size", Count(68))],
            "a multiple of `embedding_length`, 32",
        ),
        ("granitehybrid", &[], "feed_forward_length"),
        ("granitehybrid", &[("feed_forward_length", Count(48))], "expert_shared_feed_forward_length"),
        ("falcon-h1", &[("feed_forward_length", Count(48))], "attention.head_count_kv"),
    ] {
        let refused = hybrid(architecture, changes).unwrap_err();
        assert!(refused.contains(expect), "{architecture}: {refused}");
    }
}

/// A file of RoBERTa names its padding token, whose position it leaves out.
#[test]
fn a_padding_token_that_is_missing_or_beyond_the_vocabulary_is_refused() {
    let refused = |padding: Set, context: u32| {
        let keys = [
            ("general.architecture", Text("bert")),
            ("bert.context_length", Count(context)),
            ("bert.embedding_length", Count(32)),
            ("bert.block_count", Count(1)),
            ("bert.feed_forward_length", Count(48)),
            ("bert.attention.head_count", Count(2)),
            ("tokenizer.ggml.model", Text("gpt2")),
            ("tokenizer.ggml.padding_token_id", padding),
        ];
        self::refused((&keys, &[])).unwrap()
    };
    for (padding, said) in [(Count(24), "below 24"), (Nothing, "")] {
        let message = refused(padding, 16);
        assert!(message.contains("tokenizer.ggml.padding_token_id") && message.contains(said), "{message}");
    }
    assert!(refused(Count(23), u32::MAX - 23).contains("bert.context_length"));
    // Other tensors are those of Llama.
    assert!(refused(Count(23), 16).contains("position_embd.weight"));
}
