//! The identity of a model.

/// What all answers of a loaded model depend on, besides the requests and their adapters. Equal identities give equal bits, on every
/// machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    /// A digest over the weights, their format, that of keys and values, the configuration, and the version of the engine.
    pub weights: String,
    /// A digest over what turns texts into tokens and answers into texts: tokenizer, chat template, pooling.
    pub texts: String,
}
