//! `/similarity`: how similar texts are to one text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt};
use redline_settings::Pooling;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::json::fields::count;
use crate::json::finite::Finite;
use crate::json::limits::MAX_TEXTS;
use crate::json::named;
use crate::json::object::objects;
use crate::tei::truncation::{TruncationDirection, end_of};

/// Asks for the similarity of texts to one text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimilarityBody {
    /// The texts.
    pub inputs: SimilarityInputs,
    /// How their vectors are made.
    pub parameters: Option<SimilarityParameters>,
}

/// The texts that are compared.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "SimilarityInputs")]
pub struct SimilarityInputs {
    /// The text that the others are compared with.
    pub source_sentence: String,
    /// The others.
    #[schemars(length(min = 1, max = MAX_TEXTS))]
    pub sentences: Vec<String>,
}

/// How vectors are made.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "SimilarityParameters")]
pub struct SimilarityParameters {
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
}

objects!(SimilarityInputs, SimilarityParameters);

/// Builds the engine's request: the text that the others are compared with is the first one.
pub fn request(body: SimilarityBody) -> Result<EmbedRequest, ApiError> {
    let SimilarityInputs { source_sentence, sentences } = body.inputs;
    count("inputs.sentences", sentences.len(), 1..=MAX_TEXTS)?;
    let parameters = body.parameters.unwrap_or_default();
    let texts = std::iter::once(source_sentence).chain(sentences).map(Prompt::Text);
    Ok(EmbedRequest {
        pooling: parameters.pooling,
        prompt_name: parameters.prompt_name,
        truncate: (parameters.truncate == Some(true)).then(|| end_of(parameters.truncation_direction)),
        ..EmbedRequest::new(texts.collect())
    })
}

/// Builds the answer: the cosine of the angle between the vector of the first text and that of each other one.
pub fn answer(outcome: &EncodeOutcome) -> Vec<Finite<f32>> {
    let Some((first, others)) = outcome.texts.split_first() else { return Vec::new() };
    others.iter().map(|other| Finite(cosine(&first.values, &other.values))).collect()
}

/// The cosine of the angle between two vectors; 0 if one of them has no direction.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { (dot(a, b) / lengths) as f32 }
}

#[cfg(test)]
mod tests {
    use redline_engine::Truncate;

    use super::*;

    #[test]
    fn every_field_reaches_the_request() {
        let read = |json: &str| request(serde_json::from_str(json).unwrap());
        let json = r#"{"inputs":{"source_sentence":"a","sentences":["b","c"]},"parameters":{"truncate":true,
            "truncation_direction":"Left","prompt_name":"query","pooling":"mean"}}"#;
        let told = read(json).unwrap();
        let texts = ["a", "b", "c"].map(|text| Prompt::Text(text.to_owned()));
        assert_eq!((&told.texts[..], told.truncate), (&texts[..], Some(Truncate::Left)));
        assert_eq!((told.prompt_name.as_deref(), told.pooling), (Some("query"), Some(Pooling::Mean)));
        let none = read(r#"{"inputs":{"source_sentence":"a","sentences":[]}}"#).unwrap_err();
        assert!(matches!(none, ApiError::Field { param, .. } if param == "inputs.sentences"));
    }

    #[test]
    fn the_cosine_depends_on_the_angle_only() {
        assert_eq!(cosine(&[3.0, 0.0], &[0.5, 0.0]), 1.0);
        assert_eq!(cosine(&[3.0, 0.0], &[-2.0, 0.0]), -1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 4.0]), 0.0);
        assert!((cosine(&[1.0, 0.0], &[1.0, 1.0]) - 0.5_f32.sqrt()).abs() < 1e-6);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
    }
}
