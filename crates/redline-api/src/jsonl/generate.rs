//! `generate`: requests and answers.

use std::collections::BTreeMap;

use redline_engine::{
    AdapterChoice, Continuation, GenerateOutcome, GenerateRequest, Penalties, Prompt, PromptLogprobs,
    Sampling,
};
use redline_settings::FinishReason;
use serde::{Deserialize, Serialize};

use crate::adapter::{AdapterNames, adapters};
use crate::chat::keys::{JsonText, chat_keys};
use crate::cost::{PrefixCacheUse, Usage};
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::{LogitBias, Strings, TextOrIds};
use crate::json::named;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::receipt::document::{ReceiptChoice, ReceiptDocument};
use crate::{cost, receipt};

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

/// Values for the keys that a request leaves out.
#[derive(Clone, Debug)]
pub struct GenerateDefaults {
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingDefaults,
    /// Changes to the logits of tokens that occurred.
    pub penalties: Penalties,
    /// Token ids, each with a number that is added to its logit.
    pub logit_bias: Vec<(i64, f32)>,
    /// Number of continuations to return.
    pub n: usize,
    /// Number of continuations to generate, of which the most probable ones are returned; `None`: `n`.
    pub best_of: Option<usize>,
    /// Generation stops before the first occurrence of any of these texts.
    pub stop: Vec<String>,
    /// Continue after an end-of-sequence token.
    pub ignore_eos: bool,
    /// Return the log-probability of every new token, and of this number of most probable tokens at its position.
    pub logprobs: Option<usize>,
    /// Return the log-probability of every token of the prompt, and of this number of most probable tokens at its position.
    pub prompt_logprobs: Option<usize>,
    /// First position for which log-probabilities of the prompt are returned.
    pub prompt_logprobs_from: usize,
    /// Whether to use the KV cache; otherwise the whole sequence is computed again for every token.
    pub kv_cache: bool,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
    /// Time limit of a request in seconds.
    pub timeout_s: Option<f64>,
}

/// Sampling parameters. `None` stands for the default, which for the temperature depends on the other parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplingDefaults {
    /// Temperature; 0 is greedy.
    pub temperature: Option<f32>,
    /// Keep the k most probable tokens; 0 keeps all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of tokens whose probability reaches this.
    pub top_p: Option<f32>,
    /// Drop tokens below this share of the most probable one.
    pub min_p: Option<f32>,
    /// Keep the tokens whose information content is closest to the entropy, up to this probability.
    pub typical_p: Option<f32>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
}

impl SamplingDefaults {
    /// Fills in the defaults: greedy, or temperature 1 if `top_k`, `top_p`, `min_p` or `typical_p` is given.
    pub fn sampling(self) -> Sampling {
        let filtered =
            self.top_k.is_some() || [self.top_p, self.min_p, self.typical_p].iter().any(Option::is_some);
        let default = Sampling::default();
        Sampling {
            temperature: self.temperature.unwrap_or(if filtered { 1.0 } else { default.temperature }),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical_p: self.typical_p.unwrap_or(default.typical_p),
            seed: self.seed.unwrap_or(default.seed),
        }
    }
}

impl Default for GenerateDefaults {
    /// One greedy continuation of at most [`Self::MAX_NEW_TOKENS`] tokens.
    fn default() -> Self {
        Self {
            max_new_tokens: Self::MAX_NEW_TOKENS,
            sampling: SamplingDefaults::default(),
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            best_of: None,
            stop: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            prompt_logprobs: None,
            prompt_logprobs_from: 0,
            kv_cache: true,
            adapters: Vec::new(),
            timeout_s: None,
        }
    }
}

impl GenerateDefaults {
    /// Default maximum number of new tokens.
    pub const MAX_NEW_TOKENS: usize = 128;

    /// A request for a prompt, with these values.
    pub fn request(&self, prompt: Prompt) -> GenerateRequest {
        GenerateRequest {
            sampling: self.sampling.sampling(),
            penalties: self.penalties,
            logit_bias: self.logit_bias.clone(),
            n: self.n,
            best_of: self.best_of,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            prompt_logprobs: prompt_logprobs(self.prompt_logprobs, self.prompt_logprobs_from),
            kv_cache: self.kv_cache,
            adapters: self.adapters.clone(),
            timeout_s: self.timeout_s,
            ..GenerateRequest::new(prompt, self.max_new_tokens)
        }
    }
}

