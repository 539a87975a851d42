//! Receipts: what a model was asked and what it answered, with digests of what its layers computed.

use std::fmt;

use redline_settings::{Algorithm, BlockCache, LongLabels, Pooling};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::json::finite::Finite;
use crate::json::input::LabelIds;
use crate::json::named;
use crate::json::shape::schemas;
use crate::json::version::SchemaVersion;

/// Whether a request asks for a receipt: `true`, `false`, or an object with `layers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptChoice {
    /// No receipt.
    No,
    /// With digests of all layers.
    All,
    /// With digests of these layers, counted from 0.
    Layers(Vec<usize>),
}

impl ReceiptChoice {
    /// The layers that were chosen, of which `None` are all; `None` without a receipt.
    pub fn layers(self) -> Option<Option<Vec<usize>>> {
        match self {
            Self::No => None,
            Self::All => Some(None),
            Self::Layers(layers) => Some(Some(layers)),
        }
    }
}

/// The object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChosenLayers {
    layers: Vec<usize>,
}

impl<'de> Deserialize<'de> for ReceiptChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = ReceiptChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, or an object with `layers`")
            }
            fn visit_bool<E: Error>(self, asked: bool) -> Result<ReceiptChoice, E> {
                Ok(if asked { ReceiptChoice::All } else { ReceiptChoice::No })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ReceiptChoice, A::Error> {
                let ChosenLayers { layers } = ChosenLayers::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ReceiptChoice::Layers(layers))
            }
        }
        from.deserialize_any(Forms)
    }
}

schemas! {
    ReceiptChoice: |_g| json!({ "anyOf": [
        { "type": "boolean" },
        {
            "type": "object",
            "properties": { "layers": { "type": "array", "items": { "type": "integer", "minimum": 0 } } },
            "required": ["layers"],
            "additionalProperties": false
        }
    ] });
}

/// A receipt. `redline verify` runs its request again and compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptDocument {
    /// Always `receipt`.
    pub object: String,
    /// The version of this form.
    #[schemars(with = "u32")]
    pub schema: SchemaVersion,
    /// The version of Redline that made it.
    pub redline: String,
    /// What the answer depends on besides the request.
    pub model: ReceiptModel,
    /// The adapters, applied in this order.
    pub adapters: Vec<ReceiptAdapterEntry>,
    /// The prompts, texts or items, as the model read them.
    pub prompts: Vec<ReceiptPrompt>,
    /// What else was asked. `null` stands for a default of the version.
    pub request: ReceiptSettings,
    /// Number of rows that the digests of layers are of: those whose logits or states were read.
    pub rows: u64,
    /// Digests of the residual stream after layers, ascending.
    pub layers: Vec<ReceiptLayerEntry>,
    /// What the model answered to each prompt, or its continuations of the one prompt.
    pub answer: Vec<ReceiptAnswerEntry>,
    /// SHA-256 digests of other parts, which reveal what was changed in them.
    pub digests: ReceiptDigests,
}

/// A model, by digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptModel {
    /// Over weights, their formats, that of keys and values, the configuration, and the version of Redline.
    pub weights: String,
    /// Over what turns texts into tokens and back.
    pub texts: String,
}

/// An adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptAdapterEntry {
    /// Its name where the receipt was made.
    pub name: String,
    /// Factor on its updates.
    pub scale: Finite<f32>,
    /// A checksum over its weights.
    pub checksum: String,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptPrompt {
    /// Its tokens.
    pub token_ids: Vec<u32>,
    /// For a pair of texts: the position of the first token of the second type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_text: Option<usize>,
}

/// What was asked about the prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ReceiptSettings {
    /// To continue the prompt.
    Generate(ReceiptGeneration),
    /// To fill masks after the prompt, and in it.
    Diffuse(ReceiptDiffusion),
    /// To score labels after each prompt.
    Score(ReceiptScoring),
    /// To embed each prompt.
    Embed(ReceiptEmbedding),
    /// To put each prompt through the model's classifier.
    Classifier,
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptSampling {
    /// Temperature; 0 is greedy.
    pub temperature: Finite<f32>,
    /// Keep the k most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens whose probability reaches this.
    pub top_p: Finite<f32>,
    /// Drop tokens below this share of the most probable one.
    pub min_p: Finite<f32>,
    /// Keep the tokens whose information content is closest to the entropy, up to this probability.
    pub typical_p: Finite<f32>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Settings of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptGeneration {
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: ReceiptSampling,
    /// Divides positive logits of tokens that occurred, and multiplies others.
    pub repetition_penalty: Finite<f32>,
    /// Subtracted from the logit of a token for each time it was generated.
    pub frequency_penalty: Finite<f32>,
    /// Subtracted once from the logits of generated tokens.
    pub presence_penalty: Finite<f32>,
    /// Number of tokens before which no token that ends the text is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<usize>,
    /// Pairs of a token id and what is added to its logit.
    pub logit_bias: Vec<(i64, Finite<f32>)>,
    /// Number of continuations to return.
    pub n: usize,
    /// Number of continuations to generate.
    pub best_of: Option<usize>,
    /// Texts before which generation stops.
    pub stop: Vec<String>,
    /// Tokens that end it besides those of the model.
    pub stop_token_ids: Vec<i64>,
    /// Whether end-of-sequence tokens are ignored.
    pub ignore_eos: bool,
    /// Number of most probable tokens whose log-probabilities were returned.
    pub logprobs: Option<usize>,
    /// The same for tokens of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// The first position of the prompt with log-probabilities.
    pub prompt_logprobs_from: usize,
    /// Whether the KV cache was used.
    pub kv_cache: bool,
    /// What the text had to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<ReceiptGrammar>,
}

/// A grammar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptGrammar {
    /// What it is written in: `json_schema`, `compact_json_schema`, `regex`, `choice`, `lark` or `gbnf`.
    pub kind: String,
    /// The grammar.
    pub source: String,
    /// The library that says which tokens it allows, with its version.
    pub library: String,
}

