//! XLM-R (Conneau et al. 2019): RoBERTa for a hundred languages.

use super::{Architecture, roberta};

/// In `config.json`: `XLMRobertaModel`.
pub const MODEL: Architecture =
    Architecture { name: "XLMRobertaModel", model_type: "xlm-roberta", spec: roberta::spec, gguf: None };
/// In `config.json`: `XLMRobertaForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "XLMRobertaForSequenceClassification",
    model_type: "xlm-roberta",
    spec: roberta::classifier,
    gguf: None,
};
