//! Generates random requests: lines of `--jsonl`, of every kind that a model accepts.

use serde_json::{Map, Value, json};

use super::model::Model;
use super::random::Random;

/// A command that reads request lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Score,
    Generate,
    Diffuse,
}

impl Command {
    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Score => "score",
            Self::Generate => "generate",
            Self::Diffuse => "diffuse",
        }
    }
}

const WORDS: &[&str] =
    &[" the", " and", " of", " to", " pledge", " In the beginning", " é", " 12", "\n", " x's", "!"];

/// Tokens of a prompt: a slice of one of a few sequences, so that prompts share prefixes, sometimes with a suffix of
/// its own.
fn tokens(random: &mut Random, model: &Model, length: usize) -> Vec<usize> {
    let family = random.below(3);
    let own = if random.once_in(3) { random.below(8) } else { 0 };
    let mut tokens: Vec<usize> =
        (0..length).map(|i| (3 + i * 7 + family * (1 + i / 40)) % model.vocab).collect();
    for token in tokens.iter_mut().rev().take(own) {
        *token = random.below(model.vocab);
    }
    // A mask among the tokens of a prompt will be filled.
    if let Some(mask) = model.mask {
        tokens.iter_mut().filter(|token| **token == mask).for_each(|token| *token = (mask + 1) % model.vocab);
    }
    tokens
}

/// A text of about `length` tokens; some texts share a prefix.
fn words(random: &mut Random, length: usize) -> String {
    (0..length / 2).map(|i| WORDS[(i * 5 + usize::from(random.once_in(6))) % WORDS.len()]).collect()
}

/// A prompt of about `length` tokens: ids, or text if the model accepts it.
fn prompt(random: &mut Random, model: &Model, length: usize) -> Value {
    if model.text && !random.once_in(3) {
        json!(words(random, length))
    } else {
        json!(tokens(random, model, length))
    }
}

/// A length: mostly short, else around a multiple of the page size.
fn length(random: &mut Random, most: usize) -> usize {
    let length = match random.below(6) {
        0 => random.below(3),
        1 | 2 => random.between(1, 12),
        3 => random.between(20, 50),
        4 => random.between(60, 70),
        _ => random.between(80, 140),
    };
    length.min(most)
}

/// Inserts a value with probability 1 / `n`.
fn maybe(map: &mut Map<String, Value>, random: &mut Random, n: usize, key: &str, value: impl Into<Value>) {
    if random.once_in(n) {
        map.insert(key.to_owned(), value.into());
    }
}

/// A request line for `command`.
pub(super) fn line(random: &mut Random, model: &Model, command: Command) -> Value {
    let mut map = match command {
        Command::Score => score(random, model),
        Command::Generate => generate(random, model),
        Command::Diffuse => diffuse(random, model),
    };
    if command != Command::Diffuse {
        let salt = random.of(&["a", "b", "tenant"]);
        maybe(&mut map, random, 4, "cache_salt", salt);
    }
    Value::Object(map)
}

fn label(random: &mut Random, model: &Model, most: usize) -> Value {
    let ids: Vec<usize> = (0..random.between(1, most)).map(|_| random.below(model.vocab)).collect();
    if let [id] = ids[..] { json!(id) } else { json!(ids) }
}

/// A request with short items, each of which gets a row of scores.
fn score(random: &mut Random, model: &Model) -> Map<String, Value> {
    let mut map = Map::new();
    let query = length(random, model.context / 2);
    let long = random.once_in(2);
    let most = if long { 4 } else { 1 };
    // Prompts that are too long are refused, which is also compared, but most requests should fit.
    let rest = if random.once_in(20) { model.context } else { model.context - query - most };
    let items = random.between(1, 6);
    let lengths: Vec<usize> = (0..items).map(|_| length(random, rest)).collect();
    // A request uses either text or ids for all parts.
    let text = model.text && random.once_in(2);
    let part = |random: &mut Random, n| {
        if text { json!(words(random, n)) } else { json!(tokens(random, model, n)) }
    };
    let query = part(random, query);
    let items: Vec<Value> = lengths.into_iter().map(|n| part(random, n)).collect();
    map.insert("query".into(), query);
    map.insert("items".into(), Value::Array(items.clone()));
    let labels = |random: &mut Random| {
        let count = random.between(1, 4);
        (0..count).map(|_| label(random, model, most)).collect::<Vec<_>>()
    };
    if random.once_in(5) {
        let lists: Vec<Value> = items.iter().map(|_| Value::Array(labels(random))).collect();
        map.insert("item_labels".into(), Value::Array(lists));
    } else {
        map.insert("label_token_ids".into(), Value::Array(labels(random)));
    }
    if long {
        map.insert("long_labels".into(), random.of(&["sum", "mean"]).into());
    }
    maybe(&mut map, random, 2, "softmax", true);
    maybe(&mut map, random, 3, "full_logprobs", true);
    maybe(&mut map, random, 5, "item_first", true);
    maybe(&mut map, random, 4, "return_token_ids", true);
    maybe(&mut map, random, 6, "item_errors", true);
    let end = random.of(&["left", "right"]);
    maybe(&mut map, random, 6, "truncate", end);
    if text {
        maybe(&mut map, random, 3, "tokenization", "separate");
    }
    if model.mask.is_some() {
        let samples = random.of(&[1, 3, 8]);
        maybe(&mut map, random, 2, "mc_samples", samples);
        let seed = random.below(5);
        maybe(&mut map, random, 3, "seed", seed);
    }
    map
}

