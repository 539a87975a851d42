//! Gemma 4 (Gemma Team 2026), text only: as Gemma 3, with wider heads in layers without a window, norms of values, keys and values
//! that the last layers take from earlier ones, experts beside the feed-forward part, per-layer inputs, and a factor at the end of each.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::kv::MAX_HEAD_DIM;
use redline_weights::{ConfigFile, ConfigObject};

use super::{Architecture, gemma2};
use crate::ModelError;
use crate::experts;
use crate::family::{self, HeadNorms, Heads, Options, check_head_dim, config_error, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, DecoderSpec, DenseAndExpertsSpec, DenseLayerSpec, ExpertsSpec, FfnSpec, KeyValues,
    LayerEndSpec, LayerInputsSpec, LinearSpec, MlpSpec, NormKind, NormSpec, Orientation,
    PerLayerInputGateSpec, Role, TensorSpec, WeightingSpec,
};

/// In `config.json`: `Gemma4ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Gemma4ForCausalLM", model_type: "gemma4_text", spec, gguf: Some(GGUF) };
/// In `config.json`: `Gemma4ForConditionalGeneration`, of which images and sounds are not read.
pub const WITH_IMAGES: Architecture = Architecture {
    name: "Gemma4ForConditionalGeneration",
    model_type: "gemma4",
    spec: |config| family::of_text(config, spec),
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect::new("gemma4", gguf);

/// The parts of a model that reads images and sounds besides its decoder.
const OTHERS: &[&str] = &[
    "rotary_emb.inv_freq",
    "model.vision_tower.",
    "model.audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    const KEYS: &[&str] = &[
        "attention_bias",
        "sliding_window",
        "layer_types",
        "rope_parameters",
        "final_logit_softcapping",
        "use_bidirectional_attention",
        "num_experts",
        "moe_intermediate_size",
    ];
    keys::refuse_unknown(config, KEYS)?;
    // In the reference these default to the values of one model.
    family::require(config, &["num_key_value_heads", "head_dim", "sliding_window"])?;
    let rotations = config.object("rope_parameters")?;
    for kind in ["full_attention", "sliding_attention"] {
        if rotations.as_ref().map_or(Ok(None), |rotations| rotations.object(kind))?.is_none() {
            let supported = "objects `full_attention` and `sliding_attention`";
            return Err(config.refuse("rope_parameters", supported).into());
        }
    }
    // Images may see what comes after them; texts do not.
    if config.opt_str("use_bidirectional_attention")?.is_some_and(|seen| seen != "vision") {
        return Err(config.refuse("use_bidirectional_attention", "`vision` or `null`").into());
    }
    let slides = |layer: usize| !(layer + 1).is_multiple_of(6);
    let mut windows = family::windows(config, family::sliding_window(config)?, slides)?;
    // As in the reference, whatever the key says.
    if let Some(last) = windows.last_mut() {
        *last = None;
    }
    let options = Options {
        norm: NormKind::Rms,
        head_norms: HeadNorms::Each,
        rotary: Rules { proportional: true, ..Rules::default() },
        ..gemma2::options(config, windows)?
    };
    let one_projection = config.bool_or("attention_k_eq_v", false)?;
    let heads = full_heads(config, &options.windows, one_projection)?;
    let rotations = |config: &ConfigFile, dim| {
        rotary::rotations_by_layer_type(config, [heads.dim, dim], options.rotary, None)
    };
    let mut spec = family::decoder_with(config, &options, rotations)?;
    gemma2::norm_around(&mut spec);
    spec.embedding_scale = (spec.hidden as f32).sqrt();
    spec.logits.softcap = gemma2::cap(config, "final_logit_softcapping", None)?;
    spec.ignored = OTHERS;
    attend(&mut spec, &heads, one_projection, options.qkv_bias);
    share(config, &mut spec)?;
    if config.bool_or("enable_moe_block", false)? {
        add_experts(config, &mut spec)?;
    }
    end(config, &mut spec)?;
    Ok(spec)
}