fn prompt_logprobs(top: Option<usize>, from: usize) -> Option<PromptLogprobs> {
    top.map(|top| PromptLogprobs { from, top })
}

/// Builds a request for the prompt of a line. Absent keys take their values from `defaults`; an absent salt is empty.
pub fn request(line: GenerateLine, prompt: Prompt, defaults: &GenerateDefaults) -> GenerateRequest {
    let default_sampling = defaults.sampling;
    let sampling = SamplingDefaults {
        temperature: line.temperature.or(default_sampling.temperature),
        top_k: line.top_k.or(default_sampling.top_k),
        top_p: line.top_p.or(default_sampling.top_p),
        min_p: line.min_p.or(default_sampling.min_p),
        typical_p: line.typical_p.or(default_sampling.typical_p),
        seed: line.seed.or(default_sampling.seed),
    };
    let penalties = Penalties {
        repetition: line.repetition_penalty.unwrap_or(defaults.penalties.repetition),
        frequency: line.frequency_penalty.unwrap_or(defaults.penalties.frequency),
        presence: line.presence_penalty.unwrap_or(defaults.penalties.presence),
    };
    GenerateRequest {
        prompt,
        max_new_tokens: line.max_new_tokens.unwrap_or(defaults.max_new_tokens),
        fit_context: false,
        sampling: sampling.sampling(),
        penalties,
        logit_bias: line.logit_bias.map_or_else(|| defaults.logit_bias.clone(), |bias| bias.0),
        n: line.n.unwrap_or(defaults.n),
        best_of: line.best_of.or(defaults.best_of),
        stop: line.stop.map_or_else(|| defaults.stop.clone(), |stop| stop.0),
        stop_ids: Vec::new(),
        ignore_eos: line.ignore_eos.unwrap_or(defaults.ignore_eos),
        logprobs: line.logprobs.or(defaults.logprobs),
        prompt_logprobs: prompt_logprobs(
            line.prompt_logprobs.or(defaults.prompt_logprobs),
            line.prompt_logprobs_from.unwrap_or(defaults.prompt_logprobs_from),
        ),
        kv_cache: line.kv_cache.unwrap_or(defaults.kv_cache),
        cache_salt: line.cache_salt.unwrap_or_default(),
        adapters: adapters(line.adapter, &defaults.adapters),
        timeout_s: line.timeout_s.or(defaults.timeout_s),
        queueing: redline_engine::Queueing::default(),
        receipt: receipt::options(line.receipt),
    }
}

/// The parts of a request that the answer repeats.
#[derive(Clone, Copy, Debug)]
pub struct RequestEcho {
    kv_cache: bool,
    seed: u64,
}

impl RequestEcho {
    /// Copies them from a request.
    pub fn of(request: &GenerateRequest) -> Self {
        Self { kv_cache: request.kv_cache, seed: request.sampling.seed }
    }
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, echo: RequestEcho, mut outcome: GenerateOutcome) -> TextCompletion {
    let tokens_per_s = tokens_per_s(&outcome).map(Finite);
    let mut prompt_logprobs = outcome
        .prompt_logprobs
        .take()
        .map(|positions| positions.into_iter().map(|entry| entry.map(position)).collect());
    let continuations = outcome.take_continuations().into_iter().enumerate();
    TextCompletion {
        object: "text_completion".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        choices: continuations.map(|(index, one)| choice(index, one, prompt_logprobs.take())).collect(),
        usage: cost::usage(outcome.usage),
        meta: GenerateMeta {
            cache_miss_count: outcome.plan_misses,
            queue_s: Finite(outcome.queue_s),
            prefill_s: Finite(outcome.prefill_s),
            decode_s: Finite(outcome.decode_s),
            decode_tokens_per_s: outcome.decode_tokens_per_s.map(Finite),
            tokens_per_s,
            peak_memory_bytes: outcome.peak_memory_bytes,
            kernel_path: outcome.kernel_path,
            threads: model.threads(),
            kv_cache: echo.kv_cache,
            prefix_cache: outcome.prefix_cache.map(cost::prefix_cache),
            seed: echo.seed,
        },
        receipt: receipt::attached(outcome.receipt),
    }
}

