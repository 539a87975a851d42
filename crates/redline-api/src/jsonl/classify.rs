//! `classify`: the probability of each class for each text.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, ItemError, Label};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::Strings;
use crate::json::parts::with_parts;
use crate::json::version::SchemaVersion;
use crate::jsonl::judge::{self, JudgeKeys, JudgeMeta};
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// A request to classify, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "ClassifyLine")]
pub struct ClassifyLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// A text, or several.
    #[serde(alias = "texts")]
    pub text: Strings,
    /// The classes.
    pub classes: Option<Vec<String>>,
    /// The smallest probability that the best class must have to be the answer.
    pub threshold: Option<f32>,
    /// How the text is put and its classes are scored.
    #[serde(skip)]
    pub judge: JudgeKeys,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
}

with_parts! {
    ClassifyLine { judge: JudgeKeys, options: RequestOptions }
}

/// Answer to a classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Always `classification`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// The classes, in the order of the probabilities.
    pub classes: Vec<String>,
    /// One result per text, in the order of the request.
    pub results: Vec<ClassResult>,
    /// Token counts.
    pub usage: Usage,
    /// Further details.
    pub meta: JudgeMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// The classes of one text. If the text failed, all fields but `index` and `error` are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassResult {
    /// The text's index in the request, from 0.
    pub index: usize,
    /// The most probable class, the first one on a tie; `null` if its probability is below the threshold.
    pub class: Option<String>,
    /// The probability of each class; they sum to one.
    pub probabilities: Option<Vec<Finite<f32>>>,
    /// The probability of the best class minus that of the second.
    pub margin: Option<Finite<f32>>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: Option<usize>,
    /// Whether the text was cut to fit the context.
    pub truncated: Option<bool>,
    /// The error message, if the text failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Builds a request. Absent keys take their values from `defaults`, whose texts and salt are not used.
pub fn request(line: ClassifyLine, defaults: &ClassifyRequest) -> ClassifyRequest {
    let classes = line.classes.map(|classes| classes.into_iter().map(Label::Text).collect());
    ClassifyRequest {
        texts: line.text.0,
        second_texts: Vec::new(),
        classes: classes.unwrap_or_else(|| defaults.classes.clone()),
        threshold: line.threshold.or(defaults.threshold),
        options: line.judge.options(line.options, &defaults.options),
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
    use redline_engine::{AdapterChoice, JudgeOptions, LabelEnd, LongLabels, Truncate};

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

    #[test]
    fn a_line_has_one_text_or_several_and_no_other_keys() {
        let line = |json: &str| serde_json::from_str::<ClassifyLine>(json).map_err(|error| error.to_string());
        assert_eq!(line(r#"{"text":"a"}"#).unwrap().text.0, ["a"]);
        assert_eq!(line(r#"{"id":[7],"texts":["a","b"],"length":"bytes"}"#).unwrap().text.0, ["a", "b"]);
        let error = line(r#"{"text":"a","label_end":"sometimes"}"#).unwrap_err();
        assert!(error.contains("`auto`, `always`, `never`"), "{error}");
        assert!(line(r#"{"text":"a","klasses":[]}"#).unwrap_err().contains("unknown field `klasses`"));
        assert!(line("{}").unwrap_err().contains("missing field `text`"));
    }
}