/// The width of heads, and the number of those of keys and values, in layers without a window: `global_head_dim` and
/// `num_global_key_value_heads`, or as transformers 5.24 writes it, what `per_layer_config` says of the first of them.
fn full_heads(
    config: &ConfigFile,
    windows: &[Option<usize>],
    one_projection: bool,
) -> Result<Heads, ModelError> {
    let first = windows.iter().position(Option::is_none).unwrap_or(0);
    let kv = positive(config, "num_key_value_heads")?;
    let (dim, kv) = match config.object("per_layer_config")? {
        // What is absent is as in other layers. The numbers of layers have leading zeros.
        Some(layers) => {
            let key = layers.keys().find(|key| key.parse() == Ok(first)).map(str::to_owned);
            let layer = key.map_or(Ok(None), |key| layers.object(&key))?;
            let size =
                |key, default| layer.as_ref().map_or(Ok(default), |layer| layer.usize_or(key, default));
            (size("head_dim", positive(config, "head_dim")?)?, size("num_key_value_heads", kv)?)
        }
        None => {
            let of_full = config.opt_usize("num_global_key_value_heads")?.filter(|_| one_projection);
            (config.usize_or("global_head_dim", 512)?, of_full.unwrap_or(kv))
        }
    };
    check_head_dim(config, dim)?;
    let query = positive(config, "num_attention_heads")?;
    if kv == 0 || query % kv != 0 || dim % 2 != 0 {
        let fact =
            format!("layers without a window have {query} heads of {dim} values and {kv} of keys and values");
        return Err(config_error(config, fact));
    }
    Ok(Heads { query, kv, dim })
}

/// Layers without a window have heads of their own; all have norms of their values, and nothing divides the logits.
fn attend(spec: &mut DecoderSpec, full: &Heads, one_projection: bool, bias: bool) {
    let hidden = spec.hidden;
    let (source, parts) = if one_projection {
        (KeyValues::OneProjection, &[("q_proj", full.query), ("k_proj", full.kv)][..])
    } else {
        (KeyValues::Projected, &[("q_proj", full.query), ("k_proj", full.kv), ("v_proj", full.kv)][..])
    };
    for (i, attention) in spec.attentions_mut().enumerate() {
        let name = |part: &str| format!("layers.{i}.self_attn.{part}");
        attention.rotation = Some(usize::from(attention.window.is_some()));
        if attention.window.is_none() {
            let norm =
                |norm: &Option<NormSpec>| norm.clone().map(|norm| NormSpec { width: full.dim, ..norm });
            let parts = parts.iter().map(|(part, heads)| (name(part), heads * full.dim, bias));
            let qkv = LinearSpec::of(Orientation::OutIn, hidden, parts);
            let output = [(name("o_proj"), hidden, bias)];
            let output = LinearSpec::of(Orientation::OutIn, full.query * full.dim, output);
            *attention = AttentionSpec {
                rotation: attention.rotation,
                source,
                query_norm: norm(&attention.query_norm),
                key_norm: norm(&attention.key_norm),
                ..AttentionSpec::new(full.query, full.kv, full.dim, qkv, output)
            };
        }
        attention.scale = 1.0;
        let unweighted =
            |norm: NormSpec| NormSpec { name: name("v_norm"), kind: NormKind::RmsUnweighted, ..norm };
        attention.value_norm = attention.key_norm.clone().map(unweighted);
    }
}

/// The last `num_kv_shared_layers` layers take their keys and values from the last earlier layer of their kind, and may have a
/// feed-forward part of twice the width.
fn share(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    const KEY: &str = "num_kv_shared_layers";
    let count = spec.layers.len();
    let shared = config.usize_or(KEY, 0)?;
    let Some(own) = count.checked_sub(shared).filter(|own| *own > 0) else {
        return Err(config.refuse(KEY, format!("fewer than {count} layers")).into());
    };
    let is_wide = config.bool_or("use_double_wide_mlp", false)?;
    let (earlier, later) = spec.layers.split_at_mut(own);
    for (i, layer) in later.iter_mut().enumerate() {
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        let slides = attention.window.is_some();
        let is_donor = |it: &AttentionSpec| it.window.is_some() == slides;
        let Some(donor) = earlier.iter().rposition(|layer| layer.attention().is_some_and(is_donor)) else {
            let fact = format!(
                "layer {} shares keys and values, but none of the first {own} is of its kind",
                own + i
            );
            return Err(config_error(config, fact));
        };
        attention.source = KeyValues::OfLayer(donor);
        attention.qkv.parts.truncate(1);
        (attention.key_norm, attention.value_norm) = (None, None);
        for part in ["k_proj", "v_proj", "k_norm"] {
            spec.unread.push(format!("layers.{}.self_attn.{part}.weight", own + i));
        }
        if let (true, FfnSpec::Dense(mlp)) = (is_wide, &mut layer.mlp) {
            mlp.up.parts.iter_mut().for_each(|part| part.outputs *= 2);
            mlp.down.inputs *= 2;
        }
    }
    Ok(())
}

