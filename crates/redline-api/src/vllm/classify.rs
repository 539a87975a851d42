//! `/v1/classify`, in the list form of vLLM.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, Label};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::adapter::AdapterNames;
use crate::cost::Usage;
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::aliased;
use crate::json::fields::{count, salt, timeout, within};
use crate::json::finite::Finite;
use crate::json::input::Strings;
use crate::json::limits::{MAX_CLASSES, MAX_TEXTS};
use crate::json::shape;
use crate::receipt::document::{ReceiptChoice, ReceiptDocument};
use crate::{cost, receipt};

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

/// Builds the engine's request.
pub fn request(body: ClassifyBody) -> Result<ClassifyRequest, ApiError> {
    count("input", body.input.0.len(), 1..=MAX_TEXTS)?;
    count("classes", body.classes.len(), 2..=MAX_CLASSES)?;
    let classes = body.classes.into_iter().map(Label::Text).collect();
    let mut request = ClassifyRequest::new(body.input.0, classes);
    request.threshold = within("threshold", body.threshold, 0.0..=1.0)?;
    request.options.template = body.template;
    request.options.calibrate = body.calibrate;
    request.options.cache_salt = salt(body.cache_salt)?;
    request.options.timeout_s = timeout(body.timeout_s)?;
    request.options.receipt = receipt::options(body.receipt);
    Ok(request)
}

/// Builds the answer.
pub fn answer(head: AnswerHead, outcome: ClassifyOutcome) -> ClassifyAnswer {
    let classes: Vec<String> = outcome.classes.iter().map(crate::jsonl::judge::name).collect();
    let text = |(index, Classified { probabilities, best, .. })| ClassifiedText {
        index,
        label: best.and_then(|best: usize| classes.get(best).cloned()),
        num_classes: probabilities.len(),
        probs: probabilities.into_iter().map(Finite).collect(),
    };
    ClassifyAnswer {
        id: head.id,
        object: "list",
        created: head.created,
        model: head.model,
        data: outcome.texts.into_iter().flatten().enumerate().map(text).collect(),
        classes: classes.clone(),
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    }
}
