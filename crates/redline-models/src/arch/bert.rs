//! BERT (Devlin et al. 2018): an encoder with norms after every addition, learned positions and token types.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_settings::Pooling;
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, check_eps, check_head_dim, config_error, layers, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::labels;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, ClassifierSpec, DecoderSpec, DenseLayerSpec, FfnSpec, LayerSpec, LinearSpec, MixerSpec,
    MlpSpec, NormKind, NormSpec, NormsSpec, Objective, Orientation, PositionSpec, PositionTableSpec,
    Residual, TokenTypesSpec,
};

/// In `config.json`: `BertModel`.
pub const MODEL: Architecture =
    Architecture { name: "BertModel", model_type: "bert", spec, gguf: Some(GGUF) };
/// In `config.json`: `BertForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture = Architecture { name: "BertForMaskedLM", spec: masked, gguf: None, ..MODEL };
/// In `config.json`: `BertForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "BertForSequenceClassification", model_type: "bert", spec: classifier, gguf: None };

const GGUF: GgufDialect = GgufDialect::new("bert", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    encoder(config, "bert.", 0)
}

fn masked(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let names =
        ["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"];
    add_logits(config, &mut spec, names, activation(config, "hidden_act")?)?;
    spec.outside = &["cls."];
    spec.ignored = &[POOLER[0], POOLER[1], POSITION_IDS, "cls.predictions.decoder.", "cls.seq_relationship."];
    Ok(spec)
}

/// Adds what states pass before the head, a layer as wide as they are with a norm, and the head's bias, by their names.
pub(super) fn add_logits(
    config: &ConfigFile,
    spec: &mut DecoderSpec,
    [dense, norm, bias]: [&str; 3],
    activation: ActivationFunction,
) -> Result<(), ModelError> {
    if !config.bool_or("tie_word_embeddings", true)? {
        return Err(config
            .refuse("tie_word_embeddings", "`true`: the head of an encoder is its embedding")
            .into());
    }
    let Some(of_embedding) = &spec.embedding_norm else { return Ok(()) };
    let layer = DenseLayerSpec {
        linear: biased(dense.to_owned(), spec.hidden, spec.hidden),
        activation,
        norm: Some(NormSpec { name: norm.to_owned(), ..of_embedding.clone() }),
    };
    spec.logits.transform = Some((layer, bias.to_owned()));
    Ok(())
}

/// The pooler's layer with tanh, then one output for each class.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = encoder(config, "bert.", 0)?;
    classify(config, &mut spec, ["pooler.dense", "classifier"], ActivationFunction::Tanh)?;
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    gguf_of(keys, &CLASSIFIER)
}

/// RoBERTa and XLM-R have the same keys and tensors.
pub(super) fn gguf_of(keys: &mut Keys<'_>, classifier: &Architecture) -> Result<(), ModelError> {
    keys.set_encoder()?;
    keys.copy_numbers(&[("attention.layer_norm_epsilon", "layer_norm_eps")])?;
    let types = keys.token_types();
    keys.config().set("type_vocab_size", types);
    if keys.set_classes()? {
        keys.require_classifier()?;
        keys.rename(classifier.name, classifier.model_type);
    }
    Ok(())
}

/// Layers of the pooler.
pub(super) const POOLER: [&str; 2] = ["pooler.dense.weight", "pooler.dense.bias"];
/// Tensors that represent no text: the pooler, and what the models were trained with (BERT, then RoBERTa).
const UNUSED: &[&str] =
    &[POOLER[0], POOLER[1], POSITION_IDS, "cls.predictions.", "cls.seq_relationship.", "lm_head."];
/// A buffer in old checkpoints.
pub(super) const POSITION_IDS: &str = "embeddings.position_ids";

/// The sizes of an encoder with norms after every addition, and what its layers have in common.
pub(super) struct Shape {
    pub(super) hidden: usize,
    /// Width of the embeddings; with another one than `hidden`, a projection follows them.
    pub(super) embedding: usize,
    pub(super) inner: usize,
    pub(super) heads: usize,
    pub(super) layers: usize,
    /// Number of positions that the configuration says.
    pub(super) positions: usize,
    /// Number of token types; 0: none.
    pub(super) types: usize,
    pub(super) eps: f32,
    pub(super) activation: ActivationFunction,
    /// Whether the activation is that of a gate.
    pub(super) gated: bool,
    /// Name of the norm of the embeddings.
    pub(super) embedding_norm: &'static str,
}

/// The names of the keys of a configuration.
pub(super) struct ShapeKeys {
    pub(super) hidden: &'static str,
    pub(super) inner: &'static str,
    pub(super) heads: &'static str,
    pub(super) layers: &'static str,
    pub(super) positions: &'static str,
    pub(super) eps: &'static str,
    /// The epsilon if its key is absent.
    pub(super) default_eps: f32,
    pub(super) activation: &'static str,
}

