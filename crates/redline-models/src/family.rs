//! The decoder family of Llama: rotary positions, RMSNorm and a gated feed-forward part, with a few options. What only one
//! architecture changes, its file changes in the specification.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_kernels::op::kv::MAX_HEAD_DIM;
use redline_settings::Pooling;
use redline_weights::{ConfigFile, WeightsError};

use crate::ModelError;
use crate::labels;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, ClassifierSpec, DecoderSpec, DenseLayerSpec, FfnSpec, HEAD, LayerSpec, LinearSpec,
    LogitSpec, Mask, MixerSpec, MlpSpec, NormKind, NormSpec, NormsSpec, Objective, Orientation, PositionSpec,
    Residual, RotarySpec,
};

/// Options in which members of the family differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Whether queries, keys and values have biases.
    pub(crate) qkv_bias: bool,
    /// Whether the attention output has a bias.
    pub(crate) output_bias: bool,
    /// Whether the linear layers of the feed-forward part have biases.
    pub(crate) mlp_bias: bool,
    /// The norms of queries and keys.
    pub(crate) head_norms: HeadNorms,
    /// The kind of all norms.
    pub(crate) norm: NormKind,
    /// The activation of the gate.
    pub(crate) gate: Gate,
    /// Whether queries, keys and values are one tensor.
    pub(crate) fused_qkv: bool,
    /// Whether gate and up are one tensor.
    pub(crate) fused_gate: bool,
    /// Whether the head is the embedding if `tie_word_embeddings` is absent.
    pub(crate) default_tied: bool,
    /// What the keys of the rotation may say.
    pub(crate) rotary: Rules,
    /// Number of keys that a query of each layer sees; empty: no limit in any layer.
    pub(crate) windows: Vec<Option<usize>>,
    /// The key of the width of the feed-forward parts; `None`: `intermediate_size`.
    pub(crate) inner_key: Option<&'static str>,
    /// The key of the epsilon of the norms; `None`: `rms_norm_eps`.
    pub(crate) eps_key: Option<&'static str>,
    /// Its value if the key is absent.
    pub(crate) default_eps: f32,
}

/// Norms of queries and keys before their rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    /// None.
    #[default]
    None,
    /// Of every head.
    Each,
    /// Over all heads together.
    Whole,
}

/// The activation of the gate, which a key of the configuration names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gate {
    /// `hidden_act` is `silu`.
    #[default]
    Silu,
    /// `hidden_activation` is `gelu_pytorch_tanh`.
    Gelu,
}

impl Gate {
    fn read(self, config: &ConfigFile) -> Result<ActivationFunction, ModelError> {
        let (key, names, function) = match self {
            Self::Silu => ("hidden_act", ["silu", "swish"], ActivationFunction::Silu),
            Self::Gelu => {
                ("hidden_activation", ["gelu_pytorch_tanh", "gelu_new"], ActivationFunction::GeluNew)
            }
        };
        match config.opt_str(key)? {
            Some(name) if !names.contains(&name) => Err(config.refuse(key, format!("`{}`", names[0])).into()),
            _ => Ok(function),
        }
    }
}

/// A configuration error with the file it is in.
pub(crate) fn config_error(config: &ConfigFile, fact: String) -> ModelError {
    ModelError::Config { fact, file: config.file().display().to_string() }
}

/// Maximum dimension: products of a few dimensions cannot overflow before they are compared with the file.
pub(crate) const MAX_DIMENSION: usize = 1 << 28;
/// Maximum number of layers, whose names are made before the checkpoint is read.
pub(crate) const MAX_LAYERS: usize = 1 << 14;

/// Reads a dimension, at least 1.
pub(crate) fn positive(config: &ConfigFile, key: &str) -> Result<usize, ModelError> {
    bounded(config, key, config.usize(key)?, MAX_DIMENSION)
}

/// Reads a dimension; `default` if it is null or absent.
pub(crate) fn dimension_or(config: &ConfigFile, key: &str, default: usize) -> Result<usize, ModelError> {
    config.opt_usize(key)?.map_or(Ok(default), |n| bounded(config, key, n, MAX_DIMENSION))
}

