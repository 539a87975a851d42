//! `classify`: the probability of each class for each text.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, ItemError, JudgeOptions, Label};
use redline_wire::{ClassResult, Classification, ClassifyLine, Finite, SchemaVersion};

use crate::adapter::adapters;
use crate::{LoadedModel, cost, judge, receipt};

/// Builds a request. Absent keys take their values from `defaults`, whose texts and salt are not used.
pub fn request(line: ClassifyLine, defaults: &ClassifyRequest) -> ClassifyRequest {
    let classes = line.classes.map(|classes| classes.into_iter().map(Label::Text).collect());
    let from = &defaults.options;
    ClassifyRequest {
        texts: line.text.0,
        second_texts: Vec::new(),
        classes: classes.unwrap_or_else(|| defaults.classes.clone()),
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
    }
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: ClassifyOutcome) -> Classification {
    let names: Vec<String> = outcome.classes.iter().map(judge::name).collect();
    let result = |(index, classified)| match classified {
        Ok(Classified { probabilities, best, margin, prompt_tokens, truncated, .. }) => ClassResult {
            index,
            class: best.and_then(|best: usize| names.get(best).cloned()),
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
        results: outcome.texts.into_iter().enumerate().map(result).collect(),
        classes: names,
        usage: cost::usage(outcome.cost.usage),
        meta: judge::meta(model, outcome.class_token_ids, outcome.end_token_ids, outcome.cost),
        receipt: receipt::attached(outcome.receipt),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{LabelEnd, LongLabels, Truncate};

    use redline_engine::AdapterChoice;

    use super::*;

    fn labels(texts: [&str; 2]) -> Vec<Label> {
        texts.map(|text| Label::Text(text.to_owned())).to_vec()
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let some = |text: &str| Some(text.to_owned());
        let flags = ClassifyRequest {
            threshold: Some(0.5),
            options: JudgeOptions {
                receipt: None,
                template: some("<s>{text}"),
                add_special_tokens: false,
                long_labels: LongLabels::Mean,
                label_end: LabelEnd::Never,
                end: some("</s>").map(Label::Text),
                calibrate: some("nothing"),
                truncate: Some(Truncate::Left),
                max_text_tokens: None,
                item_errors: false,
                cache_salt: String::new(),
                adapters: vec![AdapterChoice { name: "default".to_owned(), scale: 1.0 }],
                queueing: redline_engine::Queueing::default(),
                timeout_s: Some(2.0),
            },
            ..ClassifyRequest::new(Vec::new(), labels(["a", "b"]))
        };
        let line = |json: &str| format!("{:#?}", request(serde_json::from_str(json).unwrap(), &flags));
        let bare = ClassifyRequest { texts: vec!["t".to_owned()], ..flags.clone() };
        assert_eq!(line(r#"{"text":"t"}"#), format!("{bare:#?}"));
        let keys = ClassifyRequest {
            threshold: Some(0.25),
            options: JudgeOptions {
                receipt: None,
                template: some("{text}:"),
                add_special_tokens: false,
                long_labels: LongLabels::Bytes,
                label_end: LabelEnd::Always,
                end: some(".").map(Label::Text),
                calibrate: some("N/A"),
                truncate: Some(Truncate::Right),
                max_text_tokens: None,
                item_errors: true,
                cache_salt: "tenant".to_owned(),
                adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
                queueing: redline_engine::Queueing::default(),
                timeout_s: Some(3.0),
            },
            ..ClassifyRequest::new(vec!["t".to_owned(), "u".to_owned()], labels(["c", "d"]))
        };
        let json = r#"{"id":1,"texts":["t","u"],"classes":["c","d"],"threshold":0.25,"template":"{text}:",
            "long_labels":"bytes","label_end":"always","end":".","calibrate":"N/A","truncate":"right","item_errors":true,
            "cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
