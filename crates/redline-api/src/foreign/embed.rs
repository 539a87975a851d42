//! `/embed`: the vector of each text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome};
use redline_wire::{EmbedBody, Finite};

use super::fields::refused;
use super::rerank::end_of;
use crate::ApiError;
use crate::embed::vector;
use crate::prompt::prompt;

/// Builds the engine's request.
pub fn request(body: EmbedBody) -> Result<EmbedRequest, ApiError> {
    if body.inputs.0.is_empty() {
        return Err(refused("inputs", "`inputs` has 0 texts", "give at least one"));
    }
    Ok(EmbedRequest {
        pooling: body.pooling,
        normalise: Some(body.normalize.unwrap_or(true)),
        dimensions: body.dimensions,
        prompt_name: body.prompt_name,
        truncate: (body.truncate == Some(true)).then(|| end_of(body.truncation_direction)),
        ..EmbedRequest::new(body.inputs.0.into_iter().map(prompt).collect())
    })
}

/// Builds the answer.
pub fn answer(outcome: EncodeOutcome) -> Vec<Vec<Finite<f32>>> {
    outcome.texts.into_iter().map(vector).collect()
}

#[cfg(test)]
mod tests {
    use redline_engine::{Pooling, Prompt, Truncate};

    use super::*;

    #[test]
    fn every_field_reaches_the_request() {
        let told =
            |json: &str| format!("{:#?}", request(serde_json::from_str::<EmbedBody>(json).unwrap()).unwrap());
        let texts = |texts: &[&str]| {
            let texts = texts.iter().map(|text| Prompt::Text((*text).to_owned()));
            EmbedRequest { normalise: Some(true), ..EmbedRequest::new(texts.collect()) }
        };
        assert_eq!(told(r#"{"inputs":"a"}"#), format!("{:#?}", texts(&["a"])));
        assert_eq!(
            told(r#"{"inputs":["a","b"],"truncation_direction":"Left"}"#),
            format!("{:#?}", texts(&["a", "b"])),
            "nothing is cut unless `truncate` says so"
        );
        let right = EmbedRequest { truncate: Some(Truncate::Right), ..texts(&["a"]) };
        assert_eq!(told(r#"{"inputs":"a","truncate":true}"#), format!("{right:#?}"));
        let full = EmbedRequest {
            pooling: Some(Pooling::First),
            normalise: Some(false),
            dimensions: Some(4),
            prompt_name: Some("query".to_owned()),
            truncate: Some(Truncate::Left),
            ..EmbedRequest::new(vec![Prompt::Ids(vec![1, 2])])
        };
        let json = r#"{"inputs":[1,2],"normalize":false,"truncate":true,"truncation_direction":"Left","prompt_name":"query",
            "dimensions":4,"pooling":"cls"}"#;
        assert_eq!(told(json), format!("{full:#?}"));
        assert!(request(serde_json::from_str(r#"{"inputs":[]}"#).unwrap()).is_err());
    }
}
