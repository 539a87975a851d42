//! What requests to classify and to rerank have in common.

use redline_settings::{LabelEnd, LongLabels, Truncate};

use super::{AdapterChoice, Label, Queueing, ReceiptOptions};

/// How texts are put to the model and how its labels, the classes or yes and no, are scored.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeOptions {
    /// The text into which each text is put; it ends where the label is to be written. `None`: the default template of the
    /// request. A model that was trained for the task needs the template of its training.
    pub template: Option<String>,
    /// Whether the tokenizer's special tokens are put around a prompt. A template made from a chat template already contains
    /// them.
    pub add_special_tokens: bool,
    /// How a label of several tokens is scored.
    pub long_labels: LongLabels,
    /// Whether the end of a label is scored with it.
    pub label_end: LabelEnd,
    /// What the model writes after a label; `None`: its end-of-text token, the first one of its configuration.
    pub end: Option<Label>,
    /// A text without content, such as [`JudgeOptions::CONTENT_FREE`]. The probabilities of the labels for this text measure the
    /// preference of the model for labels as such; those of every text are divided by them and normalised again (contextual
    /// calibration, Zhao et al. 2021, arXiv:2102.09690). `None`: no calibration.
    pub calibrate: Option<String>,
    /// Which end of a text is cut if its prompt exceeds the context (the template stays whole); `None`: an error.
    pub truncate: Option<Truncate>,
    /// Texts of more tokens, special tokens not counted, are cut at their end to so many; `None`: none is cut.
    pub max_text_tokens: Option<usize>,
    /// Report a text's error in its place instead of failing the whole request.
    pub item_errors: bool,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
    /// Whose request it is, and how long it may wait to begin.
    pub queueing: Queueing,
    /// Ask for a receipt.
    pub receipt: Option<ReceiptOptions>,
}

impl JudgeOptions {
    /// The usual text without content.
    pub const CONTENT_FREE: &str = "N/A";
}

impl Default for JudgeOptions {
    /// The default template, labels of several tokens scored by the probability of all of them, the end scored where one label
    /// begins another, no calibration, and an error in any text fails the request.
    fn default() -> Self {
        Self {
            template: None,
            add_special_tokens: true,
            long_labels: LongLabels::Sum,
            label_end: LabelEnd::Auto,
            end: None,
            calibrate: None,
            truncate: None,
            max_text_tokens: None,
            item_errors: false,
            cache_salt: String::new(),
            adapters: Vec::new(),
            timeout_s: None,
            queueing: Queueing::default(),
            receipt: None,
        }
    }
}