/// Every layer has experts beside its feed-forward part, whose norm before becomes a part of both.
fn add_experts(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    const NAMES: experts::Names =
        experts::Names { module: "experts", gate: "gate_proj", up: "up_proj", down: "down_proj" };
    let (count, top_k) = experts::counts_of(config, &["num_experts"], "top_k_experts")?;
    let (hidden, inner) = (spec.hidden, positive(config, "moe_intermediate_size")?);
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        let name = |part: &str| format!("layers.{i}.{part}");
        let mlp = std::mem::replace(&mut layer.mlp, FfnSpec::None);
        let (FfnSpec::Dense(mlp), Some(before)) = (mlp, layer.mlp_norms.before.take()) else { continue };
        let norm = |part: &str| NormSpec { name: name(part), ..before.clone() };
        let one = |id| MlpSpec {
            gate: mlp.gate,
            ..experts::expert(&name(&format!("experts.{id}")), hidden, inner, NAMES)
        };
        let mut experts = ExpertsSpec {
            router: LinearSpec::plain(name("router.proj"), hidden, count),
            weighting: WeightingSpec::Softmax {
                normalise: true,
                factors: Some(TensorSpec::new(name("router.per_expert_scale"), [count], Role::Scale)),
            },
            experts: (0..count).map(one).collect(),
            grouped: false,
            top_k,
            shared: None,
        };
        experts.stack([&name("experts.gate_up_proj"), &name("experts.down_proj")]);
        layer.mlp = FfnSpec::Both(Box::new(DenseAndExpertsSpec {
            norms: [before.clone(), norm("post_feedforward_layernorm_1")],
            mlp,
            router_norm: NormSpec { kind: NormKind::RmsOverRoot, ..norm("router") },
            experts_norms: [norm("pre_feedforward_layernorm_2"), norm("post_feedforward_layernorm_2")],
            experts,
        }));
    }
    Ok(())
}

/// The per-layer inputs, and the factor at the end of each layer.
fn end(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    const WIDTH: &str = "hidden_size_per_layer_input";
    /// Of all layers together.
    const MAX_WIDTH: usize = 1 << 24;
    let width = config.usize_or(WIDTH, 256)?;
    let (hidden, count) = (spec.hidden, spec.layers.len());
    let Some(norm) = spec.final_norm.clone() else { return Ok(()) };
    if width > 0 {
        const ROWS: &str = "vocab_size_per_layer_input";
        if config.usize_or(ROWS, 262_144)? != spec.vocab {
            return Err(config.refuse(ROWS, format!("{}, the size of the vocabulary", spec.vocab)).into());
        }
        let Some(all) = width.checked_mul(count).filter(|all| *all <= MAX_WIDTH) else {
            return Err(config.refuse(WIDTH, format!("at most {MAX_WIDTH} in {count} layers")).into());
        };
        spec.layer_inputs = Some(LayerInputsSpec {
            table: LinearSpec::plain("embed_tokens_per_layer".into(), all, spec.vocab),
            table_scale: (width as f32).sqrt(),
            projection: DenseLayerSpec {
                linear: LinearSpec::plain("per_layer_model_projection".into(), hidden, all),
                activation: ActivationFunction::None,
                norm: None,
            },
            projection_scale: 1.0 / (hidden as f32).sqrt(),
            norm: NormSpec { name: "per_layer_projection_norm".into(), width, ..norm.clone() },
        });
    }
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        let name = |part: &str| format!("layers.{i}.{part}");
        let input = (width > 0).then(|| PerLayerInputGateSpec {
            gate: LinearSpec::plain(name("per_layer_input_gate"), hidden, width),
            output: LinearSpec::plain(name("per_layer_projection"), width, hidden),
            norm: NormSpec { name: name("post_per_layer_input_norm"), ..norm.clone() },
        });
        let scale = TensorSpec::new(name("layer_scalar"), [1], Role::Scale);
        layer.end = Some(LayerEndSpec { input, scale });
    }
    Ok(())
}