/// Settings of a canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptDiffusion {
    /// Number of masks after the prompt.
    pub max_new_tokens: usize,
    /// Number of steps.
    pub steps: Option<usize>,
    /// What chooses the masks to fill.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Algorithm>>")]
    pub algorithm: Option<Algorithm>,
    /// End time of the schedule.
    pub eps: Finite<f32>,
    /// How tokens are chosen.
    pub sampling: ReceiptSampling,
    /// Temperature for choosing among masks.
    pub alg_temp: Finite<f32>,
    /// Number of masks per block.
    pub block_length: Option<usize>,
    /// Scale of guidance.
    pub cfg_scale: Finite<f32>,
    /// Probability from which masks are filled.
    pub threshold: Option<Finite<f32>>,
    /// Which keys and values are reused.
    #[serde(with = "named")]
    #[schemars(with = "named::OneOf<BlockCache>")]
    pub cache: BlockCache,
    /// Passes after which the whole canvas is run again.
    pub refresh: Option<usize>,
    /// Texts before which the text ends.
    pub stop: Vec<String>,
    /// Tokens that end it besides those of the model.
    pub stop_token_ids: Vec<i64>,
    /// Whether end-of-sequence tokens are ignored.
    pub ignore_eos: bool,
    /// Whether rows that cannot change the result are left out.
    pub savings: bool,
}

/// Settings of scores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptScoring {
    /// The labels of all prompts; empty if each has its own.
    pub label_token_ids: Vec<LabelIds>,
    /// The labels of each prompt.
    pub item_label_token_ids: Option<Vec<Vec<LabelIds>>>,
    /// How labels of several tokens count.
    #[serde(with = "named")]
    #[schemars(with = "named::OneOf<LongLabels>")]
    pub long_labels: LongLabels,
    /// What is scored after each label.
    pub end_token_ids: Vec<i64>,
    /// Whether the scores of a prompt sum to 1 over the labels.
    pub apply_softmax: bool,
    /// Whether log-probabilities are over the vocabulary.
    pub full_logprobs: bool,
    /// Whether what the model would write was read too.
    pub reading: bool,
    /// Of a model that fills masks: maximum number of maskings per label.
    pub mc_samples: Option<usize>,
    /// Their seed.
    pub seed: Option<u64>,
}

/// Settings of embeddings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEmbedding {
    /// How the states of a text become one vector.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
    /// Whether vectors are divided by their length.
    pub normalize: Option<bool>,
    /// Number of values.
    pub dimensions: Option<usize>,
}

/// The digest of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptLayerEntry {
    /// The layer, counted from 0.
    pub layer: usize,
    /// SHA-256 over the number of rows and the sum of the digests of all rows.
    pub sha256: String,
}

/// What the model answered. A key that does not apply is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptAnswerEntry {
    /// The new tokens; of a canvas, all tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Their text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The scores of labels, or the outputs of a classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Finite<f32>>>,
    /// The digest of an embedding: of its values as little-endian f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Digests of parts of a receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptDigests {
    /// Of `adapters`: of its JSON without spaces, the keys in the order of this form.
    pub adapters: String,
    /// Of each prompt, in the same way.
    pub prompts: Vec<String>,
    /// Of `request`, in the same way.
    pub request: String,
    /// Of the list of the numbers of the layers, in the same way.
    pub layers: String,
}

/// What a second run of the request of a receipt gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiptVerdict {
    /// Whether it gave the same.
    pub confirmed: bool,
    /// If not: `malformed` if the receipt is not as receipts are written, `changed` if a part of it does not have its digest, `differs` if
    /// something else was found than it says, `failed` if its request cannot be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The first place that is wrong, such as `layers[3] (layer 3)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What the receipt says there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// What was found instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl ReceiptDocument {
    /// The digests that it should have, of which `digest` makes each from the JSON of a part.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn digests(&self, digest: impl Fn(&[u8]) -> String) -> Result<ReceiptDigests, serde_json::Error> {
        let of_prompt = |prompt: &ReceiptPrompt| Ok(digest(&serde_json::to_vec(prompt)?));
        Ok(ReceiptDigests {
            adapters: digest(&serde_json::to_vec(&self.adapters)?),
            prompts: self.prompts.iter().map(of_prompt).collect::<Result<_, serde_json::Error>>()?,
            request: digest(&serde_json::to_vec(&self.request)?),
            layers: digest(&serde_json::to_vec(&self.layers.iter().map(|it| it.layer).collect::<Vec<_>>())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_true_false_or_layers() {
        let read = |json: &str| serde_json::from_str::<ReceiptChoice>(json).map_err(|e| e.to_string());
        assert_eq!(read("true").unwrap().layers(), Some(None));
        assert_eq!(read("false").unwrap().layers(), None);
        assert_eq!(read(r#"{"layers":[3,0]}"#).unwrap().layers(), Some(Some(vec![3, 0])));
        assert!(read("1").unwrap_err().contains("expected `true`, `false`, or an object with `layers`"));
        assert!(read(r#"{"layer":[3]}"#).unwrap_err().contains("unknown field `layer`"));
        assert!(read(r#"{"layers":[-3]}"#).unwrap_err().contains("integer `-3`"));
    }
}
