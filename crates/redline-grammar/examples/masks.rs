//! Times of masks and of compiling for a vocabulary of 131,072 tokens: `cargo run --release --example masks -- tekken.json`, with a
//! vocabulary of Mistral, such as `mistral_common/data/tekken_240911.json` of the package `mistral-common`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redline_grammar::{Compiler, Grammar, GrammarKind, Words};
use serde_json::Value;

/// Schemas of answers and of arguments of tools.
const SCHEMAS: &[&str] = &[
    r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"}},"required":["name","age"],"additionalProperties":false}"#,
    r#"{"type":"object","properties":{"items":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"},"tags":{"type":"array","items":{"enum":["new","used","sold"]}},"price":{"type":"number"}},"required":["id","tags","price"],"additionalProperties":false},"maxItems":8}},"required":["items"],"additionalProperties":false}"#,
    r##"{"$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},"left":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","left"],"additionalProperties":false}},"$ref":"#/$defs/node"}"##,
    r#"{"type":"object"}"#,
    r#"{"type":"object","properties":{"date":{"type":"string","format":"date"},"id":{"type":"string","format":"uuid"},"code":{"type":"string","pattern":"^[A-Z]{3}-[0-9]{4}$"}},"required":["date","id","code"],"additionalProperties":false}"#,
    r#"{"enum":["positive","negative","neutral"]}"#,
];

/// A vocabulary of Mistral.
struct Tekken(Vec<Vec<u8>>);

impl Words for Tekken {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.0[id as usize].clone()
    }

    fn marker(&self, id: u32) -> Option<String> {
        self.0[id as usize].is_empty().then(|| format!("<{id}>"))
    }

    fn ends(&self) -> Vec<u32> {
        vec![2]
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn percentile(of: &mut [Duration], share: f64) -> Duration {
    of.sort_unstable();
    of[((of.len() - 1) as f64 * share) as usize]
}

fn main() {
    let file = std::env::args().nth(1).expect("give the file of a vocabulary");
    let text = std::fs::read_to_string(file).expect("the file cannot be read");
    let document: Value = serde_json::from_str(&text).expect("the file is not JSON");
    let number =
        |key: &str| document["config"][key].as_u64().expect("a vocabulary of Mistral has a size") as usize;
    let (size, special) = (number("default_vocab_size"), number("default_num_special_tokens"));
    let mut words = vec![Vec::new(); special];
    let listed = document["vocab"].as_array().expect("a vocabulary of Mistral has a list of tokens");
    let bytes = |token: &Value| {
        STANDARD.decode(token["token_bytes"].as_str().unwrap_or_default()).unwrap_or_default()
    };
    words.extend(listed.iter().take(size - special).map(bytes));
    println!("{} tokens", words.len());
    let compiler = Compiler::new(Box::new(Tekken(words)));
    let first = Instant::now();
    compiler.matcher(&Grammar::json_object(), None).expect("any object");
    println!("the vocabulary and the first grammar: {:.0} ms", first.elapsed().as_secs_f64() * 1e3);
    let (mut masks, mut checks, mut compiles) = (Vec::new(), Vec::new(), Vec::new());
    for schema in SCHEMAS {
        let begun = Instant::now();
        let grammar = Grammar::new(GrammarKind::JsonSchema, *schema);
        let compiled = compiler.matcher(&grammar, None).expect("the schemas are valid");
        compiles.push(begun.elapsed());
        for seed in 0..40 {
            let (mut matcher, mut random) = (compiled.clone(), Random(seed));
            for _ in 0..200 {
                if matcher.is_complete() {
                    break;
                }
                let begun = Instant::now();
                let mask = matcher.mask();
                masks.push(begun.elapsed());
                let allowed: Vec<u32> = (0..mask.len() as u32 * 32)
                    .filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1)
                    .collect();
                let token = allowed[random.below(allowed.len())];
                let mut other = matcher.clone();
                matcher.push(token);
                // Without a mask, as for a greedy choice.
                let _ = other.mask();
                other.push(token);
                let begun = Instant::now();
                other.accepts(token);
                checks.push(begun.elapsed());
                if token == 2 {
                    break;
                }
            }
        }
    }
    for (name, times) in [("mask", &mut masks), ("check of a token", &mut checks), ("compile", &mut compiles)]
    {
        let us = |share| percentile(&mut times.clone(), share).as_secs_f64() * 1e6;
        println!(
            "{name}: {} times, median {:.1} us, 99 % {:.1} us, most {:.1} us",
            times.len(),
            us(0.5),
            us(0.99),
            us(1.0)
        );
    }
}