/// Layers without a window are those whose sizes have no ending; the share of their heads that is rotated is in a tensor of factors.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    const FACTORS: &str = "rope_freqs.weight";
    let (slides, kv_heads) = (keys.slides(6)?, keys.counts("attention.head_count_kv")?);
    let (inner, vocab, is_tied) = (keys.counts("feed_forward_length")?, keys.vocab()?, keys.is_tied());
    let of_kind = |slides_too: bool| slides.iter().position(|slides| *slides == slides_too);
    let full = of_kind(false).unwrap_or(0);
    let first_kv =
        |slides_too| of_kind(slides_too).and_then(|layer| kv_heads.get(layer)).copied().unwrap_or(1);
    let experts = keys.opt_count("expert_count")?.unwrap_or(0);
    let (dim, sliding_dim) = (keys.head_dim()?, keys.count("attention.key_length_swa")?);
    for (key, dim) in [
        ("attention.value_length_swa", sliding_dim),
        ("rope.dimension_count", dim),
        ("rope.dimension_count_swa", sliding_dim),
    ] {
        if keys.opt_count(key)?.is_some_and(|count| count != dim) {
            return Err(keys.refuse(key, format!("`{dim}`, the values of a head")));
        }
    }
    for (key, size) in [
        ("max_position_embeddings", keys.count("context_length")?),
        ("hidden_size", keys.count("embedding_length")?),
        ("num_hidden_layers", keys.count("block_count")?),
        ("intermediate_size", inner.first().copied().unwrap_or(0)),
        ("num_attention_heads", keys.count("attention.head_count")?),
        ("num_key_value_heads", first_kv(true)),
        ("num_global_key_value_heads", first_kv(false)),
        ("head_dim", sliding_dim),
        ("global_head_dim", dim),
        ("sliding_window", keys.count("attention.sliding_window")?),
        ("num_kv_shared_layers", keys.opt_count("attention.shared_kv_layers")?.unwrap_or(0)),
        ("hidden_size_per_layer_input", keys.opt_count("embedding_length_per_layer_input")?.unwrap_or(0)),
        ("num_experts", experts),
        ("top_k_experts", keys.opt_count("expert_used_count")?.unwrap_or(0)),
        ("moe_intermediate_size", keys.opt_count("expert_feed_forward_length")?.unwrap_or(0)),
    ] {
        keys.config().set(key, size);
    }
    let factors = keys.values(FACTORS, MAX_HEAD_DIM / 2)?;
    let share = match factors {
        None => 1.0,
        // The first pairs turn; the factors of the others are so large that they do not.
        Some(all) => {
            let turning = all.iter().take_while(|factor| **factor == 1.0).count();
            if all.len() != dim as usize / 2 || all[turning..].iter().any(|factor| *factor < 1e30) {
                let fact = format!("`{FACTORS}` is not 1 for some pairs of a head and then 1e30");
                return Err(keys.unsupported(fact));
            }
            turning as f64 / all.len() as f64
        }
    };
    let (global, local) =
        (keys.number_or("rope.freq_base", 1e6)?, keys.number_or("rope.freq_base_swa", 1e4)?);
    let (mut of_full, mut of_sliding, mut rotations) =
        (ConfigObject::default(), ConfigObject::default(), ConfigObject::default());
    of_full.set("rope_type", "proportional");
    of_full.set("partial_rotary_factor", share);
    of_full.set("rope_theta", f64::from(global));
    of_sliding.set("rope_theta", f64::from(local));
    rotations.set("full_attention", of_full);
    rotations.set("sliding_attention", of_sliding);
    let has_values = keys.has(&format!("blk.{full}.attn_v.weight"));
    let config = keys.config();
    config.set("rope_parameters", rotations);
    config.set("enable_moe_block", experts > 0);
    config.set("attention_k_eq_v", !has_values);
    config.set("use_double_wide_mlp", inner.last() > inner.first());
    config.set("vocab_size", vocab);
    config.set("vocab_size_per_layer_input", vocab);
    config.set("tie_word_embeddings", is_tied);
    keys.set_layer_types(&slides);
    keys.copy_numbers(&[
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ])
}
