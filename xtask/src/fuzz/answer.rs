//! Compares two answers to one request, and decides which refusals a memory budget explains.

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

/// Parts of an answer that describe how it was computed. They may depend on other requests and on the machine.
const CIRCUMSTANCES: &[&str] = &[
    "cached_tokens",
    "prompt_tokens_details",
    "cache_miss_count",
    "queue_s",
    "compute_s",
    "prefill_s",
    "decode_s",
    "seconds",
    "tokens_per_s",
    "items_per_s",
    "peak_memory_bytes",
    "kernel_path",
    "threads",
    "prefix_cache",
    "computed_tokens",
    "line",
];

/// Lists with one entry per item of a score request.
const BY_ITEM: &[&str] =
    &["scores", "logprobs", "label_mass", "prompt_tokens", "truncated", "boundary_mismatch", "token_ids"];

/// Whether a message refuses a request because the memory budget is too small, and contains both numbers.
pub(super) fn is_memory_refusal(message: &str) -> bool {
    let number_behind = |text: &str| {
        let behind = message.split_once(text).map(|(_, behind)| behind);
        behind.is_some_and(|behind| behind.starts_with(|c: char| c.is_ascii_digit()))
    };
    let room = number_behind("tokens need room for ") && number_behind("the memory budget leaves room for ");
    let activations = number_behind("run in one pass, take ") && number_behind("more than the ");
    room || activations
}

/// Parses the lines of an output as JSON.
pub(super) fn parse(output: &str) -> Result<Vec<Value>> {
    let line = |(n, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("answer {} is not JSON: {line}", n + 1))
    };
    output.lines().enumerate().map(line).collect()
}

/// The error message of an answer, if it refuses the request.
fn refusal(answer: &Value) -> Option<&str> {
    answer.get("object").filter(|object| *object == "error")?;
    answer.get("message")?.as_str()
}

/// Fails unless `got` equals `alone`. `limited` says that there was a memory budget, which may refuse requests.
pub(super) fn compare(alone: &Value, got: &Value, limited: bool) -> Result<()> {
    if let Some(message) = refusal(got)
        && limited
        && is_memory_refusal(message)
    {
        return Ok(());
    }
    let (mut alone, mut got) = (alone.clone(), got.clone());
    strip(&mut alone);
    strip(&mut got);
    if limited {
        forgive_items(&mut alone, &mut got);
    }
    // Compared as text, so that -0 differs from 0.
    let (alone, got) = (alone.to_string(), got.to_string());
    ensure!(alone == got, "answers differ\n  alone: {alone}\n  here:  {got}");
    Ok(())
}

/// Removes the parts that may differ.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !CIRCUMSTANCES.contains(&key.as_str()));
            map.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Blanks the rows of items that the memory budget refused individually.
fn forgive_items(alone: &mut Value, got: &mut Value) {
    let faults = got.pointer("/meta/item_errors").and_then(Value::as_array).into_iter().flatten();
    let refused: Vec<usize> = faults
        .filter(|fault| fault["message"].as_str().is_some_and(is_memory_refusal))
        .filter_map(|fault| Some(fault["index"].as_u64()? as usize))
        .collect();
    if refused.is_empty() {
        return;
    }
    for answer in [alone, got] {
        answer.as_object_mut().and_then(|map| map.remove("usage"));
        blank(answer, &refused);
        if let Some(meta) = answer.get_mut("meta") {
            // Fewer items may share a longer prefix.
            meta.as_object_mut().and_then(|map| map.remove("shared_prefix_tokens"));
            blank(meta, &refused);
        }
    }
}

/// Empties the rows of some items. A list with only empty rows counts as missing.
fn blank(value: &mut Value, items: &[usize]) {
    let Some(map) = value.as_object_mut() else { return };
    for key in BY_ITEM {
        if let Some(Value::Array(rows)) = map.get_mut(*key) {
            items.iter().filter_map(|&item| rows.get_mut(item).map(Value::take)).for_each(drop);
        }
    }
    if let Some(Value::Array(faults)) = map.get_mut("item_errors") {
        faults.retain(|fault| !fault["index"].as_u64().is_some_and(|i| items.contains(&(i as usize))));
    }
    map.retain(|key, rows| !(BY_ITEM.contains(&key.as_str()) && all_null(rows)));
}

fn all_null(rows: &Value) -> bool {
    rows.is_null() || rows.as_array().is_some_and(|rows| rows.iter().all(Value::is_null))
}

/// Counts the answers by kind, for a summary.
pub(super) fn count(answers: &[Value], counts: &mut Map<String, Value>) {
    for answer in answers {
        let kind = match refusal(answer) {
            Some(message) if is_memory_refusal(message) => "memory refusals",
            Some(_) => "refusals",
            None => "answers",
        };
        let before = counts.get(kind).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(kind.to_owned(), (before + 1).into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REFUSED: &str =
        "item 0: 70 tokens need room for 192, in pages of 64, and the memory budget leaves room for 128";

    #[test]
    fn a_bit_is_a_difference_and_circumstances_are_none() {
        let answer = |logprob: f64, seconds: f64| json!({"choices": [{"logprobs": [logprob]}], "meta": {"decode_s": seconds, "seed": 0}});
        assert!(compare(&answer(-1.5, 0.1), &answer(-1.5, 0.2), false).is_ok());
        let error = compare(&answer(-1.5, 0.1), &answer(-1.5000001, 0.1), false).unwrap_err().to_string();
        assert!(error.contains("-1.5000001"), "{error}");
    }

    #[test]
    fn a_refusal_for_lack_of_memory_has_its_numbers() {
        assert!(is_memory_refusal(REFUSED));
        assert!(is_memory_refusal(
            "the canvas: 70 tokens, run in one pass, take 900 bytes of activations, more than the 800 that the \
             memory budget leaves for them"
        ));
        // Running out of pages after a request was accepted is not a refusal of that request.
        assert!(!is_memory_refusal(
            "the memory budget leaves room for 128 tokens of keys and values, and all are in use"
        ));
        assert!(!is_memory_refusal("item 0: some tokens need room for more"));
        let (refused, answered) = (json!({"object": "error", "message": REFUSED}), json!({"choices": []}));
        assert!(compare(&answered, &refused, true).is_ok());
        assert!(compare(&answered, &refused, false).is_err());
        assert!(compare(&refused, &answered, true).is_err());
    }

    #[test]
    fn an_item_that_memory_refuses_hides_no_other() {
        let alone = json!({"scores": [[0.1], [0.2]], "meta": {"logprobs": [[1], [2]], "item_errors": []}});
        let fault = json!({"index": 0, "message": REFUSED});
        let here = |second: f64| json!({"scores": [null, [second]], "meta": {"logprobs": [null, [2]], "item_errors": [fault]}});
        assert!(compare(&alone, &here(0.2), true).is_ok());
        assert!(compare(&alone, &here(0.3), true).is_err());
        assert!(compare(&alone, &here(0.2), false).is_err());
    }
}