/// All new tokens per second of prefill and decoding together; `None` without new tokens.
fn tokens_per_s(outcome: &GenerateOutcome) -> Option<f64> {
    let (tokens, seconds) = (outcome.usage.completion_tokens, outcome.prefill_s + outcome.decode_s);
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

fn choice(
    index: usize,
    from: Continuation,
    prompt_logprobs: Option<Vec<Option<LogprobEntry>>>,
) -> CompletionChoice {
    CompletionChoice {
        index,
        text: from.text,
        token_ids: from.token_ids,
        finish_reason: from.finish_reason,
        logprobs: from.logprobs.map(|positions| positions.into_iter().map(position).collect()),
        prompt_logprobs,
        seed: from.seed,
        mean_logprob: from.mean_logprob.map(Finite),
    }
}

fn position(from: redline_engine::PositionLogprobs) -> LogprobEntry {
    LogprobEntry { chosen: token(from.chosen), top: from.top.into_iter().map(token).collect() }
}

fn token(from: redline_engine::TokenLogprob) -> TokenEntry {
    TokenEntry { id: from.id, text: from.text, logprob: Finite(from.logprob) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_engine::AdapterChoice;

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
        let keys = crate::chat::keys::ChatKeys {
            messages: Some(vec![text(r#"{"role":"user"}"#)]),
            tools: Some(vec![text("1")]),
            documents: Some(vec![text("2")]),
            chat_template_kwargs: Some(BTreeMap::from([("a".to_owned(), text("3"))])),
            date: Some("d".to_owned()),
            add_generation_prompt: Some(true),
            continue_final_message: Some(false),
        };
        assert_eq!(line.take_chat_keys(), keys);
        assert_eq!(line.take_chat_keys(), crate::chat::keys::ChatKeys::default());
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

    #[test]
    fn greedy_unless_asked_otherwise() {
        let check = |chosen: SamplingDefaults, temperature: f32| {
            assert_eq!(chosen.sampling().temperature, temperature);
        };
        check(SamplingDefaults::default(), 0.0);
        check(SamplingDefaults { seed: Some(7), ..SamplingDefaults::default() }, 0.0);
        check(SamplingDefaults { top_k: Some(5), ..SamplingDefaults::default() }, 1.0);
        check(SamplingDefaults { top_p: Some(0.5), ..SamplingDefaults::default() }, 1.0);
        check(SamplingDefaults { min_p: Some(0.1), ..SamplingDefaults::default() }, 1.0);
        check(SamplingDefaults { typical_p: Some(0.9), ..SamplingDefaults::default() }, 1.0);
        check(
            SamplingDefaults { temperature: Some(0.0), top_k: Some(5), ..SamplingDefaults::default() },
            0.0,
        );
        check(SamplingDefaults { temperature: Some(0.7), ..SamplingDefaults::default() }, 0.7);
    }

    /// The request of a line.
    fn of_line(json: &str, defaults: &GenerateDefaults) -> GenerateRequest {
        let mut line: GenerateLine = serde_json::from_str(json).unwrap();
        let prompt = line.prompt.take().unwrap().into();
        request(line, prompt, defaults)
    }

    /// Flags that all differ from their defaults.
    fn defaults(sampling: SamplingDefaults) -> GenerateDefaults {
        GenerateDefaults {
            max_new_tokens: 9,
            sampling,
            penalties: Penalties { repetition: 1.5, frequency: 0.25, presence: -0.5 },
            logit_bias: vec![(3, 1.5)],
            n: 2,
            best_of: Some(4),
            stop: vec![".".to_owned()],
            ignore_eos: true,
            logprobs: Some(2),
            prompt_logprobs: Some(1),
            prompt_logprobs_from: 4,
            kv_cache: false,
            adapters: vec![AdapterChoice { name: "default".to_owned(), scale: 1.0 }],
            timeout_s: Some(2.0),
        }
    }

    #[test]
    fn a_line_wins_over_the_flags() {
        let defaults =
            defaults(SamplingDefaults { top_k: Some(3), seed: Some(1), ..SamplingDefaults::default() });
        let line = |json: &str| of_line(json, &defaults);
        let bare = line(r#"{"prompt":"p"}"#);
        assert_eq!((bare.max_new_tokens, bare.sampling.top_k, bare.sampling.temperature), (9, 3, 1.0));
        assert_eq!(
            (bare.stop.len(), bare.ignore_eos, bare.logprobs, bare.kv_cache),
            (1, true, Some(2), false)
        );
        assert_eq!(
            (bare.timeout_s, line(r#"{"prompt":"p","timeout_s":9}"#).timeout_s),
            (Some(2.0), Some(9.0))
        );
        assert_eq!(bare.prompt_logprobs, Some(PromptLogprobs { from: 4, top: 1 }));
        let full = line(
            r#"{"prompt":[4],"max_new_tokens":2,"temperature":0,"top_k":1,"seed":5,"stop":[],"ignore_eos":false,
            "kv_cache":true,"logprobs":0}"#,
        );
        assert_eq!((full.max_new_tokens, full.sampling.top_k, full.sampling.temperature), (2, 1, 0.0));
        assert_eq!((full.sampling.seed, full.stop.len(), full.ignore_eos), (5, 0, false));
        assert_eq!((full.logprobs, full.kv_cache, full.prompt), (Some(0), true, Prompt::Ids(vec![4])));
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let defaults = defaults(SamplingDefaults {
            temperature: Some(0.25),
            top_k: Some(3),
            top_p: Some(0.5),
            min_p: Some(0.125),
            typical_p: Some(0.75),
            seed: Some(1),
        });
        // Compared as text, because requests do not implement `PartialEq`.
        let line = |json: &str| format!("{:#?}", of_line(json, &defaults));
        let flags = GenerateRequest {
            sampling: Sampling {
                temperature: 0.25,
                top_k: 3,
                top_p: 0.5,
                min_p: 0.125,
                typical_p: 0.75,
                seed: 1,
            },
            penalties: Penalties { repetition: 1.5, frequency: 0.25, presence: -0.5 },
            logit_bias: vec![(3, 1.5)],
            n: 2,
            best_of: Some(4),
            stop: vec![".".to_owned()],
            ignore_eos: true,
            logprobs: Some(2),
            prompt_logprobs: Some(PromptLogprobs { from: 4, top: 1 }),
            kv_cache: false,
            cache_salt: String::new(),
            adapters: vec![AdapterChoice { name: "default".to_owned(), scale: 1.0 }],
            timeout_s: Some(2.0),
            ..GenerateRequest::new(Prompt::Text("p".to_owned()), 9)
        };
        assert_eq!(line(r#"{"prompt":"p"}"#), format!("{flags:#?}"));
        let of_flags = defaults.request(Prompt::Text("p".to_owned()));
        assert_eq!(format!("{of_flags:#?}"), format!("{flags:#?}"));
        let keys = GenerateRequest {
            sampling: Sampling {
                temperature: 0.5,
                top_k: 7,
                top_p: 0.75,
                min_p: 0.0625,
                typical_p: 0.5,
                seed: 5,
            },
            penalties: Penalties { repetition: 0.75, frequency: -1.0, presence: 2.0 },
            logit_bias: vec![(9, -100.0), (8, 0.5)],
            n: 5,
            best_of: Some(6),
            stop: vec!["x".to_owned(), "y".to_owned()],
            ignore_eos: false,
            logprobs: Some(6),
            prompt_logprobs: Some(PromptLogprobs { from: 11, top: 8 }),
            kv_cache: true,
            cache_salt: "tenant".to_owned(),
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            timeout_s: Some(3.0),
            ..GenerateRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let json = r#"{"prompt":[4],"max_new_tokens":2,"temperature":0.5,"top_k":7,"top_p":0.75,"min_p":0.0625,"seed":5,
            "typical_p":0.5,"repetition_penalty":0.75,"frequency_penalty":-1,"presence_penalty":2,
            "logit_bias":{"9":-100,"8":0.5},"n":5,"best_of":6,
            "stop":["x","y"],"ignore_eos":false,"logprobs":6,"prompt_logprobs":8,"prompt_logprobs_from":11,
            "kv_cache":true,"cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