/// Reads a number of layers, at least 1.
pub(crate) fn layers(config: &ConfigFile, key: &str) -> Result<usize, ModelError> {
    check_layers(config, key, config.usize(key)?)
}

/// Refuses a number of layers, which `key` says.
pub(crate) fn check_layers(config: &ConfigFile, key: &str, count: usize) -> Result<usize, ModelError> {
    bounded(config, key, count, MAX_LAYERS)
}

/// Refuses a value outside `1..=most`.
fn bounded(config: &ConfigFile, key: &str, value: usize, most: usize) -> Result<usize, ModelError> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(config.refuse(key, format!("a value from 1 to {most}")).into())
}

/// Refuses a configuration that lacks one of `keys`: their defaults in the reference fit only one model of the family.
pub(crate) fn require(config: &ConfigFile, keys: &[&str]) -> Result<(), WeightsError> {
    let missing = keys.iter().find(|key| !config.keys().any(|k| k == **key));
    // Reading an absent key returns the error that names it.
    missing.map_or(Ok(()), |key| config.usize(key).map(drop))
}

/// Refuses a negative `eps`, the value of `key`: a norm takes the root of a mean square or a variance plus `eps`.
pub(crate) fn check_eps(config: &ConfigFile, key: &str, eps: f32) -> Result<f32, ModelError> {
    if eps >= 0.0 { Ok(eps) } else { Err(config.refuse(key, "a number of at least 0").into()) }
}

/// Query heads, KV heads and values per head.
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) kv: usize,
    pub(crate) dim: usize,
}

impl Heads {
    pub(crate) fn read(config: &ConfigFile, hidden: usize) -> Result<Self, ModelError> {
        let query = positive(config, "num_attention_heads")?;
        let dim = match config.opt_usize("head_dim")? {
            Some(dim) => dim,
            None if hidden % query == 0 => hidden / query,
            None => {
                let fact = format!(
                    "`hidden_size` {hidden} is not a multiple of {query} heads, and `head_dim` is missing"
                );
                return Err(config_error(config, fact));
            }
        };
        Self::of_width(config, dim)
    }

    /// Those of this width.
    pub(crate) fn of_width(config: &ConfigFile, dim: usize) -> Result<Self, ModelError> {
        let query = positive(config, "num_attention_heads")?;
        let kv = config.usize_or("num_key_value_heads", query)?;
        if kv == 0 || query % kv != 0 {
            let fact =
                format!("`num_attention_heads` {query} is not a multiple of `num_key_value_heads` {kv}");
            return Err(config_error(config, fact));
        }
        check_head_dim(config, dim)?;
        if dim % 2 != 0 {
            return Err(config_error(config, format!("`head_dim` {dim} is odd and cannot be rotated")));
        }
        Ok(Self { query, kv, dim })
    }
}

/// Refuses head dimensions that the kernels do not support.
pub(crate) fn check_head_dim(config: &ConfigFile, dim: usize) -> Result<(), ModelError> {
    if (1..=MAX_HEAD_DIM).contains(&dim) {
        return Ok(());
    }
    Err(config_error(config, format!("a head of {dim} values; supported are 1 to {MAX_HEAD_DIM}")))
}

/// The decoder of a family member with one rotation for all layers.
pub(crate) fn decoder(config: &ConfigFile, options: &Options) -> Result<DecoderSpec, ModelError> {
    let rotation = |config: &ConfigFile, dim| Ok(vec![rotary::rotation(config, dim, options.rotary)?]);
    decoder_with(config, options, rotation)
}

/// The decoder of a family member whose layers have a rotation for full attention, and another one for windows
/// ([`rotary::rotations_by_layer_type`]).
pub(crate) fn decoder_with_two_rotations(
    config: &ConfigFile,
    options: &Options,
    local_theta: Option<(&str, f64)>,
) -> Result<DecoderSpec, ModelError> {
    let rotations = |config: &ConfigFile, dim| {
        rotary::rotations_by_layer_type(config, [dim; 2], options.rotary, local_theta)
    };
    let mut spec = decoder_with(config, options, rotations)?;
    for attention in spec.attentions_mut() {
        attention.rotation = Some(usize::from(attention.window.is_some()));
    }
    Ok(spec)
}

