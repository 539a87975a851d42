//! Requests to embed texts.

use redline_settings::{Pooling, Truncate, VectorForm};

use super::{AdapterChoice, Prompt, Queueing, ReceiptOptions};

/// `embed`: what represents each text.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// The texts, answered in this order. May be empty.
    pub texts: Vec<Prompt>,
    /// What represents a text. Pooling, length, number of dimensions and receipts are for [`VectorForm::Dense`] only.
    pub form: VectorForm,
    /// How the states of a text become one vector; `None`: as the model's `modules.json` says.
    pub pooling: Option<Pooling>,
    /// Whether vectors are divided by their length, to length 1; `None`: as the model says, or if it says nothing, yes.
    pub normalise: Option<bool>,
    /// Number of values of a vector, if it is to be less than the model's own: the others are cut off, before vectors are divided by
    /// their length (Kusupati et al. 2022, Matryoshka representations).
    pub dimensions: Option<usize>,
    /// The name of the task whose prompt is put before every text, such as `query`; `None`: the model's default, or no prompt. Prompts
    /// are put before texts only, not before token ids.
    pub prompt_name: Option<String>,
    /// Which end of a text is cut if it exceeds the maximum length; `None`: an error.
    pub truncate: Option<Truncate>,
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

impl EmbedRequest {
    /// Creates a request for what the model says about itself.
    pub fn new(texts: Vec<Prompt>) -> Self {
        Self {
            texts,
            form: VectorForm::Dense,
            pooling: None,
            normalise: None,
            dimensions: None,
            prompt_name: None,
            truncate: None,
            cache_salt: String::new(),
            adapters: Vec::new(),
            timeout_s: None,
            queueing: Queueing::default(),
            receipt: None,
        }
    }
}
