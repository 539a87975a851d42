//! XLM-R (Conneau et al. 2019): RoBERTa for a hundred languages.

use super::{Architecture, roberta};
use crate::gguf::dialect::GgufDialect;

/// In `config.json`: `XLMRobertaModel`.
pub const MODEL: Architecture = Architecture {
    name: "XLMRobertaModel",
    model_type: "xlm-roberta",
    spec: roberta::spec,
    gguf: Some(GGUF),
};
/// In `config.json`: `XLMRobertaForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture =
    Architecture { name: "XLMRobertaForMaskedLM", spec: roberta::masked, gguf: None, ..MODEL };
/// In `config.json`: `XLMRobertaForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "XLMRobertaForSequenceClassification",
    model_type: "xlm-roberta",
    spec: roberta::classifier,
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect {
    tokenizer: Some("t5"),
    ..GgufDialect::new("bert", |keys| roberta::gguf_of(keys, &CLASSIFIER))
};