/// The decoder of a family member; `rotations` makes those of heads of a width.
pub(crate) fn decoder_with(
    config: &ConfigFile,
    options: &Options,
    rotations: impl Fn(&ConfigFile, usize) -> Result<Vec<RotarySpec>, ModelError>,
) -> Result<DecoderSpec, ModelError> {
    let activation = options.gate.read(config)?;
    let hidden = positive(config, "hidden_size")?;
    let inner = positive(config, options.inner_key.unwrap_or("intermediate_size"))?;
    let heads = Heads::read(config, hidden)?;
    let eps_key = options.eps_key.unwrap_or("rms_norm_eps");
    let eps = check_eps(config, eps_key, config.f32_or(eps_key, options.default_eps)?)?;
    let kind = options.norm;
    let norm = |name: String| NormSpec { name, width: hidden, eps, kind };
    let before = |name: String| NormsSpec::before(norm(name));
    let mlp = |i: usize, inputs, parts: &[(&str, usize)]| {
        let name = |part| format!("layers.{i}.mlp.{part}");
        let parts = parts.iter().map(|&(part, outputs)| (name(part), outputs, options.mlp_bias));
        LinearSpec::of(Orientation::OutIn, inputs, parts)
    };
    let apart = [("gate_proj", inner), ("up_proj", inner)];
    let up = if options.fused_gate { &[("gate_up_proj", 2 * inner)][..] } else { &apart };
    let layer = |i: usize| LayerSpec {
        mixer: MixerSpec::Attention(attention(i, hidden, &heads, eps, options)),
        mixer_norms: before(format!("layers.{i}.input_layernorm")),
        mlp: FfnSpec::Dense(MlpSpec {
            activation: ActivationFunction::None,
            gate: Some(Gating::Function(activation)),
            up: mlp(i, hidden, up),
            down: mlp(i, inner, &[("down_proj", hidden)]),
        }),
        mlp_norms: before(format!("layers.{i}.post_attention_layernorm")),
        residual: Residual::default(),
        end: None,
    };
    Ok(DecoderSpec {
        prefix: "model.",
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: positive(config, "max_position_embeddings")?,
        embedding: "embed_tokens".into(),
        positions: PositionSpec::Rotary(rotations(config, heads.dim)?),
        layers: (0..layers(config, "num_hidden_layers")?).map(layer).collect(),
        final_norm: Some(norm("norm".into())),
        tied: config.bool_or("tie_word_embeddings", options.default_tied)?,
        outside: &[HEAD],
        ignored: &["rotary_emb.inv_freq"],
        ..DecoderSpec::default()
    })
}

fn attention(layer: usize, hidden: usize, heads: &Heads, eps: f32, options: &Options) -> AttentionSpec {
    let name = |part: &str| format!("layers.{layer}.self_attn.{part}");
    let (query, kv) = (heads.query * heads.dim, heads.kv * heads.dim);
    let apart = [("q_proj", query), ("k_proj", kv), ("v_proj", kv)];
    let parts = if options.fused_qkv { &[("qkv_proj", query + 2 * kv)][..] } else { &apart };
    let kind = options.norm;
    let head_norms = |q, k| {
        let norm = |part, width| Some(NormSpec { name: name(part), width, eps, kind });
        (norm("q_norm", q), norm("k_norm", k))
    };
    let (query_norm, key_norm) = match options.head_norms {
        HeadNorms::None => (None, None),
        HeadNorms::Each => head_norms(heads.dim, heads.dim),
        HeadNorms::Whole => head_norms(query, kv),
    };
    let parts = parts.iter().map(|&(part, outputs)| (name(part), outputs, options.qkv_bias));
    let qkv = LinearSpec::of(Orientation::OutIn, hidden, parts);
    let output = LinearSpec::of(Orientation::OutIn, query, [(name("o_proj"), hidden, options.output_bias)]);
    AttentionSpec {
        window: options.windows.get(layer).copied().flatten(),
        rotation: Some(0),
        query_norm,
        key_norm,
        ..AttentionSpec::new(heads.query, heads.kv, heads.dim, qkv, output)
    }
}

