//! `classify`: the probability of each class for each text.

use redline_engine::{Classified, ClassifyOutcome, ItemError};
use redline_wire::{ClassResult, Classification, Finite, JudgeMeta, SchemaVersion};

use crate::{LoadedModel, cost};

/// Builds the JSON document of the answer. `classes` are the names of the classes as requested.
pub fn answer(model: &LoadedModel, classes: &[String], outcome: ClassifyOutcome) -> Classification {
    let result = |(index, classified)| match classified {
        Ok(Classified { probabilities, best, margin, prompt_tokens, truncated }) => ClassResult {
            index,
            class: classes.get(best).cloned(),
            probabilities: Some(probabilities.into_iter().map(Finite).collect()),
            margin: Some(Finite(margin)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { message, .. }) => {
            ClassResult { index, error: Some(message), ..ClassResult::default() }
        }
    };
    Classification {
        object: "classification".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        classes: classes.to_vec(),
        results: outcome.texts.into_iter().enumerate().map(result).collect(),
        usage: cost::usage(outcome.cost.usage),
        meta: JudgeMeta {
            label_token_ids: cost::label_ids(outcome.class_token_ids),
            cost: cost::cost(model, outcome.cost),
        },
    }
}
