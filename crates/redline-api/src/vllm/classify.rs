//! `/v1/classify`, in the list form of vLLM.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, Label};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::aliased;
use crate::json::fields::{count, salt, timeout, within};
use crate::json::finite::Finite;
use crate::json::input::Strings;
use crate::json::limits::{MAX_CLASSES, MAX_TEXTS};
use crate::json::parts::with_parts;
use crate::json::shape;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// Asks for the class of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "ClassifyBody")]
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
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub options: RequestOptions,
}

with_parts! {
    ClassifyBody { options: RequestOptions }
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
    request.options.cache_salt = salt(body.options.cache_salt)?;
    request.options.timeout_s = timeout(body.options.timeout_s)?;
    request.options.receipt = receipt::options(body.options.receipt);
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
