//! Round trips, defaults and refusals of the score types.

use super::*;

fn refused(json: &str, expect: &str) {
    let error = serde_json::from_str::<ScoreLine>(json).unwrap_err().to_string();
    assert!(error.contains(expect), "{json}: {error}");
}

#[test]
fn absent_keys_are_absent() {
    let line: ScoreLine = serde_json::from_str(r#"{"query":"q","items":["a","b"]}"#).unwrap();
    assert_eq!(line.query, Some(TextOrIds::Text("q".to_owned())));
    assert_eq!(line.items.0.len(), 2);
    assert_eq!((line.labels, line.label_token_ids), (None, None));
    assert_eq!((line.apply_softmax, line.item_first, line.full_logprobs), (None, None, None));
    assert_eq!((line.item_errors, line.return_token_ids), (None, None));
    assert_eq!((line.tokenization, line.truncate), (None, None));
    let line: ScoreLine = serde_json::from_str(r#"{"query":[1],"items":[]}"#).unwrap();
    assert_eq!(serde_json::to_string(&line).unwrap(), r#"{"query":[1],"items":[]}"#);
}

#[test]
fn every_key_is_read_and_written() {
    let json = r#"{"query":[1,2],"items":[[3]],"labels":[" yes"],"label_token_ids":[7,-1],"apply_softmax":true,
        "item_first":true,"tokenization":"separate","truncate":"left","item_errors":true,"full_logprobs":true,
        "return_token_ids":true,"cache_salt":"t","long_labels":"mean"}"#;
    let line: ScoreLine = serde_json::from_str(json).unwrap();
    assert_eq!(line.label_token_ids, Some(vec![LabelIds(vec![7]), LabelIds(vec![-1])]));
    assert_eq!(line.tokenization, Some(Tokenization::Separate));
    assert_eq!(line.truncate, Some(Truncate::Left));
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_value(&line).unwrap(), value);
}

#[test]
fn softmax_is_another_name_of_apply_softmax() {
    let line: ScoreLine = serde_json::from_str(r#"{"query":"","items":"","softmax":true}"#).unwrap();
    assert_eq!(line.apply_softmax, Some(true));
    refused(
        r#"{"query":"","items":"","softmax":true,"apply_softmax":true}"#,
        "duplicate field `apply_softmax`",
    );
}

#[test]
fn bad_requests_are_named() {
    refused(r#"{"query":"q","items":[],"lables":[]}"#, "unknown field `lables`");
    refused(r#"{"query":"q"}"#, "missing field `items`");
    refused(r#"{"query":1,"items":[]}"#, "expected a string or a list of token ids");
    refused(r#"{"query":"q","items":[],"label_token_ids":[1.5]}"#, "floating point `1.5`");
    refused(r#"{"query":"q","items":[],"label_token_ids":["1"]}"#, "string \"1\"");
    refused(r#"{"query":"q","items":[],"label_token_ids":[true]}"#, "boolean `true`");
    refused(r#"{"query":"q","items":[],"tokenization":"both"}"#, "unknown variant `both`");
    refused(r#"{"query":"q","items":[],"item_first":1}"#, "expected a boolean");
    refused("[]", "invalid");
    refused("{\"query\":\"q\",\"items\":[]} x", "trailing characters");
}

#[test]
fn a_choice_of_a_wrong_type_is_answered_with_every_name() {
    refused(
        r#"{"query":"q","items":[],"tokenization":5}"#,
        "integer `5`, expected one of the strings concat, separate",
    );
    refused(
        r#"{"query":"q","items":[],"long_labels":true}"#,
        "boolean `true`, expected one of the strings refuse, sum, mean",
    );
}

fn meta() -> ScoreMeta {
    ScoreMeta {
        label_token_ids: vec![LabelIds(vec![5]), LabelIds(vec![6, 7])],
        item_label_token_ids: None,
        monte_carlo: None,
        logprobs: vec![Some(vec![Finite(-1.0), Finite(-0.1)]), None],
        label_mass: None,
        cost: CostMeta {
            cache_miss_count: 0,
            computed_tokens: 4,
            shared_prefix_tokens: 2,
            prefix_cache: Some(crate::PrefixCacheUse { hits: 1, misses: 0, cached_tokens: 2 }),
            queue_s: Finite(0.25),
            compute_s: Finite(0.5),
            peak_memory_bytes: None,
            kernel_path: "scalar/f32".to_owned(),
            threads: 1,
        },
        prompt_tokens: vec![Some(3), None],
        truncated: vec![Some(false), None],
        boundary_mismatch: vec![Some(true), None],
        item_errors: vec![ItemFault { index: 1, message: "too long".to_owned() }],
        token_ids: None,
    }
}

#[test]
fn an_answer_has_the_documented_shape() {
    let answer = Scoring {
        receipt: None,
        object: "scoring".to_owned(),
        schema: SchemaVersion,
        model: "demo".to_owned(),
        scores: vec![Some(vec![Finite(0.1), Finite(0.9)]), None],
        usage: Usage::new(3, 0, 0),
        meta: meta(),
    };
    let json = serde_json::to_string(&answer).unwrap();
    assert!(
        json.starts_with(
            r#"{"object":"scoring","schema":1,"model":"demo","scores":[[0.1,0.9],null],"usage":{"#
        ),
        "{json}"
    );
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(value["meta"]["label_mass"].is_null());
    assert_eq!(value["meta"]["label_token_ids"], serde_json::json!([5, [6, 7]]));
    assert!(value["meta"].get("token_ids").is_none());
    assert_eq!(value["meta"]["cache_miss_count"], 0);
    assert_eq!(serde_json::from_str::<Scoring>(&json).unwrap(), answer);
}

#[test]
fn a_score_that_is_no_number_is_not_printed() {
    let mut meta = meta();
    meta.logprobs[0] = Some(vec![Finite(f32::NEG_INFINITY)]);
    assert!(serde_json::to_string(&meta).is_err());
}