/// The usual ones.
pub(super) const KEYS: ShapeKeys = ShapeKeys {
    hidden: "hidden_size",
    inner: "intermediate_size",
    heads: "num_attention_heads",
    layers: "num_hidden_layers",
    positions: "max_position_embeddings",
    eps: "layer_norm_eps",
    default_eps: 1e-12,
    activation: "hidden_act",
};

/// The linear layers of a layer, and the names of its norms.
pub(super) struct LayerParts {
    /// Queries, keys and values.
    pub(super) qkv: LinearSpec,
    pub(super) attention_output: LinearSpec,
    pub(super) attention_norm: String,
    pub(super) up: LinearSpec,
    pub(super) down: LinearSpec,
    pub(super) norm: String,
}

/// Those of BERT.
pub(super) fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("encoder.layer.{layer}.{part}");
    let qkv = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
    LayerParts {
        qkv: apart(hidden, qkv),
        attention_output: biased(name("attention.output.dense"), hidden, hidden),
        attention_norm: name("attention.output.LayerNorm"),
        up: biased(name("intermediate.dense"), hidden, inner),
        down: biased(name("output.dense"), inner, hidden),
        norm: name("output.LayerNorm"),
    }
}

/// Queries, keys and values in tensors of their own, with biases.
pub(super) fn apart(hidden: usize, names: [String; 3]) -> LinearSpec {
    LinearSpec::of(Orientation::OutIn, hidden, names.map(|name| (name, hidden, true)))
}

/// One projection with a bias.
pub(super) fn biased(name: String, inputs: usize, outputs: usize) -> LinearSpec {
    LinearSpec::of(Orientation::OutIn, inputs, [(name, outputs, true)])
}

impl Shape {
    /// Reads the sizes. There are no token types yet, no gate, and the embeddings are as wide as the states.
    pub(super) fn read(config: &ConfigFile, keys: &ShapeKeys) -> Result<Self, ModelError> {
        let (hidden, heads) = (positive(config, keys.hidden)?, positive(config, keys.heads)?);
        if hidden % heads != 0 {
            let fact = format!("`{}` {hidden} is not a multiple of `{}` {heads}", keys.hidden, keys.heads);
            return Err(config_error(config, fact));
        }
        check_head_dim(config, hidden / heads)?;
        Ok(Self {
            hidden,
            embedding: hidden,
            inner: positive(config, keys.inner)?,
            heads,
            layers: layers(config, keys.layers)?,
            positions: positive(config, keys.positions)?,
            types: 0,
            eps: check_eps(config, keys.eps, config.f32_or(keys.eps, keys.default_eps)?)?,
            activation: activation(config, keys.activation)?,
            gated: false,
            embedding_norm: "embeddings.LayerNorm",
        })
    }

    /// A norm of the encoder.
    pub(super) fn norm(&self, name: String, width: usize) -> NormSpec {
        NormSpec { name, width, eps: self.eps, kind: NormKind::Layer }
    }

    fn layer(&self, parts: LayerParts, rotation: Option<usize>) -> LayerSpec {
        let &Self { hidden, heads, activation, gated, .. } = self;
        let sum = |name: String| NormsSpec { sum: Some(self.norm(name, hidden)), ..NormsSpec::default() };
        let LayerParts { qkv, attention_output, attention_norm, up, down, norm } = parts;
        LayerSpec {
            mixer: MixerSpec::Attention(AttentionSpec {
                rotation,
                ..AttentionSpec::new(heads, heads, hidden / heads, qkv, attention_output)
            }),
            mixer_norms: sum(attention_norm),
            mlp: FfnSpec::Dense(MlpSpec {
                activation: if gated { ActivationFunction::None } else { activation },
                gate: gated.then_some(Gating::Function(activation)),
                up,
                down,
            }),
            mlp_norms: sum(norm),
            residual: Residual::default(),
            end: None,
        }
    }

    /// The encoder without a head, whose positions are a table. Its first `unused` rows are not those of tokens; the last of them is that
    /// of the padding token, whose id it is.
    pub(super) fn encoder(
        &self,
        config: &ConfigFile,
        unused: usize,
        parts: impl Fn(&Self, usize) -> LayerParts,
    ) -> Result<DecoderSpec, ModelError> {
        let Some(context) = self.positions.checked_sub(unused).filter(|context| *context > 0) else {
            let supported = format!("more than {unused}, the positions that no token has");
            return Err(config.refuse("max_position_embeddings", supported).into());
        };
        let table = PositionTableSpec { name: "embeddings.position_embeddings".into(), unused };
        let spec = self.spec(config, None, parts)?;
        Ok(DecoderSpec { context, positions: PositionSpec::Learned(table), ..spec })
    }

