//! What `classify` and `rerank` have in common.

use redline_engine::{Engine, JudgeOptions, Label, RequestCost};
use redline_settings::{LabelEnd, LongLabels, Truncate};
use serde::{Deserialize, Serialize};

use crate::adapter::adapters;
use crate::chat::template::Chat;
use crate::cost::{self, CostMeta};
use crate::error::ApiError;
use crate::json::input::LabelIds;
use crate::json::named::ByName;
use crate::json::parts::part;
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;

/// Details of an answer besides the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeMeta {
    /// The token ids of the classes in order, or of the yes and no labels.
    pub label_token_ids: Vec<LabelIds>,
    /// The token ids that were scored after every label, if the end of labels was scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub end_token_ids: Vec<u32>,
    /// The cost of the request.
    #[serde(flatten)]
    pub cost: CostMeta,
}

/// Puts the instructions of requests into a model's chat template.
pub struct ChatFrames {
    chat: Chat,
    /// What the model writes after an answer, if its template ends answers.
    end: Option<Label>,
    /// The last instruction and its rendering.
    last: Option<(String, String)>,
}

impl ChatFrames {
    /// Prepares the chat template for a model.
    pub fn new(chat: Chat, engine: &Engine) -> Result<Self, ApiError> {
        let end = chat.answer_end(engine)?.map(|id| Label::Ids(vec![i64::from(id)]));
        Ok(Self { chat, end, last: None })
    }

    /// Turns the template of a request, or else `instruction`, into the message of a user. Labels are what the model writes at the
    /// beginning of its answer, and end where the template ends an answer.
    pub fn apply(&mut self, options: JudgeOptions, instruction: &str) -> Result<JudgeOptions, ApiError> {
        let message = options.template.as_deref().unwrap_or(instruction);
        let template = match &self.last {
            Some((last, template)) if last == message => template.clone(),
            _ => self.chat.text(message)?,
        };
        self.last = Some((message.to_owned(), template.clone()));
        Ok(JudgeOptions {
            template: Some(template),
            add_special_tokens: false,
            end: options.end.or_else(|| self.end.clone()),
            ..options
        })
    }
}

part! {
    /// How texts are put to the model, and how the labels of its answer are scored.
    pub struct JudgeKeys {
        /// The text into which each text is put.
        pub template: String,
        /// How a label of several tokens is scored.
        pub long_labels | "length": ByName<LongLabels>,
        /// Whether the end of a label is scored with it.
        pub label_end: ByName<LabelEnd>,
        /// What the model writes after a label.
        pub end: String,
        /// A text without content, by which the probabilities are calibrated.
        pub calibrate: String,
        /// Which end of a text is cut if its prompt exceeds the context. If absent or `null`, such a text is an error.
        pub truncate: ByName<Truncate>,
        /// Report a text's error in its place instead of failing the whole request.
        pub item_errors: bool,
    }
}

impl JudgeKeys {
    /// The options of a request. Absent keys take their values from `defaults`, whose salt, receipt and queueing are not used.
    pub(crate) fn options(self, request: RequestOptions, defaults: &JudgeOptions) -> JudgeOptions {
        JudgeOptions {
            template: self.template.or_else(|| defaults.template.clone()),
            add_special_tokens: defaults.add_special_tokens,
            long_labels: self.long_labels.map_or(defaults.long_labels, |choice| choice.0),
            label_end: self.label_end.map_or(defaults.label_end, |choice| choice.0),
            end: self.end.map(Label::Text).or_else(|| defaults.end.clone()),
            calibrate: self.calibrate.or_else(|| defaults.calibrate.clone()),
            truncate: self.truncate.map(|choice| choice.0).or(defaults.truncate),
            item_errors: self.item_errors.unwrap_or(defaults.item_errors),
            cache_salt: request.cache_salt.unwrap_or_default(),
            adapters: adapters(request.adapter, &defaults.adapters),
            timeout_s: request.timeout_s.or(defaults.timeout_s),
            receipt: receipt::options(request.receipt),
            ..JudgeOptions::default()
        }
    }
}

/// The name of a class in answers.
pub(crate) fn name(class: &Label) -> String {
    match class {
        Label::Text(text) => text.clone(),
        Label::Ids(ids) => format!("{ids:?}"),
    }
}

/// Details of an answer.
pub(crate) fn meta(
    model: &LoadedModel,
    label_token_ids: Vec<Vec<u32>>,
    end_token_ids: Vec<u32>,
    from: RequestCost,
) -> JudgeMeta {
    JudgeMeta {
        label_token_ids: cost::label_ids(label_token_ids),
        end_token_ids,
        cost: cost::cost(model, from),
    }
}
