//! `rerank`: documents in the order of their relevance to a query.

use redline_engine::{ItemError, JudgeOptions, Label, Ranked, RerankOutcome, RerankRequest};
use redline_wire::{Finite, RerankLine, RerankResult, Reranking, SchemaVersion};

use crate::adapter::adapters;
use crate::{ApiError, LoadedModel, cost, judge, receipt};

/// Builds a request. Absent keys take their values from `defaults`, whose documents and salt are not used; an empty query there
/// counts as absent.
pub fn request(line: RerankLine, defaults: &RerankRequest) -> Result<RerankRequest, ApiError> {
    let from = &defaults.options;
    let default_query = (!defaults.query.is_empty()).then(|| defaults.query.clone());
    let label = |text: Option<String>, default: &Label| text.map_or_else(|| default.clone(), Label::Text);
    Ok(RerankRequest {
        query: line.query.or(default_query).ok_or(ApiError::NoQuery)?,
        documents: line.documents.0,
        yes: label(line.yes, &defaults.yes),
        no: label(line.no, &defaults.no),
        top_n: line.top_n.or(defaults.top_n),
        threshold: line.threshold.or(defaults.threshold),
        options: JudgeOptions {
            long_labels: line.long_labels.unwrap_or(from.long_labels),
            label_end: line.label_end.unwrap_or(from.label_end),
            calibrate: line.calibrate.or_else(|| from.calibrate.clone()),
            truncate: line.truncate.or(from.truncate),
            item_errors: line.item_errors.unwrap_or(from.item_errors),
            cache_salt: line.cache_salt.unwrap_or_default(),
            adapters: adapters(line.adapter, &from.adapters),
            timeout_s: line.timeout_s.or(from.timeout_s),
            receipt: receipt::options(line.receipt),
            ..judge::framed(line.template, line.end, from)
        },
    })
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: RerankOutcome) -> Reranking {
    let result = |result| match result {
        Ok(Ranked { index, relevance, prompt_tokens, truncated, .. }) => RerankResult {
            index,
            relevance: Some(Finite(relevance)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { index, message }) => {
            RerankResult { index, error: Some(message), ..RerankResult::default() }
        }
    };
    Reranking {
        object: "rerank".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        results: outcome.results.into_iter().map(result).collect(),
        usage: cost::usage(outcome.cost.usage),
        meta: judge::meta(model, outcome.label_token_ids, outcome.end_token_ids, outcome.cost),
        receipt: receipt::attached(outcome.receipt),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{LabelEnd, LongLabels, Truncate};

    use redline_engine::AdapterChoice;

    use super::*;

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let text = |text: &str| Label::Text(text.to_owned());
        let flags = RerankRequest {
            yes: text("Y"),
            no: text("N"),
            top_n: Some(3),
            threshold: Some(0.5),
            options: JudgeOptions { timeout_s: Some(2.0), item_errors: true, ..JudgeOptions::default() },
            ..RerankRequest::new("q".to_owned(), Vec::new())
        };
        let line =
            |json: &str| format!("{:#?}", request(serde_json::from_str(json).unwrap(), &flags).unwrap());
        let bare = RerankRequest { documents: vec!["d".to_owned()], ..flags.clone() };
        assert_eq!(line(r#"{"documents":"d"}"#), format!("{bare:#?}"));
        let keys = RerankRequest {
            yes: text("true"),
            no: text("false"),
            top_n: Some(1),
            threshold: Some(0.25),
            options: JudgeOptions {
                receipt: None,
                template: Some("{query}{document}".to_owned()),
                add_special_tokens: true,
                long_labels: LongLabels::Mean,
                label_end: LabelEnd::Always,
                end: Some(text(".")),
                calibrate: Some("N/A".to_owned()),
                truncate: Some(Truncate::Right),
                max_text_tokens: None,
                item_errors: false,
                cache_salt: "tenant".to_owned(),
                adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
                queueing: redline_engine::Queueing::default(),
                timeout_s: Some(3.0),
            },
            ..RerankRequest::new("r".to_owned(), vec!["d".to_owned(), "e".to_owned()])
        };
        let json = r#"{"query":"r","documents":["d","e"],"yes":"true","no":"false","top_n":1,"threshold":0.25,
            "template":"{query}{document}","length":"mean","label_end":"always","end":".","calibrate":"N/A","truncate":"right",
            "item_errors":false,"cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }

    #[test]
    fn a_query_comes_from_the_line_or_the_defaults() {
        let line = |json: &str| serde_json::from_str::<RerankLine>(json).unwrap();
        let without = RerankRequest::new(String::new(), Vec::new());
        assert!(matches!(request(line(r#"{"documents":["d"]}"#), &without), Err(ApiError::NoQuery)));
        assert_eq!(request(line(r#"{"query":"","documents":["d"]}"#), &without).unwrap().query, "");
    }
}
