//! `/v1/embeddings`, as OpenAI has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redline_engine::{EmbedRequest, EncodeOutcome, Encoded, EngineError, Prompt};
use redline_settings::{Pooling, Truncate, VectorForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::generation::plain_text;
use crate::head::AnswerHead;
use crate::json::fields::{count, refused, salt, timeout};
use crate::json::input::Prompts;
use crate::json::limits::MAX_TEXTS;
use crate::json::named::{self, names};
use crate::json::parts::with_parts;
use crate::json::shape::{self, one_of, schemas};
use crate::json::vector::Vector;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "EmbeddingsBody")]
pub struct EmbeddingsBody {
    /// The model's name.
    pub model: Option<String>,
    /// A text, texts, the token ids of one text, or those of several.
    #[schemars(with = "shape::PromptsUpTo<MAX_TEXTS>")]
    pub input: Prompts,
    /// What represents a text; `null`: one vector.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<VectorForm>>")]
    pub form: Option<VectorForm>,
    /// How vectors are written; `base64` is for dense ones.
    pub encoding_format: Option<EncodingFormat>,
    /// Number of values of a vector, if it is to be less than the model's own; 0: as many as the model makes.
    pub dimensions: Option<usize>,
    /// The kind of input. Only `text` is supported.
    #[schemars(with = "Option<shape::TextName>")]
    pub modality: Option<String>,
    /// Names the end user. Accepted and not used.
    pub user: Option<String>,
    /// Whether vectors are divided by their length, to length 1; `null`: as the model says.
    pub normalize: Option<bool>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// Which end of a text is cut if it exceeds the maximum length; `null`: an error.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Truncate>>")]
    pub truncate: Option<Truncate>,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub options: RequestOptions,
}

with_parts! {
    EmbeddingsBody { options: RequestOptions }
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "EncodingFormat", rename_all = "lowercase")]
pub enum EncodingFormat {
    /// As a list of numbers.
    #[default]
    Float,
    /// As the bytes of the numbers (`f32`, little-endian) in base64.
    Base64,
}

names!(EncodingFormat);

/// Answer of `/v1/embeddings`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EmbeddingsAnswer {
    /// Always `list`.
    pub object: &'static str,
    /// One entry per text, in the order of the request.
    pub data: Vec<EmbeddedText>,
    /// The model's name.
    pub model: String,
    /// Token counts, summed over all texts.
    pub usage: Usage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// What represents a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EmbeddedText {
    /// Always `embedding`.
    pub object: &'static str,
    /// Its index in the request.
    pub index: usize,
    /// The vector, or whatever was asked for.
    pub embedding: WrittenVector,
}

/// A vector in one of the formats.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum WrittenVector {
    /// Numbers.
    Float(Vector),
    /// The bytes of the numbers in base64.
    Base64(String),
}

schemas! {
    EncodingFormat: |_g| one_of(&["float", "base64"]);
}

/// Builds the engine's request, and returns how vectors are written.
pub fn request(body: EmbeddingsBody) -> Result<(EmbedRequest, EncodingFormat), ApiError> {
    count("input", body.input.0.len(), 1..=MAX_TEXTS)?;
    plain_text("modality", body.modality.as_deref())?;
    let (form, format) = (body.form.unwrap_or_default(), body.encoding_format.unwrap_or_default());
    if form != VectorForm::Dense && format == EncodingFormat::Base64 {
        let fact = format!("base64 is for dense vectors, and `form` is `{form}`");
        return Err(refused("encoding_format", &fact, "leave it out, or give `float`"));
    }
    let request = EmbedRequest {
        form,
        pooling: body.pooling,
        normalise: body.normalize,
        dimensions: body.dimensions.filter(|&count| count > 0),
        prompt_name: body.prompt_name,
        truncate: body.truncate,
        cache_salt: salt(body.options.cache_salt)?,
        timeout_s: timeout(body.options.timeout_s)?,
        receipt: receipt::options(body.options.receipt),
        ..EmbedRequest::new(body.input.0.into_iter().map(Prompt::from).collect())
    };
    Ok((request, format))
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
    let form = outcome.form;
    let written =
        |(index, text)| EmbeddedText { object: "embedding", index, embedding: written(form, format, text) };
    EmbeddingsAnswer {
        object: "list",
        data: outcome.texts.into_iter().enumerate().map(written).collect(),
        model: head.model,
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    }
}

