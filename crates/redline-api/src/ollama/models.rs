//! `/api/tags`, `/api/ps`, `/api/show` and `/api/version`: what the server has.

use std::collections::BTreeMap;

use redline_engine::{ModelSummary, Sha256Digest};
use redline_tokenizer::Tokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chat::template::Chat;
use crate::model::LoadedModel;

/// Asks what a model is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaShowBody {
    /// The model's name.
    pub model: Option<String>,
    /// The older name of `model`.
    pub name: Option<String>,
    /// Accepted and not used: tensors are not listed.
    pub verbose: Option<bool>,
}

/// The models of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaModels {
    /// The models.
    pub models: Vec<OllamaModel>,
}

/// A model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaModel {
    /// Its name.
    pub name: String,
    /// Its name.
    pub model: String,
    /// When the server began to answer.
    pub modified_at: String,
    /// Bytes of its weights in memory, or of the memory that it needs at least.
    pub size: u64,
    /// A digest of its name, architecture and format.
    pub digest: String,
    /// What it is.
    pub details: OllamaDetails,
    /// Of a loaded model: its state.
    #[serde(flatten)]
    pub state: Option<OllamaState>,
}

/// The state of a loaded model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaState {
    /// A time that does not come: the model stays loaded.
    pub expires_at: &'static str,
    /// Always 0: the model is in the memory of the processor.
    pub size_vram: u64,
    /// Number of tokens of its context.
    pub context_length: usize,
}

/// What a model is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaDetails {
    /// Always empty.
    pub parent_model: &'static str,
    /// Always `redline`.
    pub format: &'static str,
    /// Its architecture.
    pub family: String,
    /// Its architecture.
    pub families: [String; 1],
    /// Number of parameters, such as `1.2B`; empty if the model is not in memory.
    pub parameter_size: String,
    /// The format of its weights.
    pub quantization_level: String,
}

/// What a model is and can do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaShown {
    /// Always empty.
    pub modelfile: &'static str,
    /// Always empty.
    pub parameters: &'static str,
    /// The source of the chat template.
    pub template: String,
    /// Always empty.
    pub license: &'static str,
    /// What it is.
    pub details: OllamaDetails,
    /// Its sizes, by the names that GGUF files have for them.
    pub model_info: BTreeMap<String, Value>,
    /// What it can do: `completion`, `tools`, `thinking`, `insert`, `embedding`.
    pub capabilities: Vec<&'static str>,
    /// When the server began to answer.
    pub modified_at: String,
}

/// The version.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OllamaVersion {
    /// The version of Redline.
    pub version: &'static str,
}

/// The time that never comes.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// The entry of a model in a list, with its state if it is one of loaded models.
pub fn entry(
    name: &str,
    model: &ModelSummary,
    loaded: Option<&LoadedModel>,
    modified_at: String,
    is_state_shown: bool,
) -> OllamaModel {
    let shape = format!("{name}\n{}\n{}", model.architecture, model.format);
    let context_length = model.context;
    OllamaModel {
        name: name.to_owned(),
        model: name.to_owned(),
        modified_at,
        size: loaded.map_or(model.least_memory, |loaded| loaded.engine.info().weight_bytes),
        digest: Sha256Digest::of(shape.as_bytes()).to_string(),
        details: details(model, loaded),
        state: is_state_shown.then_some(OllamaState { expires_at: NEVER, size_vram: 0, context_length }),
    }
}

/// What a model is and can do.
pub fn shown(model: &LoadedModel, chat: Option<&Chat>, modified_at: String) -> OllamaShown {
    let info = model.engine.info();
    let writes = info.objective.predicts();
    let format = chat.and_then(|chat| chat.answer_format(&model.engine));
    let gaps = model.engine.tokenizer().and_then(Tokenizer::gap_tokens).is_some();
    let calls =
        chat.is_some_and(|chat| chat.check_calls(&model.engine, info.objective.fills_masks()).is_ok());
    let reasons = format.is_some_and(|format| format.reasoning().is_some());
    let can = [
        ("completion", writes),
        ("tools", writes && calls),
        ("thinking", writes && reasons),
        ("insert", writes && gaps),
        ("embedding", info.embedding_pooling.is_some()),
    ];
    let family = &info.architecture;
    let sizes = [
        ("context_length", info.context),
        ("embedding_length", info.hidden),
        ("block_count", info.layers),
        ("vocab_size", info.vocab),
    ];
    let mut model_info: BTreeMap<String, Value> =
        sizes.into_iter().map(|(name, size)| (format!("{family}.{name}"), Value::from(size))).collect();
    model_info.insert("general.architecture".to_owned(), Value::from(family.as_str()));
    model_info.insert("general.parameter_count".to_owned(), Value::from(info.parameters));
    OllamaShown {
        modelfile: "",
        parameters: "",
        template: chat.and_then(Chat::source).unwrap_or_default().to_owned(),
        license: "",
        details: details(&model.engine.summary(), Some(model)),
        model_info,
        capabilities: can.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect(),
        modified_at,
    }
}

fn details(model: &ModelSummary, loaded: Option<&LoadedModel>) -> OllamaDetails {
    OllamaDetails {
        parent_model: "",
        format: "redline",
        family: model.architecture.clone(),
        families: [model.architecture.clone()],
        parameter_size: loaded.map(|loaded| short(loaded.engine.info().parameters)).unwrap_or_default(),
        quantization_level: model.format.to_string(),
    }
}

/// A number with three digits at most and a unit.
fn short(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000 => return count.to_string(),
        1_000..1_000_000 => (1e3, "K"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        _ => (1e9, "B"),
    };
    let value = count as f64 / unit;
    if value < 99.95 { format!("{value:.1}{name}") } else { format!("{value:.0}{name}") }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        for (count, expected) in [
            (7, "7"),
            (1_234, "1.2K"),
            (494_032_768, "494M"),
            (1_240_000_000, "1.2B"),
            (70_553_706_496, "70.6B"),
        ] {
            assert_eq!(short(count), expected);
        }
    }
}
