//! Errors of requests and of loading a model.

use std::any::Any;

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_kernels::{OutOfMemory, Unavailable};
use redline_models::ModelError;
use redline_models::kv::KvError;
use redline_settings::{Command, Hint, Setting, hint};
use redline_tokenizer::TokenizerError;
use redline_weights::WeightsError;

use crate::plan::{Bucket, Forbidden};

/// An error of the engine. `Display` gives the fact with its numbers, [`EngineError::hint`] the advice.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer cannot be loaded or refuses a text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The requested tier is not available.
    #[error("{0}")]
    Tier(#[from] Unavailable),
    /// Threads could not be started.
    #[error("{threads} threads could not be started: {reason}")]
    Threads {
        /// The requested number of threads.
        threads: usize,
        /// The operating system's message.
        reason: String,
    },
    /// The operating system refused memory.
    #[error("{0}")]
    Memory(#[from] OutOfMemory),
    /// The memory budget leaves no room for more keys and values.
    #[error("the memory budget leaves room for {tokens} tokens of keys and values, and all are in use")]
    KvFull {
        /// Number of tokens that fit.
        tokens: usize,
    },
    /// An option is invalid.
    #[error("{0}")]
    Option(String),
    /// Text was given to a model without a tokenizer.
    #[error("text needs a tokenizer, and this model has none\n  in `{0}`")]
    NoTokenizer(String),
    /// A request is invalid; nothing was computed.
    #[error("{fact}")]
    Request {
        /// The fact with its numbers.
        fact: String,
        /// What to do instead.
        hint: Option<Hint>,
        /// Name of the invalid field; `None` if it is unknown, or is the prompt itself.
        field: Option<&'static str>,
    },
    /// The model's output is not a number; weights or input are damaged beyond what was checked.
    #[error("the model returned a value that is not finite for {0}")]
    NonFinite(String),
    /// The request was not finished within its time limit.
    #[error("the request was not finished within its time: {seconds:.3} s have passed{}", partly(*.tokens))]
    Late {
        /// Seconds since it reached the engine.
        seconds: f64,
        /// Number of new tokens by then.
        tokens: Option<usize>,
    },
    /// The request waited for its first pass for longer than it may; nothing was computed.
    #[error("the request was not begun within its time: it has waited for {seconds:.3} s")]
    Expired {
        /// Seconds since it reached the engine.
        seconds: f64,
    },
    /// No adapter has this name.
    #[error("no adapter is named `{name}`")]
    NoAdapter {
        /// The name.
        name: String,
        /// Some of the names that there are.
        known: Vec<String>,
    },
    /// The maximum number of requests is waiting or running; nothing was computed.
    #[error("{requests} requests are waiting or running, and no more may be")]
    QueueFull {
        /// The number of requests.
        requests: usize,
    },
    /// The grammar of the answer could not be compiled now; nothing was computed.
    #[error("{fact}")]
    Grammar {
        /// Why not.
        fact: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// There is no plan for a pass, and the policy forbids to make one.
    #[error("there is no plan for `{bucket}`, and plans are forbidden to be made{}", differing(.differs))]
    NoPlan {
        /// The bucket of the pass.
        bucket: Bucket,
        /// How the most similar stored plan differs; empty if nothing is stored.
        differs: String,
    },
    /// The caller cancelled before there was anything to answer.
    #[error("cancelled before there was an answer")]
    Cancelled,
    /// No part of a request can run, although it fits: a bug of the engine.
    #[error("nothing of the request can be run, though there is room for it")]
    Stalled,
    /// The engine panicked in a pass of the request; requests outside that pass continue.
    #[error("the engine failed while it ran the request: {0}")]
    Panicked(String),
    /// The engine's thread ended.
    #[error("the engine has stopped")]
    Stopped,
}

impl EngineError {
    pub(crate) fn request(fact: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self::Request { fact: fact.into(), hint: Some(hint.into()), field: None }
    }

    /// Like [`EngineError::request`], and names the field.
    pub(crate) fn field(field: &'static str, fact: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self::Request { fact: fact.into(), hint: Some(hint.into()), field: Some(field) }
    }

    /// Names the field of an invalid request whose error names none.
    pub(crate) fn of_field(self, name: &'static str) -> Self {
        match self {
            Self::Request { fact, hint, field: None } => Self::Request { fact, hint, field: Some(name) },
            other => other,
        }
    }

    /// Whether the request alone is the cause, so that it would fail in the same way on every machine, whatever else it does.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Request { hint, .. } => {
                let names = |setting| hint.as_ref().is_some_and(|hint| hint.names(setting));
                !names(Setting::Memory) && !names(Setting::AdapterMemory)
            }
            Self::Tokenizer(_) | Self::NonFinite(_) | Self::NoAdapter { .. } => true,
            _ => false,
        }
    }

    /// Advice to the caller, if there is any.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Model(e) => e.hint(),
            Self::Tokenizer(e) => e.hint().map(Hint::from),
            Self::Tier(_) => {
                Some(hint![Setting::Tier.unset(), ", or choose a tier that ", Command::Doctor, " lists"])
            }
            Self::Memory(_) => Some(hint!["use a smaller ", Setting::MaxContext, " or ", Setting::Format]),
            Self::KvFull { .. } => Some(hint!["give more ", Setting::Memory, ", or less to do at a time"]),
            Self::NoTokenizer(_) => Some("give token ids instead of text, or add `tokenizer.json`".into()),
            Self::Request { hint, .. } => hint.clone(),
            Self::NonFinite(_) => {
                Some(hint!["try ", Setting::Format.to("f32"), "; if it stays, the checkpoint is damaged"])
            }
            Self::Expired { .. } => Some("try again when less is waiting, or let it wait longer".into()),
            Self::NoAdapter { known, .. } if known.is_empty() => Some("none is loaded".into()),
            Self::NoAdapter { known, .. } => Some(format!("loaded: {}", known.join(", ")).into()),
            Self::Grammar { hint, .. } => Some((*hint).into()),
            Self::Late { .. } => Some("give it more time, or ask for less".into()),
            Self::QueueFull { .. } => Some("try again when some of them are answered".into()),
            Self::NoPlan { .. } => {
                let without = Setting::PlanPolicy.to("estimate");
                Some(hint![Command::Precompile, " makes plans; ", without, " does without"])
            }
            Self::Threads { .. } => Some(hint!["use fewer ", Setting::Threads]),
            Self::Stalled | Self::Panicked(_) => Some("please report this with the request".into()),
            Self::Option(_) | Self::Cancelled | Self::Stopped => None,
        }
    }
}

