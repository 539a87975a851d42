//! `/embed`: the vector of each text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt};
use redline_settings::Pooling;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::input::Prompts;
use crate::json::limits::MAX_TEXTS;
use crate::json::vector::dense;
use crate::json::{named, shape};
use crate::tei::truncation::{TruncationDirection, end_of};

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbedBody {
    /// A text, texts, the token ids of one text, or those of several.
    #[schemars(with = "shape::PromptsUpTo<MAX_TEXTS>")]
    pub inputs: Prompts,
    /// Whether vectors are divided by their length, to length 1; yes if absent.
    pub normalize: Option<bool>,
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
}

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
        ..EmbedRequest::new(body.inputs.0.into_iter().map(Prompt::from).collect())
    })
}

/// Builds the answer.
pub fn answer(outcome: EncodeOutcome) -> Vec<Vec<Finite<f32>>> {
    outcome.texts.into_iter().map(dense).collect()
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

    #[test]
    fn a_request_to_embed_has_texts_or_token_ids() {
        let body = |json: &str| serde_json::from_str::<EmbedBody>(json).map_err(|error| error.to_string());
        for (json, count) in
            [(r#""a""#, 1), (r#"["a"]"#, 1), (r#"["a","b"]"#, 2), ("[1,2]", 1), ("[[1],[2]]", 2), ("[]", 0)]
        {
            assert_eq!(body(&format!(r#"{{"inputs":{json}}}"#)).unwrap().inputs.0.len(), count, "{json}");
        }
        let full = r#"{"inputs":"a","normalize":false,"truncate":true,"truncation_direction":"Left","prompt_name":"query","dimensions":4,
            "pooling":"cls"}"#;
        assert_eq!(body(full).unwrap().pooling, Some(Pooling::First));
        assert!(body(r#"{"inputs":[["a","b"]]}"#).unwrap_err().contains("expected i64"));
        assert!(body(r#"{"inputs":"a","input":"b"}"#).unwrap_err().contains("unknown field `input`"));
    }
}
