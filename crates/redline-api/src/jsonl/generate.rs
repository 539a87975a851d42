//! `generate`: continuations of a prompt.

use redline_engine::{Continuation, GenerateOutcome, GenerateRequest, Prompt, PromptLogprobs};
use redline_settings::FinishReason;
use serde::{Deserialize, Serialize};

use crate::adapter::adapters;
use crate::chat::keys::ChatKeys;
use crate::cost::{self, PrefixCacheUse, Usage};
use crate::error::ApiError;
use crate::grammar::GrammarKeys;
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::TextOrIds;
use crate::json::named;
use crate::json::parts::{part, with_parts};
use crate::json::text::JsonText;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;
use crate::sampling::SamplingParameters;

/// One generation request, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, remote = "GenerateLine")]
pub struct GenerateLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// The prompt to continue.
    pub prompt: Option<TextOrIds>,
    /// A conversation, instead of a prompt: objects with `role` and `content`, which the model's chat template formats.
    pub messages: Option<Vec<JsonText>>,
    /// How long the text is, and what is reported of it.
    #[serde(skip)]
    pub keys: GenerateKeys,
    /// How tokens are chosen.
    #[serde(skip)]
    pub sampling: SamplingParameters,
    /// What the text has to be.
    #[serde(skip)]
    pub grammar: GrammarKeys,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
    /// What concerns the conversation, beside the messages.
    #[serde(skip)]
    pub chat: ChatKeys,
}

with_parts! {
    GenerateLine {
        keys: GenerateKeys,
        sampling: SamplingParameters,
        grammar: GrammarKeys,
        options: RequestOptions,
        chat: ChatKeys,
    }
}

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
    /// The probability of all tokens that the grammar did not allow here, if there is one: log-probabilities are the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masked_mass: Option<Finite<f32>>,
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

part! {
    /// How long a text is, and what is reported of it.
    pub struct GenerateKeys {
        /// Maximum number of new tokens.
        pub max_new_tokens: usize,
        /// `false`: recompute the whole sequence for every token.
        pub kv_cache: bool,
        /// Return log-probabilities of every new token and of this many most probable tokens.
        pub logprobs: usize,
        /// Return log-probabilities of the prompt's tokens and of this many most probable tokens.
        pub prompt_logprobs: usize,
        /// First position for which prompt log-probabilities are returned.
        pub prompt_logprobs_from: usize,
    }
}

/// Default maximum number of new tokens.
pub const MAX_NEW_TOKENS: usize = 128;

/// Builds a request for the prompt of a line. Absent keys take their values from `defaults`. Its prompt,
/// conversation, salt and receipt are not used.
pub fn request(
    line: GenerateLine,
    prompt: Prompt,
    defaults: &GenerateLine,
) -> Result<GenerateRequest, ApiError> {
    let defaults = defaults.clone();
    let (keys, options) = (line.keys.or(defaults.keys), line.options);
    let from = keys.prompt_logprobs_from.unwrap_or(0);
    let grammar = if line.grammar.given().is_some() { line.grammar } else { defaults.grammar };
    let mut request = GenerateRequest {
        logprobs: keys.logprobs,
        prompt_logprobs: keys.prompt_logprobs.map(|top| PromptLogprobs { from, top }),
        kv_cache: keys.kv_cache.unwrap_or(true),
        cache_salt: options.cache_salt.unwrap_or_default(),
        adapters: adapters(options.adapter.or(defaults.options.adapter), &[]),
        timeout_s: options.timeout_s.or(defaults.options.timeout_s),
        receipt: receipt::options(options.receipt),
        grammar: grammar.grammar()?.map(|(_, grammar)| grammar),
        ..GenerateRequest::new(prompt, keys.max_new_tokens.unwrap_or(MAX_NEW_TOKENS))
    };
    line.sampling.or(defaults.sampling).apply(&mut request)?;
    Ok(request)
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
    LogprobEntry {
        chosen: token(from.chosen),
        top: from.top.into_iter().map(token).collect(),
        masked_mass: from.masked_mass.map(Finite),
    }
}

fn token(from: redline_engine::TokenLogprob) -> TokenEntry {
    TokenEntry { id: from.id, text: from.text, logprob: Finite(from.logprob) }
}

#[cfg(test)]
mod tests {
    use redline_engine::AdapterChoice;

    use super::*;

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
                logprobs: Some(vec![LogprobEntry {
                    chosen: token.clone(),
                    top: vec![token],
                    masked_mass: None,
                }]),
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

    /// The request of a line.
    fn of_line(json: &str, defaults: &str) -> String {
        let mut line: GenerateLine = serde_json::from_str(json).unwrap();
        let prompt = line.prompt.take().unwrap().into();
        // Compared as text, because requests do not implement `PartialEq`.
        format!("{:#?}", request(line, prompt, &serde_json::from_str(defaults).unwrap()).unwrap())
    }

    #[test]
    fn every_key_of_a_line_reaches_the_request_and_wins_over_the_defaults() {
        let keys = |adapter: &str| {
            format!(
                r#"{{"prompt":[4],"max_new_tokens":2,"top_k":7,"logprobs":6,"prompt_logprobs":8,"prompt_logprobs_from":11,
                "kv_cache":false,"regex":"a+","cache_salt":"tenant","adapter":{adapter},"timeout_s":3,"receipt":true}}"#
            )
        };
        let mut expected = GenerateRequest {
            sampling: redline_engine::Sampling { temperature: 1.0, top_k: 7, ..Default::default() },
            logprobs: Some(6),
            prompt_logprobs: Some(PromptLogprobs { from: 11, top: 8 }),
            kv_cache: false,
            grammar: Some(redline_engine::Grammar::new(redline_engine::GrammarKind::Regex, "a+")),
            cache_salt: "tenant".to_owned(),
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            timeout_s: Some(3.0),
            receipt: Some(redline_engine::ReceiptOptions::default()),
            ..GenerateRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let line = keys(r#"[{"name":"tone","scale":0.5}]"#);
        assert_eq!(of_line(&line, "{}"), format!("{expected:#?}"));
        let others = r#"{"max_new_tokens":9,"top_k":1,"logprobs":1,"prompt_logprobs":1,"prompt_logprobs_from":1,"kv_cache":true,
            "json_schema":{},"adapter":"x","timeout_s":9}"#;
        assert_eq!(of_line(&line, others), format!("{expected:#?}"));
        // A salt and a receipt are asked for by each request.
        (expected.cache_salt, expected.receipt) = (String::new(), None);
        assert_eq!(of_line(r#"{"prompt":[4]}"#, &line), format!("{expected:#?}"));
        let bare = GenerateRequest::new(Prompt::Text("p".to_owned()), MAX_NEW_TOKENS);
        assert_eq!(of_line(r#"{"prompt":"p"}"#, "{}"), format!("{bare:#?}"));
    }
}