impl From<Forbidden> for EngineError {
    fn from(Forbidden { bucket, differs }: Forbidden) -> Self {
        Self::NoPlan { bucket, differs }
    }
}

impl From<KvError> for EngineError {
    fn from(e: KvError) -> Self {
        match e {
            KvError::Full { pages } => Self::KvFull { tokens: pages.saturating_mul(PAGE_TOKENS) },
            KvError::Memory(e) => Self::Memory(e),
        }
    }
}

impl From<WeightsError> for EngineError {
    fn from(e: WeightsError) -> Self {
        Self::Model(ModelError::Weights(e))
    }
}

fn differing(differs: &str) -> String {
    if differs.is_empty() { String::new() } else { format!(": {differs}") }
}

fn partly(tokens: Option<usize>) -> String {
    tokens.map_or_else(String::new, |tokens| format!(", {tokens} new tokens were there"))
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_not_the_fault_of_the_request_alone() {
        let refused = |hint: Hint| EngineError::request("too long", hint).is_certain();
        assert!(refused(hint!["shorten it, or choose an end to cut with ", Setting::Truncate.to("left")]));
        assert!(!refused(hint!["give more ", Setting::Memory, ", or shorten it"]));
        assert!(!refused(hint!["give ", Setting::Memory.to("8MiB")]));
        assert!(!refused(hint!["give more ", Setting::AdapterMemory]));
        assert!(EngineError::NoAdapter { name: "a".to_owned(), known: Vec::new() }.is_certain());
        assert!(EngineError::NonFinite("a label".to_owned()).is_certain());
        assert!(!EngineError::KvFull { tokens: 1 }.is_certain());
    }

    #[test]
    fn room_is_told_in_tokens_and_lateness_with_what_there_was() {
        let full = EngineError::from(KvError::Full { pages: 3 });
        let room = "the memory budget leaves room for 192 tokens of keys and values, and all are in use";
        assert_eq!(full.to_string(), room);
        let late = |tokens| EngineError::Late { seconds: 1.23456, tokens }.to_string();
        let begin = "the request was not finished within its time: 1.235 s have passed";
        assert_eq!(late(None), begin);
        assert_eq!(late(Some(0)), format!("{begin}, 0 new tokens were there"));
    }
}