    /// The encoder without a head, whose queries and keys are rotated.
    pub(super) fn rotated(
        &self,
        config: &ConfigFile,
        rules: Rules,
        parts: impl Fn(&Self, usize) -> LayerParts,
    ) -> Result<DecoderSpec, ModelError> {
        let head_dim = self.hidden / self.heads;
        if !head_dim.is_multiple_of(2) {
            let fact = format!("a head of {head_dim} values is odd and cannot be rotated");
            return Err(config_error(config, fact));
        }
        let rotation = rotary::rotation(config, head_dim, rules)?;
        let spec = self.spec(config, Some(0), parts)?;
        Ok(DecoderSpec { positions: PositionSpec::Rotary(vec![rotation]), ..spec })
    }

    /// The encoder without a head, whose logits depend on distances.
    pub(super) fn without_positions(
        &self,
        config: &ConfigFile,
        parts: impl Fn(&Self, usize) -> LayerParts,
    ) -> Result<DecoderSpec, ModelError> {
        // No tensor bounds it.
        const MAX_POSITIONS: usize = 1 << 17;
        if self.positions > MAX_POSITIONS {
            return Err(config.refuse("max_position_embeddings", format!("at most {MAX_POSITIONS}")).into());
        }
        self.spec(config, None, parts)
    }

    fn spec(
        &self,
        config: &ConfigFile,
        rotation: Option<usize>,
        parts: impl Fn(&Self, usize) -> LayerParts,
    ) -> Result<DecoderSpec, ModelError> {
        let &Self { hidden, embedding, types, .. } = self;
        let table = |types| TokenTypesSpec { name: "embeddings.token_type_embeddings".into(), types };
        Ok(DecoderSpec {
            hidden,
            vocab: positive(config, "vocab_size")?,
            context: self.positions,
            embedding: "embeddings.word_embeddings".into(),
            token_types: (types > 0).then(|| table(types)),
            embedding_norm: Some(self.norm(self.embedding_norm.into(), embedding)),
            layers: (0..self.layers).map(|i| self.layer(parts(self, i), rotation)).collect(),
            objective: Objective::STATES,
            outside: &["classifier."],
            ignored: UNUSED,
            ..DecoderSpec::default()
        })
    }
}

/// The encoder without a head, whose table of positions has `unused` rows that are not those of tokens.
pub(super) fn encoder(
    config: &ConfigFile,
    prefix: &'static str,
    unused: usize,
) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[])?;
    require_absolute(config)?;
    let types = family::dimension_or(config, "type_vocab_size", 2)?;
    let shape = Shape { types, ..Shape::read(config, &KEYS)? };
    Ok(DecoderSpec { prefix, ..shape.encoder(config, unused, layer_parts)? })
}

/// Refuses positions that are not rows of a table.
pub(super) fn require_absolute(config: &ConfigFile) -> Result<(), ModelError> {
    match config.opt_str("position_embedding_type")? {
        None | Some("absolute") => Ok(()),
        Some(_) => Err(config.refuse("position_embedding_type", "`absolute`").into()),
    }
}

/// The function that a key names.
pub(super) fn activation(config: &ConfigFile, key: &str) -> Result<ActivationFunction, ModelError> {
    match config.opt_str(key)? {
        None | Some("gelu") => Ok(ActivationFunction::Gelu),
        Some("gelu_new" | "gelu_pytorch_tanh") => Ok(ActivationFunction::GeluNew),
        Some("silu" | "swish") => Ok(ActivationFunction::Silu),
        Some("relu") => Ok(ActivationFunction::Relu),
        Some(_) => Err(config.refuse(key, "`gelu`, `gelu_new`, `relu` or `silu`").into()),
    }
}

/// Adds the head: a layer as wide as the states, then one output for each class, on the state of the first token.
pub(super) fn classify(
    config: &ConfigFile,
    spec: &mut DecoderSpec,
    [dense, output]: [&str; 2],
    activation: ActivationFunction,
) -> Result<(), ModelError> {
    let labels = labels::read(config)?;
    let layer = |name: &str, outputs, activation| DenseLayerSpec {
        linear: biased(name.to_owned(), spec.hidden, outputs),
        activation,
        norm: None,
    };
    let layers =
        vec![layer(dense, spec.hidden, activation), layer(output, labels.len(), ActivationFunction::None)];
    spec.classifier = Some(ClassifierSpec { pooling: Pooling::First, padding: None, layers, labels });
    spec.ignored = &[POSITION_IDS];
    Ok(())
}
