//! `generate`: requests and answers.

use std::collections::BTreeMap;

use redline_settings::FinishReason;
use serde::{Deserialize, Serialize};

use crate::adapter::AdapterNames;
use crate::chat::{JsonText, chat_keys};
use crate::finite::Finite;
use crate::id::RequestId;
use crate::input::{LogitBias, Strings, TextOrIds};
use crate::named;
use crate::receipt::{ReceiptChoice, ReceiptDocument};
use crate::schema::SchemaVersion;
use crate::usage::{PrefixCacheUse, Usage};

/// One generation request, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// The prompt to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<TextOrIds>,
    /// Maximum number of new tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Sampling temperature; 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Keep the k most probable tokens; 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Keep the smallest set whose probability reaches this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Drop tokens below this share of the most probable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f32>,
    /// Keep the tokens whose information content is closest to the entropy, up to this probability; 1 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical_p: Option<f32>,
    /// Divide positive logits of tokens that occurred by this, and multiply others; 1 changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f32>,
    /// Subtract this from the logits of tokens that were generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f32>,
    /// Subtract this from the logit of a token for each time it was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f32>,
    /// Numbers that are added to the logits of tokens, by token id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<LogitBias>,
    /// Number of continuations to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// Number of continuations to generate, of which the `n` most probable ones per token are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_of: Option<usize>,
    /// Seed of the random numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Generation ends before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Strings>,
    /// Go on after an end-of-sequence token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_eos: Option<bool>,
    /// `false`: recompute the whole sequence for every token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<bool>,
    /// Only requests with the same salt share entries of the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// The adapters of the request: a name, or a list of names and of objects with `name` and `scale`; `base` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterNames>,
    /// Time limit of the request in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptChoice>,
    /// Return log-probabilities of every new token and of this many most probable tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<usize>,
    /// Return log-probabilities of the prompt's tokens and of this many most probable tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<usize>,
    /// First position for which prompt log-probabilities are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs_from: Option<usize>,
    /// A conversation, instead of a prompt: objects with `role` and `content`, which the model's chat template formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<JsonText>>,
    /// JSON schemas of the functions that the model may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<JsonText>>,
    /// Documents that the model may use, objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<JsonText>>,
    /// Further variables of the chat template by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// The date that the chat template may print, such as `2026-07-26`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// End the formatted conversation where the assistant's answer begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_generation_prompt: Option<bool>,
    /// End the formatted conversation with the content of its final message, so that the model continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_final_message: Option<bool>,
}

chat_keys!(GenerateLine);

/// Answer to a generation request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextCompletion {
    /// Always `text_completion`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// The continuations, `n` of them: in the order of their seeds, or if more were generated, the most probable first.
    pub choices: Vec<CompletionChoice>,
    /// Token counts. Generated tokens include those of continuations that are not returned.
    pub usage: Usage,
    /// Further details.
    pub meta: GenerateMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// One continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionChoice {
    /// Its place among the choices, from 0.
    pub index: usize,
    /// The new text, up to a stop string.
    pub text: String,
    /// The new token ids, including an end-of-sequence token.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    #[serde(with = "named")]
    pub finish_reason: FinishReason,
    /// Log-probabilities per new token, on request.
    pub logprobs: Option<Vec<LogprobEntry>>,
    /// Log-probabilities per prompt token, on request, in the first choice; `null` for the first token and for those before the
    /// requested position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<LogprobEntry>>>,
    /// Seed of its random numbers: with it, a request for one continuation gives the same.
    pub seed: u64,
    /// Mean log-probability of its tokens, if the choices are the most probable of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_logprob: Option<Finite<f64>>,
}

/// One token with its log-probability over the whole vocabulary, before bias, penalties and sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Token id.
    pub id: u32,
    /// The text of this token alone.
    pub text: String,
    /// Natural logarithm of its probability at temperature 1.
    pub logprob: Finite<f32>,
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogprobEntry {
    /// The chosen token.
    #[serde(flatten)]
    pub chosen: TokenEntry,
    /// The most probable tokens, most probable first.
    pub top: Vec<TokenEntry>,
}

