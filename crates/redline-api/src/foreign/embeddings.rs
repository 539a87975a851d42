//! `/v1/embeddings`: the vector of each text, in OpenAI's form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redline_engine::{EmbedRequest, EncodeOutcome, Encoded, EngineError};
use redline_wire::limits::MAX_TEXTS;
use redline_wire::{EmbeddedText, EmbeddingsAnswer, EmbeddingsBody, EncodingFormat, WrittenVector};

use super::AnswerHead;
use super::fields::{count, salt, timeout};
use crate::embed::vector;
use crate::prompt::prompt;
use crate::{ApiError, cost, receipt};

/// Builds the engine's request, and returns how vectors are written.
pub fn request(body: EmbeddingsBody) -> Result<(EmbedRequest, EncodingFormat), ApiError> {
    count("input", body.input.0.len(), 1..=MAX_TEXTS)?;
    let request = EmbedRequest {
        pooling: body.pooling,
        normalise: body.normalize,
        dimensions: body.dimensions,
        prompt_name: body.prompt_name,
        truncate: body.truncate,
        cache_salt: salt(body.cache_salt)?,
        timeout_s: timeout(body.timeout_s)?,
        receipt: receipt::options(body.receipt),
        ..EmbedRequest::new(body.input.0.into_iter().map(prompt).collect())
    };
    Ok((request, body.encoding_format.unwrap_or_default()))
}

/// Names the field with the texts in an error of the engine about them.
pub fn named(error: EngineError, param: &'static str) -> EngineError {
    match error {
        EngineError::Request { fact, hint, field: Some("texts") } => {
            EngineError::Request { fact, hint, field: Some(param) }
        }
        other => other,
    }
}

/// Builds the answer.
pub fn answer(head: AnswerHead, format: EncodingFormat, outcome: EncodeOutcome) -> EmbeddingsAnswer {
    let written =
        |(index, text)| EmbeddedText { object: "embedding", index, embedding: written(format, text) };
    EmbeddingsAnswer {
        object: "list",
        data: outcome.texts.into_iter().enumerate().map(written).collect(),
        model: head.model,
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    }
}

/// Writes the vector of a text.
fn written(format: EncodingFormat, text: Encoded) -> WrittenVector {
    match format {
        EncodingFormat::Float => WrittenVector::Float(vector(text)),
        EncodingFormat::Base64 => {
            let bytes: Vec<u8> = text.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            WrittenVector::Base64(STANDARD.encode(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{Pooling, Prompt, Truncate};
    use redline_wire::Finite;

    use super::*;

    #[test]
    fn every_field_reaches_the_request() {
        let told = |json: &str| {
            let (request, format) = request(serde_json::from_str(json).unwrap()).unwrap();
            (format!("{request:#?}"), format)
        };
        let plain = EmbedRequest::new(vec![Prompt::Text("a".to_owned())]);
        assert_eq!(told(r#"{"input":"a"}"#), (format!("{plain:#?}"), EncodingFormat::Float));
        let full = EmbedRequest {
            pooling: Some(Pooling::Last),
            normalise: Some(false),
            dimensions: Some(4),
            prompt_name: Some("query".to_owned()),
            truncate: Some(Truncate::Left),
            cache_salt: "s".to_owned(),
            timeout_s: Some(2.0),
            ..EmbedRequest::new(vec![Prompt::Ids(vec![1, 2]), Prompt::Ids(vec![3])])
        };
        let json = r#"{"input":[[1,2],[3]],"encoding_format":"base64","dimensions":4,"normalize":false,"pooling":"last",
            "prompt_name":"query","truncate":"left","cache_salt":"s","timeout_s":2,"user":"u"}"#;
        assert_eq!(told(json), (format!("{full:#?}"), EncodingFormat::Base64));
    }

    #[test]
    fn a_limit_names_its_field() {
        let param = |json: String| match request(serde_json::from_str(&json).unwrap()) {
            Err(ApiError::Field { param, .. }) => param,
            other => panic!("{other:?}"),
        };
        assert_eq!(param(r#"{"input":[]}"#.to_owned()), "input");
        let many = vec!["\"a\""; MAX_TEXTS + 1].join(",");
        assert_eq!(param(format!(r#"{{"input":[{many}]}}"#)), "input");
        assert_eq!(param(r#"{"input":"a","timeout_s":0}"#.to_owned()), "timeout_s");
        let error = EngineError::Request { fact: "f".to_owned(), hint: None, field: Some("texts") };
        assert!(matches!(named(error, "inputs"), EngineError::Request { field: Some("inputs"), .. }));
    }

    #[test]
    fn base64_has_the_bytes_of_the_numbers() {
        let text = || Encoded { values: vec![0.5, -1.0], prompt_tokens: 1, truncated: false };
        let base64 = written(EncodingFormat::Base64, text());
        assert_eq!(base64, WrittenVector::Base64("AAAAPwAAgL8=".to_owned()));
        let float = written(EncodingFormat::Float, text());
        assert_eq!(float, WrittenVector::Float(vec![Finite(0.5), Finite(-1.0)]));
    }
}
