//! LFM2 and LFM2.5 (Liquid AI 2025): short convolutions between gates, and grouped-query attention in some layers.

use redline_kernels::op::conv::MAX_TAPS;
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family::{self, Heads, check_eps, dimension_or, layers, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, DecoderSpec, FfnSpec, HEAD, LayerSpec, LinearSpec, MixerSpec, NormKind, NormSpec,
    NormsSpec, Objective, Orientation, PositionSpec, Residual, Role, ShortConvSpec, TensorSpec,
};

/// In `config.json`: `Lfm2ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Lfm2ForCausalLM", model_type: "lfm2", spec, gguf: Some(GGUF) };

/// In `config.json`: `Lfm2BidirectionalModel`, an encoder whose convolutions see as many rows on either side.
pub const ENCODER: Architecture =
    Architecture { name: "Lfm2BidirectionalModel", spec: encoder, gguf: None, ..ARCHITECTURE };

const GGUF: GgufDialect =
    GgufDialect { final_norm: "token_embd_norm", ..GgufDialect::new("lfm2", gguf_of_either) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &KEYS)?;
    decoder(config, inner(config)?)
}

fn encoder(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[&KEYS[..], &["auto_map"]].concat())?;
    let mut spec = decoder(config, inner(config)?)?;
    for layer in &mut spec.layers {
        if let MixerSpec::ShortConv(conv) = &mut layer.mixer {
            if conv.taps < 3 || conv.taps.is_multiple_of(2) {
                let supported = "an odd number of at least 3 (for an encoder)";
                return Err(config.refuse("conv_L_cache", supported).into());
            }
            conv.after = conv.taps / 2;
        }
    }
    Ok(DecoderSpec { objective: Objective::STATES, tied: true, ..spec })
}

/// The sensitive keys that the family honours.
pub(super) const KEYS: [&str; 3] = ["layer_types", "rope_scaling", "rope_parameters"];

/// The names of the projections of the feed-forward part.
pub(super) const NAMES: Names = Names { module: "feed_forward", gate: "w1", up: "w3", down: "w2" };

/// A decoder whose feed-forward parts have this inner width.
pub(super) fn decoder(config: &ConfigFile, inner: usize) -> Result<DecoderSpec, ModelError> {
    // In the reference these default to the values of one model.
    family::require(config, &["num_key_value_heads", "num_hidden_layers"])?;
    let hidden = positive(config, "hidden_size")?;
    let heads = Heads::read(config, hidden)?;
    let sizes = Sizes {
        hidden,
        eps: check_eps(config, "norm_eps", config.f32_or("norm_eps", 1e-5)?)?,
        taps: taps(config)?,
        bias: config.bool_or("conv_bias", false)?,
    };
    let convolves = convolves(config)?;
    let rules = Rules { default_theta: 1_000_000.0, ..Rules::default() };
    let layer = |(i, convolves): (usize, &bool)| LayerSpec {
        mixer: if *convolves {
            MixerSpec::ShortConv(sizes.conv(i))
        } else {
            MixerSpec::Attention(sizes.attention(i, &heads))
        },
        mixer_norms: NormsSpec::before(sizes.norm(format!("layers.{i}.operator_norm"), hidden)),
        mlp: FfnSpec::Dense(experts::expert(&format!("layers.{i}.{}", NAMES.module), hidden, inner, NAMES)),
        mlp_norms: NormsSpec::before(sizes.norm(format!("layers.{i}.ffn_norm"), hidden)),
        residual: Residual::default(),
        end: None,
    };
    let tied = config.bool_or("tie_word_embeddings", true)?;
    Ok(DecoderSpec {
        prefix: "model.",
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: positive(config, "max_position_embeddings")?,
        embedding: "embed_tokens".into(),
        positions: PositionSpec::Rotary(vec![rotary::rotation(config, heads.dim, rules)?]),
        layers: convolves.iter().enumerate().map(layer).collect(),
        // Its name notwithstanding, it is not a norm of the embedding.
        final_norm: Some(sizes.norm("embedding_norm".into(), hidden)),
        // The first configurations have this key instead.
        tied: config.bool_or("tie_embedding", tied)?,
        outside: &[HEAD],
        ignored: &["rotary_emb.inv_freq"],
        ..DecoderSpec::default()
    })
}

/// What all layers have in common.
struct Sizes {
    hidden: usize,
    eps: f32,
    taps: usize,
    bias: bool,
}

impl Sizes {
    fn norm(&self, name: String, width: usize) -> NormSpec {
        NormSpec { name, width, eps: self.eps, kind: NormKind::Rms }
    }

