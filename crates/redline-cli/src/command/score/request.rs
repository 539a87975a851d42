//! Converts flags and JSON lines to the engine's request.

use redline_engine::{Label, Prompt, ScoreRequest};
use redline_wire::{ScoreLine, TextOrLabelIds};

use super::ScoreArgs;
use crate::command::prompt;
use crate::lines;
use crate::report::Failure;

/// Builds a request from the flags, without query and items.
pub(super) fn template(args: &ScoreArgs) -> ScoreRequest {
    let (query, labels) = (Prompt::Text(String::new()), args.labels.0.clone());
    ScoreRequest {
        long_labels: args.long_labels,
        softmax: args.softmax,
        item_first: args.item_first,
        full_logprobs: args.full_logprobs,
        tokenization: args.tokenization,
        truncate: args.truncate,
        item_errors: args.item_errors,
        return_token_ids: args.return_token_ids,
        mc_samples: args.mc_samples,
        seed: args.seed,
        timeout_s: args.timeout,
        ..ScoreRequest::new(query, Vec::new(), labels)
    }
}

/// Completes the template with the query, items and labels, which the flags must give.
pub(super) fn complete(args: &ScoreArgs, template: ScoreRequest) -> Result<ScoreRequest, Failure> {
    let query = prompt::given("query", args.query.as_deref(), args.query_ids.as_ref())?;
    if args.item.is_empty() && args.item_ids.is_empty() && args.items_file.is_none() {
        let hint = if query.is_text() {
            "`--item TEXT` for each item (`--item ''` scores the query alone), or `--items-file FILE`"
        } else {
            "`--item-ids 4,5` for each item (`--item-ids ''` scores the query alone)"
        };
        return Err(Failure::usage("no item given", hint));
    }
    if template.labels.is_empty() {
        return Err(no_label("`--label ' yes'` or `--label-id 7` for each label, at least one"));
    }
    Ok(ScoreRequest { query, items: items(args)?, ..template })
}

fn no_label(hint: &str) -> Failure {
    Failure::usage("no label given", hint)
}

fn items(args: &ScoreArgs) -> Result<Vec<Prompt>, Failure> {
    if let Some(path) = &args.items_file {
        return Ok(lines::read(path)?.into_iter().map(Prompt::Text).collect());
    }
    let texts = args.item.iter().map(|text| Prompt::Text(text.clone()));
    let ids = args.item_ids.iter().map(|ids| Prompt::Ids(ids.0.clone()));
    Ok(texts.chain(ids).collect())
}

/// Builds the request of a line. Keys that the line omits come from the template.
pub(super) fn from_line(line: ScoreLine, template: &ScoreRequest) -> Result<ScoreRequest, Failure> {
    let item_labels = line.item_labels.map(|lists| lists.into_iter().map(labels_of_item).collect());
    let labels = match (line.labels, line.label_token_ids) {
        (None, None) if item_labels.is_some() => Vec::new(),
        (None, None) if template.labels.is_empty() => {
            return Err(no_label("`labels`, `label_token_ids`, or the command's `--label` and `--label-id`"));
        }
        (None, None) => template.labels.clone(),
        (texts, ids) => {
            let texts = texts.into_iter().flatten().map(Label::Text);
            texts.chain(ids.into_iter().flatten().map(|ids| Label::Ids(ids.0))).collect()
        }
    };
    Ok(ScoreRequest {
        query: prompt::of_line(line.query),
        items: line.items.0.into_iter().map(prompt::of_line).collect(),
        labels,
        item_labels,
        long_labels: line.long_labels.unwrap_or(template.long_labels),
        softmax: line.apply_softmax.unwrap_or(template.softmax),
        item_first: line.item_first.unwrap_or(template.item_first),
        full_logprobs: line.full_logprobs.unwrap_or(template.full_logprobs),
        tokenization: line.tokenization.unwrap_or(template.tokenization),
        truncate: line.truncate.or(template.truncate),
        item_errors: line.item_errors.unwrap_or(template.item_errors),
        return_token_ids: line.return_token_ids.unwrap_or(template.return_token_ids),
        mc_samples: line.mc_samples.or(template.mc_samples),
        seed: line.seed.or(template.seed),
        cache_salt: line.cache_salt.unwrap_or_default(),
        timeout_s: line.timeout_s.or(template.timeout_s),
    })
}