/// Writes what represents a text.
fn written(form: VectorForm, format: EncodingFormat, text: Encoded) -> WrittenVector {
    match format {
        EncodingFormat::Float => WrittenVector::Float(Vector::new(form, text)),
        EncodingFormat::Base64 => {
            let bytes: Vec<u8> = text.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            WrittenVector::Base64(STANDARD.encode(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{Pooling, Prompt, Truncate};

    use super::*;
    use crate::json::finite::Finite;
    use crate::json::input::TextOrIds;

    #[test]
    fn a_body_takes_every_documented_form_and_no_other_keys() {
        let body = |json: &str| serde_json::from_str::<EmbeddingsBody>(json).map_err(|e| e.to_string());
        let plain = body(r#"{"input":"a"}"#).unwrap();
        assert_eq!(plain.input.0, [TextOrIds::Text("a".to_owned())]);
        assert_eq!(plain.encoding_format.unwrap_or_default(), EncodingFormat::Float);
        let full = r#"{"model":"m","input":[[1,2],[3]],"encoding_format":"base64","dimensions":4,"user":"u","normalize":false,
            "pooling":"last","prompt_name":"query","truncate":"left","adapter":["a"],"cache_salt":"s","timeout_s":2}"#;
        let full = body(full).unwrap();
        assert_eq!(full.input.0, [TextOrIds::Ids(vec![1, 2]), TextOrIds::Ids(vec![3])]);
        assert_eq!(full.encoding_format, Some(EncodingFormat::Base64));
        assert_eq!((full.pooling, full.truncate), (Some(Pooling::Last), Some(Truncate::Left)));
        for (json, expect) in [
            ("{}", "missing field `input`"),
            (r#"{"input":7}"#, "a list of token ids"),
            (r#"{"input":["a",1]}"#, "mixed"),
            (r#"{"input":"a","encoding_format":"Float"}"#, "`float` or `base64`"),
            (r#"{"input":"a","pooling":"max"}"#, "`cls`, `mean`, `last`"),
            (r#"{"input":"a","truncate_prompt_tokens":7}"#, "unknown field `truncate_prompt_tokens`"),
        ] {
            let error = body(json).unwrap_err();
            assert!(error.contains(expect), "{json}: {error}");
        }
    }

    #[test]
    fn a_vector_is_a_list_or_a_string() {
        let written = |vector: WrittenVector| {
            serde_json::to_string(&EmbeddedText { object: "embedding", index: 1, embedding: vector })
        };
        let float = |values: &[f32]| {
            WrittenVector::Float(Vector::Dense(values.iter().copied().map(Finite).collect()))
        };
        let nan = written(float(&[f32::NAN]));
        let float = written(float(&[0.5, -1.0])).unwrap();
        assert_eq!(float, r#"{"object":"embedding","index":1,"embedding":[0.5,-1.0]}"#);
        let base64 = written(WrittenVector::Base64("AAAAPw==".to_owned())).unwrap();
        assert_eq!(base64, r#"{"object":"embedding","index":1,"embedding":"AAAAPw=="}"#);
        assert!(nan.is_err());
    }

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
        let sparse = EmbedRequest { form: VectorForm::Sparse, ..plain };
        assert_eq!(told(r#"{"input":"a","form":"sparse"}"#).0, format!("{sparse:#?}"));
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
        let base64 = r#"{"input":"a","form":"sparse","encoding_format":"base64"}"#;
        assert_eq!(param(base64.to_owned()), "encoding_format");
        let error = EngineError::Request { fact: "f".to_owned(), hint: None, field: Some("texts") };
        assert!(matches!(named(error, "inputs"), EngineError::Request { field: Some("inputs"), .. }));
    }

    #[test]
    fn base64_has_the_bytes_of_the_numbers() {
        let text = || Encoded {
            values: vec![0.5, -1.0],
            indices: Vec::new(),
            vectors: 1,
            prompt_tokens: 1,
            truncated: false,
        };
        let written = |format| written(VectorForm::Dense, format, text());
        let base64 = written(EncodingFormat::Base64);
        assert_eq!(base64, WrittenVector::Base64("AAAAPwAAgL8=".to_owned()));
        let dense = Vector::Dense(vec![Finite(0.5), Finite(-1.0)]);
        assert_eq!(written(EncodingFormat::Float), WrittenVector::Float(dense));
    }
}