/// Details of a generation answer besides the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateMeta {
    /// Number of plan lookups that found no plan, in the passes of this request.
    pub cache_miss_count: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: Finite<f64>,
    /// Seconds until the first new token was chosen, including `queue_s`.
    pub prefill_s: Finite<f64>,
    /// Seconds for all further tokens.
    pub decode_s: Finite<f64>,
    /// New tokens after the first of each continuation, per second of `decode_s`; `null` without such tokens.
    pub decode_tokens_per_s: Option<Finite<f64>>,
    /// All new tokens, per second of `prefill_s` and `decode_s` together; `null` without new tokens.
    pub tokens_per_s: Option<Finite<f64>>,
    /// Peak of the bytes allocated by the process while the request ran, including weights; `null` if allocations are not
    /// counted, or if another request ran at the same time.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that were used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Whether the KV cache was used.
    pub kv_cache: bool,
    /// Use of the prefix cache; `null` if it is off or the KV cache is not used.
    pub prefix_cache: Option<PrefixCacheUse>,
    /// Seed of the random numbers.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read_and_written() {
        let json = r#"{"prompt":"p","max_new_tokens":5,"temperature":0.5,"top_k":3,"top_p":0.25,"min_p":0.125,
            "typical_p":0.5,"repetition_penalty":1.25,"presence_penalty":-0.5,"frequency_penalty":0.75,
            "logit_bias":{"5":-100.0,"-7":0.5},"n":2,"best_of":3,
            "seed":18446744073709551615,"stop":["x","y"],"ignore_eos":true,"kv_cache":false,"logprobs":2,"prompt_logprobs":0,"prompt_logprobs_from":3,"cache_salt":"t","timeout_s":1.5}"#;
        let line: GenerateLine = serde_json::from_str(json).unwrap();
        assert_eq!(line.seed, Some(u64::MAX));
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_value(&line).unwrap(), value);
    }

    #[test]
    fn absent_keys_are_absent_and_one_stop_string_is_a_list() {
        let line: GenerateLine = serde_json::from_str(r#"{"prompt":[1,2],"stop":"."}"#).unwrap();
        assert_eq!(line.prompt, Some(TextOrIds::Ids(vec![1, 2])));
        assert_eq!(line.stop, Some(Strings(vec![".".to_owned()])));
        assert_eq!((line.max_new_tokens, line.temperature, line.top_k, line.seed), (None, None, None, None));
    }

    #[test]
    fn bad_requests_are_named() {
        let check = |json: &str, expect: &str| {
            let error = serde_json::from_str::<GenerateLine>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        };
        check(r#"{"prompt":"p","max_tokens":3}"#, "unknown field `max_tokens`");
        check(r#"{"messages":"hi"}"#, "invalid type: string \"hi\", expected a sequence");
        check(r#"{"messages":[],"date":20260726}"#, "integer `20260726`, expected a string");
        check(r#"{"prompt":"p","max_new_tokens":-1}"#, "invalid value: integer `-1`");
        check(r#"{"prompt":"p","logit_bias":[[5,1]]}"#, "expected an object of token ids and numbers");
        check(r#"{"prompt":"p","n":-1}"#, "invalid value: integer `-1`");
        check(r#"{"prompt":"p","temperature":"hot"}"#, "invalid type: string \"hot\"");
    }

    #[test]
    fn the_keys_of_a_line_are_moved() {
        let json = r#"{"messages":[{"role":"user"}],"tools":[1],"documents":[2],"chat_template_kwargs":{"a":3},"date":"d",
            "add_generation_prompt":true,"continue_final_message":false}"#;
        let mut line: GenerateLine = serde_json::from_str(json).unwrap();
        let text = |json: &str| serde_json::from_str::<JsonText>(json).unwrap();
        let keys = crate::ChatKeys {
            messages: Some(vec![text(r#"{"role":"user"}"#)]),
            tools: Some(vec![text("1")]),
            documents: Some(vec![text("2")]),
            chat_template_kwargs: Some(BTreeMap::from([("a".to_owned(), text("3"))])),
            date: Some("d".to_owned()),
            add_generation_prompt: Some(true),
            continue_final_message: Some(false),
        };
        assert_eq!(line.take_chat_keys(), keys);
        assert_eq!(line.take_chat_keys(), crate::ChatKeys::default());
    }

    #[test]
    fn an_answer_has_the_documented_shape() {
        let token = TokenEntry { id: 9, text: " a".to_owned(), logprob: Finite(-0.1) };
        let answer = TextCompletion {
            receipt: None,
            object: "text_completion".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            choices: vec![CompletionChoice {
                index: 0,
                text: " a".to_owned(),
                token_ids: vec![9],
                finish_reason: FinishReason::Length,
                logprobs: Some(vec![LogprobEntry { chosen: token.clone(), top: vec![token] }]),
                prompt_logprobs: None,
                seed: 5,
                mean_logprob: Some(Finite(-0.5)),
            }],
            usage: Usage::new(2, 1, 0),
            meta: GenerateMeta {
                cache_miss_count: 0,
                queue_s: Finite(0.125),
                prefill_s: Finite(0.25),
                decode_s: Finite(0.0),
                decode_tokens_per_s: None,
                tokens_per_s: Some(Finite(4.0)),
                peak_memory_bytes: Some(4096),
                kernel_path: "avx2/f32".to_owned(),
                threads: 2,
                kv_cache: true,
                prefix_cache: None,
                seed: 0,
            },
        };
        let json = serde_json::to_string(&answer).unwrap();
        let choice = r#""choices":[{"index":0,"text":" a","token_ids":[9],"finish_reason":"length","logprobs":[{"id":9,"text":" a","logprob":-0.1,"top":[{"id":9,"text":" a","logprob":-0.1}]}],"seed":5,"mean_logprob":-0.5}]"#;
        assert!(json.contains(choice), "{json}");
        assert_eq!(serde_json::from_str::<TextCompletion>(&json).unwrap(), answer);
    }
}
