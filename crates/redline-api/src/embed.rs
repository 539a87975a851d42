//! `embed`: one vector for each text.

use redline_engine::{EmbedRequest, EncodeOutcome, Encoded, Prompt};
use redline_wire::{EmbedLine, Embeddings, Finite, SchemaVersion};

use crate::adapter::adapters;
use crate::{LoadedModel, cost, receipt};

/// Builds a request. Absent keys take their values from `defaults`, whose texts, salt and queueing are not used.
pub fn request(line: EmbedLine, defaults: &EmbedRequest) -> EmbedRequest {
    EmbedRequest {
        pooling: line.pooling.or(defaults.pooling),
        normalise: line.normalize.or(defaults.normalise),
        dimensions: line.dimensions.or(defaults.dimensions),
        prompt_name: line.prompt_name.or_else(|| defaults.prompt_name.clone()),
        truncate: line.truncate.or(defaults.truncate),
        cache_salt: line.cache_salt.unwrap_or_default(),
        adapters: adapters(line.adapter, &defaults.adapters),
        timeout_s: line.timeout_s.or(defaults.timeout_s),
        receipt: receipt::options(line.receipt),
        ..EmbedRequest::new(line.text.0.into_iter().map(Prompt::Text).collect())
    }
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: EncodeOutcome) -> Embeddings {
    let EncodeOutcome { texts, cost, receipt } = outcome;
    Embeddings {
        object: "embeddings".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        prompt_tokens: texts.iter().map(|text| text.prompt_tokens).collect(),
        truncated: texts.iter().map(|text| text.truncated).collect(),
        embeddings: texts.into_iter().map(vector).collect(),
        usage: cost::usage(cost.usage),
        meta: cost::cost(model, cost),
        receipt: receipt::attached(receipt),
    }
}

/// The vector of a text.
pub(crate) fn vector(text: Encoded) -> Vec<Finite<f32>> {
    text.values.into_iter().map(Finite).collect()
}

#[cfg(test)]
mod tests {
    use redline_engine::{AdapterChoice, Pooling, Queueing, Truncate};

    use super::*;

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let texts =
            |texts: &[&str]| texts.iter().map(|text| Prompt::Text((*text).to_owned())).collect::<Vec<_>>();
        let flags = EmbedRequest {
            pooling: Some(Pooling::Last),
            normalise: Some(true),
            dimensions: Some(8),
            prompt_name: Some("query".to_owned()),
            truncate: Some(Truncate::Left),
            timeout_s: Some(2.0),
            cache_salt: "of no line".to_owned(),
            ..EmbedRequest::new(Vec::new())
        };
        let line = |json: &str| format!("{:#?}", request(serde_json::from_str(json).unwrap(), &flags));
        let bare = EmbedRequest { texts: texts(&["a"]), cache_salt: String::new(), ..flags.clone() };
        assert_eq!(line(r#"{"text":"a"}"#), format!("{bare:#?}"));
        let keys = EmbedRequest {
            receipt: None,
            texts: texts(&["a", "b"]),
            pooling: Some(Pooling::First),
            normalise: Some(false),
            dimensions: Some(4),
            prompt_name: Some("document".to_owned()),
            truncate: Some(Truncate::Right),
            cache_salt: "tenant".to_owned(),
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            queueing: Queueing::default(),
            timeout_s: Some(3.0),
        };
        let json = r#"{"text":["a","b"],"pooling":"cls","normalize":false,"dimensions":4,"prompt_name":"document","truncate":"right",
            "cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