    fn conv(&self, layer: usize) -> ShortConvSpec {
        let &Self { hidden, taps, bias, .. } = self;
        let name = |part: &str| format!("layers.{layer}.conv.{part}");
        let linear =
            |part: &str, outputs| LinearSpec::of(Orientation::OutIn, hidden, [(name(part), outputs, bias)]);
        ShortConvSpec {
            channels: hidden,
            taps,
            after: 0,
            input: linear("in_proj", 3 * hidden),
            weights: TensorSpec::new(name("conv.weight"), [hidden, 1, taps], Role::Taps),
            bias: bias.then(|| TensorSpec::new(name("conv.bias"), [hidden], Role::Bias)),
            output: linear("out_proj", hidden),
        }
    }

    fn attention(&self, layer: usize, heads: &Heads) -> AttentionSpec {
        let name = |part: &str| format!("layers.{layer}.self_attn.{part}");
        let &Heads { query, kv, dim } = heads;
        let parts = [("q_proj", query), ("k_proj", kv), ("v_proj", kv)];
        let parts = parts.map(|(part, heads)| (name(part), heads * dim, false));
        let norm = |part| self.norm(name(part), dim);
        let qkv = LinearSpec::of(Orientation::OutIn, self.hidden, parts);
        let output = LinearSpec::plain(name("out_proj"), query * dim, self.hidden);
        AttentionSpec {
            rotation: Some(0),
            query_norm: Some(norm("q_layernorm")),
            key_norm: Some(norm("k_layernorm")),
            ..AttentionSpec::new(query, kv, dim, qkv, output)
        }
    }
}

/// The width of the feed-forward part: unless the configuration says otherwise, two thirds of the given one times a factor, rounded up to
/// whole multiples.
fn inner(config: &ConfigFile) -> Result<usize, ModelError> {
    // The first configurations have this key, which overrides the other.
    let old = "block_ff_dim";
    let key = if config.opt_usize(old)?.is_some() { old } else { "intermediate_size" };
    let given = positive(config, key)?;
    if !config.bool_or("block_auto_adjust_ff_dim", true)? {
        return Ok(given);
    }
    let adjusted = (2.0 * given as f64 / 3.0).floor();
    const FACTOR: &str = "block_ffn_dim_multiplier";
    let is_null = config.keys().any(|key| key == FACTOR) && config.opt_f64(FACTOR)?.is_none();
    if is_null {
        return Ok(adjusted as usize);
    }
    let scaled = (config.opt_f64(FACTOR)?.unwrap_or(1.0) * adjusted).floor();
    if !(1.0..=given as f64 * 16.0).contains(&scaled) {
        return Err(config.refuse(FACTOR, "a positive factor up to 16").into());
    }
    Ok((scaled as usize).next_multiple_of(dimension_or(config, "block_multiple_of", 256)?))
}

/// Number of taps of the convolutions.
fn taps(config: &ConfigFile) -> Result<usize, ModelError> {
    match dimension_or(config, "conv_L_cache", 3)? {
        taps if taps <= MAX_TAPS => Ok(taps),
        _ => Err(config.refuse("conv_L_cache", format!("at most {MAX_TAPS}")).into()),
    }
}

/// Whether each layer is a convolution.
fn convolves(config: &ConfigFile) -> Result<Vec<bool>, ModelError> {
    let count = layers(config, "num_hidden_layers")?;
    let kinds = [("conv", true), ("full_attention", false)];
    if let Some(convolves) = family::by_layer_type(config, count, kinds)? {
        return Ok(convolves);
    }
    let attends = family::by_layer_index(config, count, "full_attn_idxs")?.unwrap_or(vec![true; count]);
    Ok(attends.into_iter().map(|attends| !attends).collect())
}

/// A file of an encoder says so.
fn gguf_of_either(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    if keys.is_encoder()? {
        keys.rename(ENCODER.name, ENCODER.model_type);
    }
    const OF_TOKENS: &str = "dense_2.weight";
    if keys.has(OF_TOKENS) {
        let fact =
            format!("`{OF_TOKENS}` makes vectors of tokens; take the checkpoint that the file was made from");
        return Err(keys.unsupported(fact));
    }
    gguf(keys)
}

/// A layer without KV heads is a convolution. The width of the feed-forward part is the final one.
pub(super) fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let attends = keys.set_hybrid()?;
    keys.copy_counts(&[("feed_forward_length", "intermediate_size"), ("shortconv.l_cache", "conv_L_cache")])?;
    let kind = |attends: &bool| if *attends { "full_attention" } else { "conv" };
    keys.config().set("block_auto_adjust_ff_dim", false);
    keys.config().set("layer_types", attends.iter().map(kind).collect::<Vec<_>>());
    let conv = attends.iter().position(|attends| !attends);
    keys.set_presence("conv_bias", &format!("blk.{}.shortconv.conv.bias", conv.unwrap_or(0)));
    keys.copy_numbers(&[("attention.layer_norm_rms_epsilon", "norm_eps")])
}
