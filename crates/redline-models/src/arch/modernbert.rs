//! ModernBERT (Warner et al. 2024): an encoder with rotary positions, gates, and a window in all but every third layer.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_settings::Pooling;
use redline_weights::ConfigFile;

use super::{Architecture, bert};
use crate::ModelError;
use crate::family::{self, check_eps, check_head_dim, config_error, layers, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::labels;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, ClassifierSpec, DecoderSpec, DenseLayerSpec, FfnSpec, LayerSpec, LinearSpec, MixerSpec,
    MlpSpec, NormKind, NormSpec, NormsSpec, Objective, Orientation, PositionSpec, Residual,
};

/// In `config.json`: `ModernBertModel`.
pub const MODEL: Architecture =
    Architecture { name: "ModernBertModel", model_type: "modernbert", spec, gguf: Some(GGUF) };
/// In `config.json`: `ModernBertForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture =
    Architecture { name: "ModernBertForMaskedLM", spec: masked, gguf: None, ..MODEL };
/// In `config.json`: `ModernBertForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "ModernBertForSequenceClassification",
    model_type: "modernbert",
    spec: classifier,
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect::new("modern-bert", gguf);

const KEYS: &[&str] = &["attention_bias", "mlp_bias", "layer_types", "rope_parameters", "rope_scaling"];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    let activation = bert::activation(config, "hidden_activation")?;
    let hidden = positive(config, "hidden_size")?;
    let inner = positive(config, "intermediate_size")?;
    let heads = positive(config, "num_attention_heads")?;
    if hidden % heads != 0 || !(hidden / heads).is_multiple_of(2) {
        let fact = format!("`hidden_size` {hidden} is not an even multiple of `num_attention_heads` {heads}");
        return Err(config_error(config, fact));
    }
    let head_dim = hidden / heads;
    check_head_dim(config, head_dim)?;
    let rules = Rules { default_theta: 160_000.0, theta_key: "global_rope_theta", ..Rules::default() };
    let local = Some(("local_rope_theta", 10_000.0));
    let rotations = rotary::rotations_by_layer_type(config, [head_dim; 2], rules, local)?;
    let windows = windows(config)?;
    let (attention_bias, mlp_bias) =
        (config.bool_or("attention_bias", false)?, config.bool_or("mlp_bias", false)?);
    let norm = norm(config, hidden)?;
    let layer = |i: usize| {
        let linear = |part: &str, inputs, outputs, bias| {
            LinearSpec::of(Orientation::OutIn, inputs, [(format!("layers.{i}.{part}"), outputs, bias)])
        };
        let before = |name: &str| NormsSpec::before(norm(&format!("layers.{i}.{name}")));
        let qkv = linear("attn.Wqkv", hidden, 3 * hidden, attention_bias);
        let output = linear("attn.Wo", hidden, hidden, attention_bias);
        LayerSpec {
            mixer: MixerSpec::Attention(AttentionSpec {
                window: windows[i],
                rotation: Some(usize::from(windows[i].is_some())),
                ..AttentionSpec::new(heads, heads, head_dim, qkv, output)
            }),
            // The norm of the embedding is that of the first layer.
            mixer_norms: if i == 0 { NormsSpec::default() } else { before("attn_norm") },
            mlp: FfnSpec::Dense(MlpSpec {
                activation: ActivationFunction::None,
                gate: Some(Gating::Function(activation)),
                up: linear("mlp.Wi", hidden, 2 * inner, mlp_bias),
                down: linear("mlp.Wo", inner, hidden, mlp_bias),
            }),
            mlp_norms: before("mlp_norm"),
            residual: Residual::default(),
            end: None,
        }
    };
    Ok(DecoderSpec {
        prefix: "model.",
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: positive(config, "max_position_embeddings")?,
        embedding: "embeddings.tok_embeddings".into(),
        embedding_norm: Some(norm("embeddings.norm")),
        positions: PositionSpec::Rotary(rotations),
        layers: (0..layers(config, "num_hidden_layers")?).map(layer).collect(),
        final_norm: Some(norm("final_norm")),
        objective: Objective::STATES,
        outside: &["head.", "classifier."],
        // The head of a model that fills masks.
        ignored: &["head.", "decoder."],
        ..DecoderSpec::default()
    })
}