/// The decoder of a model that also reads images or sounds, of which `spec` makes what `text_config` describes.
pub(crate) fn of_text(
    config: &ConfigFile,
    spec: impl Fn(&ConfigFile) -> Result<DecoderSpec, ModelError>,
) -> Result<DecoderSpec, ModelError> {
    let Some(text) = config.object("text_config")? else {
        return Err(config.refuse("text_config", "an object").into());
    };
    let decoder = spec(&text)?;
    let tied = config.bool_or("tie_word_embeddings", decoder.tied)?;
    Ok(DecoderSpec { prefix: "model.language_model.", tied, ..decoder })
}

/// Windows per layer for families that switch between full and sliding attention: from `layer_types` if it is present,
/// otherwise the window for the layers that `slides` by their number.
pub(crate) fn windows(
    config: &ConfigFile,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<Vec<Option<usize>>, ModelError> {
    let layers = layers(config, "num_hidden_layers")?;
    let kinds = [("full_attention", false), ("sliding_attention", true)];
    let Some(slides) = by_layer_type(config, layers, kinds)? else {
        return Ok((0..layers).map(|i| window.filter(|_| slides(i))).collect());
    };
    if window.is_none() && slides.contains(&true) {
        let fact = "`layer_types` has sliding layers, but no `sliding_window` is in use".to_owned();
        return Err(config_error(config, fact));
    }
    Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect())
}

/// What `layer_types` says of each of `count` layers, by the names that it may have; `None` without the key.
pub(crate) fn by_layer_type<T: Copy, const N: usize>(
    config: &ConfigFile,
    count: usize,
    kinds: [(&str, T); N],
) -> Result<Option<Vec<T>>, ModelError> {
    let types = config.strings("layer_types")?;
    if types.is_empty() {
        return Ok(None);
    }
    if types.len() != count {
        let fact = format!("`layer_types` has {} entries for {count} layers", types.len());
        return Err(config_error(config, fact));
    }
    let kind = |name: &String| {
        let known = kinds.iter().find(|(known, _)| known == name);
        let names = || kinds.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>();
        let unknown = || config.refuse("layer_types", names().join(", "));
        Ok(known.ok_or_else(unknown)?.1)
    };
    types.iter().map(kind).collect::<Result<_, ModelError>>().map(Some)
}

/// Whether the list `key` of indices has each of `count` layers; `None` if it is null or absent.
pub(crate) fn by_layer_index(
    config: &ConfigFile,
    count: usize,
    key: &str,
) -> Result<Option<Vec<bool>>, ModelError> {
    // Only `null`, or no such key, reads as no boolean.
    if matches!(config.opt_bool(key), Ok(None)) {
        return Ok(None);
    }
    let listed = config.ids(key)?;
    if listed.iter().any(|layer| *layer as usize >= count) {
        return Err(config.refuse(key, format!("indices of {count} layers")).into());
    }
    Ok(Some((0..count).map(|layer| listed.contains(&(layer as u32))).collect()))
}

/// The family member with a classifier instead of its head: one output for each class, of the state of the last token that is no
/// padding.
pub(crate) fn classifier(config: &ConfigFile, decoder: DecoderSpec) -> Result<DecoderSpec, ModelError> {
    let labels = labels::read(config)?;
    let padding = match config.ids("pad_token_id")?[..] {
        [] => None,
        [id] => Some(id),
        _ => return Err(config.refuse("pad_token_id", "one id").into()),
    };
    let score = DenseLayerSpec {
        linear: LinearSpec::plain("score".into(), decoder.hidden, labels.len()),
        activation: ActivationFunction::None,
        norm: None,
    };
    let classifier = ClassifierSpec { pooling: Pooling::Last, padding, layers: vec![score], labels };
    Ok(DecoderSpec {
        tied: true,
        logits: LogitSpec::default(),
        objective: Objective { mask: Mask::Causal, ..Objective::STATES },
        classifier: Some(classifier),
        outside: &[HEAD, "score."],
        ..decoder
    })
}

/// A sliding window of at least one key, if the key is set.
pub(crate) fn sliding_window(config: &ConfigFile) -> Result<Option<usize>, WeightsError> {
    match config.opt_usize("sliding_window")? {
        Some(0) => Err(config.refuse("sliding_window", "a value of at least 1")),
        window => Ok(window),
    }
}
