//! `/v1/classify`, in the list form of vLLM.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cases::aliased;
use crate::limits::{MAX_CLASSES, MAX_TEXTS};
use crate::shape;
use crate::{AdapterNames, Finite, ReceiptChoice, ReceiptDocument, Strings, Usage};

/// Asks for the class of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields)]
pub struct ClassifyBody {
    /// The model's name.
    pub model: Option<String>,
    /// The texts.
    #[serde(alias = "text", alias = "texts")]
    #[schemars(with = "shape::Texts<1, MAX_TEXTS>")]
    pub input: Strings,
    /// The classes.
    #[schemars(with = "Vec<shape::SomeText>", length(min = 2, max = MAX_CLASSES), extend("uniqueItems" = true))]
    pub classes: Vec<String>,
    /// The smallest probability that a class must have to be the answer.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: Option<f32>,
    /// The text into which each text is put, with `{text}` once and `{classes}` at most once.
    #[schemars(with = "Option<shape::TextTemplate>")]
    pub template: Option<String>,
    /// A text without content, by which classes are calibrated.
    pub calibrate: Option<String>,
    /// The adapters, applied one after the other.
    pub adapter: Option<AdapterNames>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    pub receipt: Option<ReceiptChoice>,
}

/// Answer of `/v1/classify`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClassifyAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `list`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// One entry per text.
    pub data: Vec<ClassifiedText>,
    /// The classes, in the order of the probabilities.
    pub classes: Vec<String>,
    /// Token counts.
    pub usage: Usage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// The class of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClassifiedText {
    /// Its index in the request.
    pub index: usize,
    /// The most probable class; `null` if its probability is below the threshold.
    pub label: Option<String>,
    /// The probability of each class.
    pub probs: Vec<Finite<f32>>,
    /// Number of classes.
    pub num_classes: usize,
}

fn request_cases(schema: &mut Schema) {
    aliased(schema, &["input", "text", "texts"]);
}