/// The encoder with what makes logits.
fn masked(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    if !config.bool_or("decoder_bias", true)? {
        return Err(config.refuse("decoder_bias", "`true`").into());
    }
    let names = ["head.dense", "head.norm", "decoder.bias"];
    bert::add_logits(config, &mut spec, names, bert::activation(config, "classifier_activation")?)?;
    if let Some((layer, _)) = &mut spec.logits.transform {
        layer.linear.parts[0].bias = config.bool_or("classifier_bias", false)?;
    }
    spec.outside = &["head.", "decoder."];
    spec.ignored = &["decoder.weight"];
    Ok(spec)
}

/// A layer with GELU and a norm, then one output for each class.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let (hidden, labels) = (spec.hidden, labels::read(config)?);
    let pooling = match config.opt_str("classifier_pooling")? {
        None | Some("cls") => Pooling::First,
        Some("mean") => Pooling::Mean,
        Some(_) => return Err(config.refuse("classifier_pooling", "`cls` or `mean`").into()),
    };
    let linear = |name: &str, outputs, bias| {
        LinearSpec::of(Orientation::OutIn, hidden, [(name.to_owned(), outputs, bias)])
    };
    let dense = DenseLayerSpec {
        linear: linear("head.dense", hidden, config.bool_or("classifier_bias", false)?),
        activation: bert::activation(config, "classifier_activation")?,
        norm: Some(norm(config, hidden)?("head.norm")),
    };
    let output = DenseLayerSpec {
        linear: linear("classifier", labels.len(), true),
        activation: ActivationFunction::None,
        norm: None,
    };
    spec.classifier = Some(ClassifierSpec { pooling, padding: None, layers: vec![dense, output], labels });
    spec.ignored = &[];
    Ok(spec)
}

/// Biases and the activation of the classifier are not stored: the defaults apply, as in llama.cpp.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_encoder()?;
    // The reference reads `norm_eps`, which is there under the first name; older files have only the second.
    keys.copy_numbers(&[
        ("attention.layer_norm_epsilon", "norm_eps"),
        ("attention.layer_norm_rms_epsilon", "norm_eps"),
    ])?;
    let global = keys.number_or("rope.freq_base", 160_000.0)?;
    let local = keys.number_or("rope.freq_base_swa", 10_000.0)?;
    keys.config().set("global_rope_theta", f64::from(global));
    keys.config().set("local_rope_theta", f64::from(local));
    keys.leave_out(&["rope.scaling.type", "rope.dimension_count"]);
    let window = keys.count("attention.sliding_window")?;
    keys.config().set("local_attention", window);
    let every = keys.opt_count("attention.sliding_window_pattern")?.unwrap_or(3);
    keys.config().set("global_attn_every_n_layers", every);
    if let Some(activation) = keys.opt_text("hidden_activation")? {
        keys.config().set("hidden_activation", activation);
    }
    const POOLING: &str = "classifier.pooling_type";
    let pooling = match keys.opt_count(POOLING)? {
        None | Some(1) => "mean",
        Some(2) => "cls",
        Some(_) => return Err(keys.refuse(POOLING, "`1` (mean) or `2` (the first token)")),
    };
    if keys.set_classes()? {
        keys.require_classifier()?;
        keys.config().set("classifier_pooling", pooling);
        keys.rename(CLASSIFIER.name, CLASSIFIER.model_type);
    }
    Ok(())
}

/// Makes norms by their names.
fn norm(config: &ConfigFile, width: usize) -> Result<impl Fn(&str) -> NormSpec + use<>, ModelError> {
    let eps = check_eps(config, "norm_eps", config.f32_or("norm_eps", 1e-5)?)?;
    let kind = if config.bool_or("norm_bias", false)? { NormKind::Layer } else { NormKind::LayerUnbiased };
    Ok(move |name: &str| NormSpec { name: name.to_owned(), width, eps, kind })
}

/// The windows of the layers: keys up to half of `local_attention` away are seen, but in every nth layer all.
fn windows(config: &ConfigFile) -> Result<Vec<Option<usize>>, ModelError> {
    let reach = config.usize_or("local_attention", 128)? / 2;
    match config.usize_or("global_attn_every_n_layers", 3)? {
        0 => Err(config.refuse("global_attn_every_n_layers", "a number of at least 1").into()),
        n => family::windows(config, Some(reach + 1), |layer| !layer.is_multiple_of(n)),
    }
}
