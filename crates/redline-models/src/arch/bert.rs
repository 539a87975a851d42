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
/// In `config.json`: `BertForMaskedLM`, whose head is not used.
pub const MASKED: Architecture = Architecture { name: "BertForMaskedLM", gguf: None, ..MODEL };
/// In `config.json`: `BertForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "BertForSequenceClassification", model_type: "bert", spec: classifier, gguf: None };

const GGUF: GgufDialect = GgufDialect::new("bert", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    encoder(config, "bert.", 0)
}

/// The pooler's layer with tanh, then one output for each class.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = encoder(config, "bert.", 0)?;
    classify(config, &mut spec, ["pooler.dense", "classifier"])?;
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

/// Tensors that represent no text: the pooler, and what the models were trained with (BERT, then RoBERTa).
const UNUSED: &[&str] = &[
    "pooler.dense.weight",
    "pooler.dense.bias",
    POSITION_IDS,
    "cls.predictions.",
    "cls.seq_relationship.",
    "lm_head.",
];
/// A buffer in old checkpoints.
const POSITION_IDS: &str = "embeddings.position_ids";

/// What all layers have in common.
struct Sizes {
    hidden: usize,
    inner: usize,
    heads: usize,
    eps: f32,
    activation: ActivationFunction,
}

impl Sizes {
    fn norm(&self, name: String) -> NormSpec {
        NormSpec { name, width: self.hidden, eps: self.eps, kind: NormKind::Layer }
    }

    fn layer(&self, i: usize) -> LayerSpec {
        let &Self { hidden, inner, heads, activation, .. } = self;
        let sum = |name: String| NormsSpec { sum: Some(self.norm(name)), ..NormsSpec::default() };
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        let linear = |part: &str, inputs, outputs| {
            LinearSpec::of(Orientation::OutIn, inputs, [(name(part), outputs, true)])
        };
        let qkv =
            ["query", "key", "value"].map(|part| (name(&format!("attention.self.{part}")), hidden, true));
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
                qkv: LinearSpec::of(Orientation::OutIn, hidden, qkv),
                output: linear("attention.output.dense", hidden, hidden),
                head_norms: None,
                sinks: None,
            }),
            mixer_norms: sum(name("attention.output.LayerNorm")),
            mlp: FfnSpec::Dense(MlpSpec {
                activation,
                gate: None,
                up: linear("intermediate.dense", hidden, inner),
                down: linear("output.dense", inner, hidden),
            }),
            mlp_norms: sum(name("output.LayerNorm")),
            residual_scale: 1.0,
        }
    }
}

/// The encoder without a head. The first `unused` positions are not those of tokens; the last of them is that of the padding token,
/// whose id it is.
pub(super) fn encoder(
    config: &ConfigFile,
    prefix: &'static str,
    unused: usize,
) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[])?;
    if !matches!(config.opt_str("position_embedding_type")?, None | Some("absolute")) {
        return Err(config.refuse("position_embedding_type", "`absolute`").into());
    }
    let activation = activation(config)?;
    let hidden = positive(config, "hidden_size")?;
    let inner = positive(config, "intermediate_size")?;
    let heads = positive(config, "num_attention_heads")?;
    if hidden % heads != 0 {
        let fact = format!("`hidden_size` {hidden} is not a multiple of `num_attention_heads` {heads}");
        return Err(config_error(config, fact));
    }
    check_head_dim(config, hidden / heads)?;
    let rows = positive(config, "max_position_embeddings")?;
    if rows <= unused {
        let supported = format!("more than {unused}, the positions that no token has");
        return Err(config.refuse("max_position_embeddings", supported).into());
    }
    let eps = check_eps(config, "layer_norm_eps", config.f32_or("layer_norm_eps", 1e-12)?)?;
    let sizes = Sizes { hidden, inner, heads, eps, activation };
    let types = family::dimension_or(config, "type_vocab_size", 2)?;
    Ok(DecoderSpec {
        prefix,
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: rows - unused,
        embedding: "embeddings.word_embeddings".into(),
        embedding_scale: 1.0,
        token_types: Some(TokenTypesSpec { name: "embeddings.token_type_embeddings".into(), types }),
        embedding_norm: Some(sizes.norm("embeddings.LayerNorm".into())),
        positions: PositionSpec::Learned(PositionTableSpec {
            name: "embeddings.position_embeddings".into(),
            unused,
        }),
        layers: (0..layers(config, "num_hidden_layers")?).map(|i| sizes.layer(i)).collect(),
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

/// The function of the feed-forward part.
fn activation(config: &ConfigFile) -> Result<ActivationFunction, ModelError> {
    match config.opt_str("hidden_act")? {
        None | Some("gelu") => Ok(ActivationFunction::Gelu),
        Some("gelu_new" | "gelu_pytorch_tanh") => Ok(ActivationFunction::GeluNew),
        Some("silu" | "swish") => Ok(ActivationFunction::Silu),
        Some("relu") => Ok(ActivationFunction::Relu),
        Some(_) => Err(config.refuse("hidden_act", "`gelu`, `gelu_new`, `relu` or `silu`").into()),
    }
}

/// Adds the head: a layer as wide as the states with tanh, then one output for each class, on the state of the first token.
pub(super) fn classify(
    config: &ConfigFile,
    spec: &mut DecoderSpec,
    [dense, output]: [&str; 2],
) -> Result<(), ModelError> {
    let labels = labels::read(config)?;
    let layer = |name: &str, outputs, activation| DenseLayerSpec {
        linear: LinearSpec::of(Orientation::OutIn, spec.hidden, [(name.to_owned(), outputs, true)]),
        activation,
        norm: None,
    };
    let layers = vec![
        layer(dense, spec.hidden, ActivationFunction::Tanh),
        layer(output, labels.len(), ActivationFunction::None),
    ];
    spec.classifier = Some(ClassifierSpec { pooling: Pooling::First, padding: None, layers, labels });
    spec.ignored = &[POSITION_IDS];
    Ok(())
}
