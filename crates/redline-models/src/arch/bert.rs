//! BERT (Devlin et al. 2018): an encoder with norms after every addition, learned positions and token types.

use redline_kernels::op::activation::ActivationFunction;
use redline_settings::Pooling;
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, check_eps, check_head_dim, config_error, layers, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::labels;
use crate::spec::{
    AttentionSpec, ClassifierSpec, DecoderSpec, DenseLayerSpec, FfnSpec, HEAD, LayerSpec, LinearSpec,
    LogitSpec, MixerSpec, MlpSpec, NormKind, NormSpec, NormsSpec, Objective, Orientation, PositionSpec,
    PositionTableSpec, TokenTypesSpec,
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
        linear: LinearSpec::of(Orientation::OutIn, spec.hidden, [(dense.to_owned(), spec.hidden, true)]),
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

/// The sizes of an encoder, and what its layers have in common.
pub(super) struct Shape {
    /// The keys of the width of states and of the number of heads.
    pub(super) keys: [&'static str; 2],
    pub(super) hidden: usize,
    pub(super) inner: usize,
    pub(super) heads: usize,
    pub(super) layers: usize,
    /// Rows of the table of positions. The first `unused` ones are not those of tokens; the last of these is that of the padding token,
    /// whose id it is.
    pub(super) positions: usize,
    pub(super) unused: usize,
    /// Number of token types; 0: none.
    pub(super) types: usize,
    pub(super) eps: f32,
    pub(super) activation: ActivationFunction,
}

/// Names of the parts of a layer, up to `.weight`.
pub(super) struct LayerNames {
    /// Queries, keys and values.
    pub(super) qkv: [String; 3],
    pub(super) attention_output: String,
    pub(super) attention_norm: String,
    pub(super) up: String,
    pub(super) down: String,
    pub(super) norm: String,
}

/// Those of BERT.
fn layer_names(layer: usize) -> LayerNames {
    let name = |part: &str| format!("encoder.layer.{layer}.{part}");
    LayerNames {
        qkv: ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}"))),
        attention_output: name("attention.output.dense"),
        attention_norm: name("attention.output.LayerNorm"),
        up: name("intermediate.dense"),
        down: name("output.dense"),
        norm: name("output.LayerNorm"),
    }
}

impl Shape {
    fn norm(&self, name: String) -> NormSpec {
        NormSpec { name, width: self.hidden, eps: self.eps, kind: NormKind::Layer }
    }

    fn layer(&self, names: LayerNames) -> LayerSpec {
        let &Self { hidden, inner, heads, activation, .. } = self;
        let sum = |name: String| NormsSpec { sum: Some(self.norm(name)), ..NormsSpec::default() };
        let linear =
            |name, inputs, outputs| LinearSpec::of(Orientation::OutIn, inputs, [(name, outputs, true)]);
        LayerSpec {
            mixer: MixerSpec::Attention(AttentionSpec {
                heads,
                kv_heads: heads,
                head_dim: hidden / heads,
                scale: 1.0 / ((hidden / heads) as f32).sqrt(),
                window: None,
                softcap: None,
                rotation: None,
                gated: false,
                qkv: LinearSpec::of(Orientation::OutIn, hidden, names.qkv.map(|name| (name, hidden, true))),
                output: linear(names.attention_output, hidden, hidden),
                head_norms: None,
                sinks: None,
            }),
            mixer_norms: sum(names.attention_norm),
            mlp: FfnSpec::Dense(MlpSpec {
                activation,
                gate: None,
                up: linear(names.up, hidden, inner),
                down: linear(names.down, inner, hidden),
            }),
            mlp_norms: sum(names.norm),
            residual_scale: 1.0,
        }
    }

    /// The encoder without a head.
    pub(super) fn encoder(
        &self,
        config: &ConfigFile,
        prefix: &'static str,
        names: impl Fn(usize) -> LayerNames,
    ) -> Result<DecoderSpec, ModelError> {
        let &Self { hidden, heads, positions, unused, types, .. } = self;
        let [hidden_key, heads_key] = self.keys;
        if hidden % heads != 0 {
            let fact = format!("`{hidden_key}` {hidden} is not a multiple of `{heads_key}` {heads}");
            return Err(config_error(config, fact));
        }
        check_head_dim(config, hidden / heads)?;
        if positions <= unused {
            let supported = format!("more than {unused}, the positions that no token has");
            return Err(config.refuse("max_position_embeddings", supported).into());
        }
        let types =
            (types > 0).then(|| TokenTypesSpec { name: "embeddings.token_type_embeddings".into(), types });
        Ok(DecoderSpec {
            prefix,
            hidden,
            vocab: positive(config, "vocab_size")?,
            context: positions - unused,
            embedding: "embeddings.word_embeddings".into(),
            embedding_scale: 1.0,
            token_types: types,
            embedding_norm: Some(self.norm("embeddings.LayerNorm".into())),
            positions: PositionSpec::Learned(PositionTableSpec {
                name: "embeddings.position_embeddings".into(),
                unused,
            }),
            layers: (0..self.layers).map(|i| self.layer(names(i))).collect(),
            final_norm: None,
            tied: true,
            head: HEAD,
            logits: LogitSpec::default(),
            objective: Objective::STATES,
            classifier: None,
            outside: &["classifier."],
            ignored: UNUSED,
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
    if !matches!(config.opt_str("position_embedding_type")?, None | Some("absolute")) {
        return Err(config.refuse("position_embedding_type", "`absolute`").into());
    }
    let keys = ["hidden_size", "num_attention_heads"];
    let shape = Shape {
        keys,
        hidden: positive(config, keys[0])?,
        inner: positive(config, "intermediate_size")?,
        heads: positive(config, keys[1])?,
        layers: layers(config, "num_hidden_layers")?,
        positions: positive(config, "max_position_embeddings")?,
        unused,
        types: family::dimension_or(config, "type_vocab_size", 2)?,
        eps: check_eps(config, "layer_norm_eps", config.f32_or("layer_norm_eps", 1e-12)?)?,
        activation: activation(config, "hidden_act")?,
    };
    shape.encoder(config, prefix, layer_names)
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
        linear: LinearSpec::of(Orientation::OutIn, spec.hidden, [(name.to_owned(), outputs, true)]),
        activation,
        norm: None,
    };
    let layers =
        vec![layer(dense, spec.hidden, activation), layer(output, labels.len(), ActivationFunction::None)];
    spec.classifier = Some(ClassifierSpec { pooling: Pooling::First, padding: None, layers, labels });
    spec.ignored = &[POSITION_IDS];
    Ok(())
}
