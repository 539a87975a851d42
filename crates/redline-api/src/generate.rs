//! `generate`: continues a prompt.

use redline_engine as engine;
use redline_engine::{
    AdapterChoice, Continuation, GenerateOutcome, GenerateRequest, Penalties, Prompt, PromptLogprobs,
    Sampling,
};
use redline_wire as wire;
use redline_wire::{CompletionChoice, Finite, GenerateLine, GenerateMeta, SchemaVersion, TextCompletion};

use crate::adapter::adapters;
use crate::{LoadedModel, cost, receipt};

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
    prompt_logprobs: Option<Vec<Option<wire::LogprobEntry>>>,
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

fn position(from: engine::PositionLogprobs) -> wire::LogprobEntry {
    wire::LogprobEntry { chosen: token(from.chosen), top: from.top.into_iter().map(token).collect() }
}

fn token(from: engine::TokenLogprob) -> wire::TokenEntry {
    wire::TokenEntry { id: from.id, text: from.text, logprob: Finite(from.logprob) }
}

#[cfg(test)]
mod tests {
    use redline_engine::AdapterChoice;

    use super::*;

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
        let prompt = crate::prompt::prompt(line.prompt.take().unwrap());
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