/// Adds sampling parameters.
fn sampling(map: &mut Map<String, Value>, random: &mut Random) {
    if random.once_in(2) {
        return;
    }
    map.insert("temperature".into(), random.of(&[0.0, 0.5, 1.0, 2.0]).into());
    let (k, p, seed) = (random.of(&[0, 1, 5, 40]), random.of(&[0.1, 0.7, 1.0]), random.bits());
    maybe(map, random, 3, "top_k", k);
    maybe(map, random, 3, "top_p", p);
    map.insert("seed".into(), seed.into());
}

/// Adds what changes logits.
fn changes(map: &mut Map<String, Value>, random: &mut Random, model: &Model) {
    let typical = random.of(&[0.2, 0.9, 1.0]);
    maybe(map, random, 6, "typical_p", typical);
    let repetition = random.of(&[0.5, 1.0, 1.3]);
    maybe(map, random, 5, "repetition_penalty", repetition);
    for key in ["presence_penalty", "frequency_penalty"] {
        let penalty = random.of(&[-2.0, -0.1, 0.5, 2.0]);
        maybe(map, random, 6, key, penalty);
    }
    if random.once_in(5) {
        let (id, other) = (random.below(model.vocab).to_string(), random.below(model.vocab).to_string());
        map.insert("logit_bias".into(), json!({id: random.of(&[-100.0, 1.5, 100.0]), other: 2.5}));
    }
}

/// Adds numbers of continuations; greedy ones would be refused.
fn continuations(map: &mut Map<String, Value>, random: &mut Random) {
    let sampled = map.get("temperature").and_then(Value::as_f64).is_some_and(|temperature| temperature > 0.0);
    if sampled && random.once_in(2) {
        let n = random.between(1, 4);
        map.insert("n".into(), n.into());
        let best_of = n + random.below(3);
        maybe(map, random, 2, "best_of", best_of);
    }
}

fn generate(random: &mut Random, model: &Model) -> Map<String, Value> {
    let mut map = Map::new();
    let new = random.of(&[1, 2, 5, 20, 40]).min(model.context / 3);
    let most = model.context - new;
    let length = length(random, most).max(1);
    map.insert("prompt".into(), prompt(random, model, length));
    map.insert("max_new_tokens".into(), new.into());
    sampling(&mut map, random);
    let floor = random.of(&[0.0, 0.05, 0.5]);
    maybe(&mut map, random, 6, "min_p", floor);
    changes(&mut map, random, model);
    continuations(&mut map, random);
    let top = random.of(&[0, 1, 3, 500]);
    maybe(&mut map, random, 3, "logprobs", top);
    let (top, from) = (random.below(3), random.below(length + 1));
    if random.once_in(5) {
        map.insert("prompt_logprobs".into(), top.into());
        maybe(&mut map, random, 2, "prompt_logprobs_from", from);
    }
    maybe(&mut map, random, 2, "ignore_eos", true);
    maybe(&mut map, random, 8, "kv_cache", false);
    if model.text {
        maybe(&mut map, random, 4, "stop", json!([" the", "."]));
    }
    map
}

fn diffuse(random: &mut Random, model: &Model) -> Map<String, Value> {
    let mut map = Map::new();
    let new = random.of(&[0, 1, 4, 8, 24, 48]);
    let length = length(random, model.context - new);
    let mut prompt = prompt(random, model, length);
    if let (Some(ids), Some(mask)) = (prompt.as_array_mut(), model.mask)
        && random.once_in(3)
    {
        for id in ids.iter_mut() {
            if random.once_in(5) {
                *id = mask.into();
            }
        }
    }
    map.insert("prompt".into(), prompt);
    map.insert("max_new_tokens".into(), new.into());
    let algorithms = ["origin", "maskgit-plus", "topk-margin", "entropy", "low-confidence", "random"];
    let algorithm = random.of(&algorithms);
    maybe(&mut map, random, 2, "algorithm", algorithm);
    sampling(&mut map, random);
    let temperature = random.of(&[0.2, 1.0]);
    maybe(&mut map, random, 4, "alg_temp", temperature);
    if random.once_in(4) {
        map.insert("threshold".into(), random.of(&[0.01, 0.1, 0.9, 2.0]).into());
    } else if new > 0 {
        let steps = random.between(1, new);
        maybe(&mut map, random, 2, "steps", steps);
    }
    let block = random.of(&[1, 4, 8]);
    maybe(&mut map, random, 3, "block_length", block);
    if random.once_in(3) {
        map.insert("cache".into(), random.of(&["prefix", "dual"]).into());
        let refresh = random.between(1, 4);
        maybe(&mut map, random, 2, "refresh", refresh);
    } else {
        maybe(&mut map, random, 4, "cfg_scale", 1.5);
    }
    maybe(&mut map, random, 3, "ignore_eos", true);
    map
}
