//! Requests to classify texts.

use super::{JudgeOptions, Label};

/// `classify`: the probability of each class for each text, and the best class.
#[derive(Clone, Debug)]
pub struct ClassifyRequest {
    /// One result per text, in this order. May be empty.
    pub texts: Vec<String>,
    /// The second text of each pair, if texts are pairs: empty, or one for each text. A model with classes of its own reads both as it
    /// was trained; for any other, the second one stands in a line of its own.
    pub second_texts: Vec<Option<String>>,
    /// The classes, at least two with different tokens, in the order of the probabilities. With the default template, a text
    /// class gets a leading space unless it has one; with another template it is used unchanged. Empty for a model with classes of its
    /// own.
    pub classes: Vec<Label>,
    /// The smallest probability that the best class must have to be the answer; `None`: any.
    pub threshold: Option<f32>,
    /// Further options. The template is a text with `{text}` once and `{classes}` at most once (replaced by the classes,
    /// separated by commas); its default is [`ClassifyRequest::TEMPLATE`].
    pub options: JudgeOptions,
}

impl ClassifyRequest {
    /// The default template, for instruction-tuned models.
    pub const TEMPLATE: &str = "Classify the text as one of: {classes}\n\nText: {text}\n\nClass:";
    /// The default message of a user to a model with a chat template.
    pub const INSTRUCTION: &str =
        "Classify the text as one of: {classes}\n\nText: {text}\n\nReply with the class and nothing else.";

    /// Creates a request with the default options.
    pub fn new(texts: Vec<String>, classes: Vec<Label>) -> Self {
        let second_texts = Vec::new();
        Self { texts, second_texts, classes, threshold: None, options: JudgeOptions::default() }
    }
}