fn labels_of_item(labels: Vec<TextOrLabelIds>) -> Vec<Label> {
    let label = |label| match label {
        TextOrLabelIds::Text(text) => Label::Text(text),
        TextOrLabelIds::Ids(ids) => Label::Ids(ids.0),
    };
    labels.into_iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use redline_engine::{LongLabels, Tokenization, Truncate};

    use super::*;

    fn template() -> ScoreRequest {
        ScoreRequest {
            query: Prompt::Text(String::new()),
            items: Vec::new(),
            labels: vec![Label::Ids(vec![3])],
            item_labels: None,
            long_labels: LongLabels::Sum,
            softmax: true,
            item_first: false,
            full_logprobs: true,
            tokenization: Tokenization::Separate,
            truncate: Some(Truncate::Left),
            item_errors: false,
            return_token_ids: true,
            mc_samples: Some(16),
            seed: None,
            cache_salt: String::new(),
            timeout_s: None,
        }
    }

    fn line(json: &str) -> ScoreRequest {
        from_line(serde_json::from_str(json).unwrap(), &template()).unwrap()
    }

    #[test]
    fn a_line_wins_over_the_flags() {
        let bare = line(r#"{"query":"q","items":["a"]}"#);
        assert_eq!(bare.labels, [Label::Ids(vec![3])]);
        assert_eq!((bare.softmax, bare.full_logprobs, bare.return_token_ids), (true, true, true));
        assert_eq!((bare.tokenization, bare.truncate), (Tokenization::Separate, Some(Truncate::Left)));
        assert_eq!((bare.mc_samples, bare.seed), (Some(16), None));
        let full = line(
            r#"{"query":[1],"items":[[2]],"labels":["x"],"label_token_ids":[9],"softmax":false,"item_first":true,
            "tokenization":"concat","truncate":"right","return_token_ids":false,"mc_samples":8,"seed":3}"#,
        );
        assert_eq!(full.labels, [Label::Text("x".to_owned()), Label::Ids(vec![9])]);
        assert_eq!((full.softmax, full.item_first, full.return_token_ids), (false, true, false));
        assert_eq!((full.tokenization, full.truncate), (Tokenization::Concat, Some(Truncate::Right)));
        assert_eq!((full.mc_samples, full.seed), (Some(8), Some(3)));
        assert_eq!((full.query, full.items), (Prompt::Ids(vec![1]), vec![Prompt::Ids(vec![2])]));
    }

    #[test]
    fn labels_come_from_somewhere() {
        let without = ScoreRequest { labels: Vec::new(), ..template() };
        let line: ScoreLine = serde_json::from_str(r#"{"query":"q","items":["a"]}"#).unwrap();
        assert!(from_line(line.clone(), &without).is_err());
        // An explicitly empty list is passed on, and the engine rejects it.
        let explicit = ScoreLine { labels: Some(vec![]), ..line };
        assert!(from_line(explicit, &template()).unwrap().labels.is_empty());
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let flags = ScoreRequest { seed: Some(4), timeout_s: Some(2.0), ..template() };
        let line =
            |json: &str| format!("{:#?}", from_line(serde_json::from_str(json).unwrap(), &flags).unwrap());
        let bare = ScoreRequest {
            query: Prompt::Text("q".to_owned()),
            items: vec![Prompt::Text("a".to_owned())],
            ..flags.clone()
        };
        assert_eq!(line(r#"{"query":"q","items":["a"]}"#), format!("{bare:#?}"));
        let keys = ScoreRequest {
            query: Prompt::Ids(vec![1]),
            items: vec![Prompt::Ids(vec![2])],
            labels: Vec::new(),
            item_labels: Some(vec![vec![Label::Text("x".to_owned()), Label::Ids(vec![9])]]),
            long_labels: LongLabels::Mean,
            softmax: false,
            item_first: true,
            full_logprobs: false,
            tokenization: Tokenization::Concat,
            truncate: Some(Truncate::Right),
            item_errors: true,
            return_token_ids: false,
            mc_samples: Some(8),
            seed: Some(3),
            cache_salt: "tenant".to_owned(),
            timeout_s: Some(3.0),
        };
        let json = r#"{"query":[1],"items":[[2]],"item_labels":[["x",[9]]],"long_labels":"mean","apply_softmax":false,
            "item_first":true,"full_logprobs":false,"tokenization":"concat","truncate":"right","item_errors":true,
            "return_token_ids":false,"mc_samples":8,"seed":3,"cache_salt":"tenant","timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
