//! Requests to classify texts.

use super::{Label, LongLabels, Truncate};

/// `classify`: the probability of each class for each text, and the best class.
#[derive(Clone, Debug)]
pub struct ClassifyRequest {
    /// One result per text, in this order. May be empty.
    pub texts: Vec<String>,
    /// The classes, at least two, in the order of the probabilities. With the default template, a text class gets a leading
    /// space unless it has one; with another template it is used unchanged. Duplicates keep their places and share the
    /// probability.
    pub classes: Vec<Label>,
    /// Text with `{text}` once and `{classes}` at most once (replaced by the classes, separated by commas). It ends where the
    /// class is to be written. `None`: [`ClassifyRequest::TEMPLATE`]. A model that was trained to classify needs the template
    /// of its training.
    pub template: Option<String>,
    /// How a class of several tokens is scored.
    pub long_labels: LongLabels,
    /// Which end of a text is cut if its prompt exceeds the context (the template stays whole); `None`: an error.
    pub truncate: Option<Truncate>,
    /// Report a text's error in its place instead of failing the whole request.
    pub item_errors: bool,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
}

impl ClassifyRequest {
    /// The default template, for instruction-tuned models.
    pub const TEMPLATE: &str = "Classify the text as one of: {classes}\n\nText: {text}\n\nClass:";

    /// Creates a request with these values. Other fields take their defaults: the default template, classes of several tokens
    /// scored by the probability of all of them, and an error in any text fails the request.
    pub fn new(texts: Vec<String>, classes: Vec<Label>) -> Self {
        Self {
            texts,
            classes,
            template: None,
            long_labels: LongLabels::Sum,
            truncate: None,
            item_errors: false,
            cache_salt: String::new(),
            timeout_s: None,
        }
    }
}
