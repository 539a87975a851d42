//! `diffuse`: requests and answers.

use std::collections::BTreeMap;

use redline_engine::{DiffuseOutcome, DiffuseRequest, DiffusionPass, Prompt, Sampling};
use redline_settings::{Algorithm, BlockCache, FinishReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adapter::{AdapterNames, adapters};
use crate::chat::keys::{JsonText, chat_keys};
use crate::cost::Usage;
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::{Strings, TextOrIds};
use crate::json::named;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::receipt;
use crate::receipt::document::{ReceiptChoice, ReceiptDocument};

/// One request to fill masks, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffuseLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// The text before the masks; it may contain masks itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<TextOrIds>,
    /// Number of masks after the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Number of steps; default: one per mask. Steps that fill nothing are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// Which masks are filled first.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub algorithm: Option<Algorithm>,
    /// Temperature of the choice between masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alg_temp: Option<f32>,
    /// The final time of Dream's schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f32>,
    /// Sampling temperature; 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Keep the k most probable tokens; 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Keep the smallest set whose probability reaches this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Seed of the random numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Number of masks per block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_length: Option<usize>,
    /// Strength of classifier-free guidance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f32>,
    /// Fill every mask whose token has at least this probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// What is cached within a block.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub cache: Option<BlockCache>,
    /// Number of passes over a block between two passes over the whole canvas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<usize>,
    /// The text ends before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Strings>,
    /// Continue after an end-of-sequence token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_eos: Option<bool>,
    /// The adapters of the request: a name, or a list of names and of objects with `name` and `scale`; `base` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterNames>,
    /// Time limit of the request in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptChoice>,
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

chat_keys!(DiffuseLine);

/// What a request says about the order in which masks are filled. Requests for generated text have these keys, in `diffuse` and over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiffusionKeys {
    /// Number of steps.
    pub steps: Option<usize>,
    /// Which masks are filled first.
    pub algorithm: Option<Algorithm>,
    /// Temperature of the choice between masks.
    pub alg_temp: Option<f32>,
    /// The final time of Dream's schedule.
    pub eps: Option<f32>,
    /// Number of masks per block.
    pub block_length: Option<usize>,
    /// Strength of classifier-free guidance.
    pub cfg_scale: Option<f32>,
    /// Fill every mask whose token has at least this probability.
    pub threshold: Option<f32>,
    /// What is cached within a block.
    pub cache: Option<BlockCache>,
    /// Number of passes over a block between two passes over the whole canvas.
    pub refresh: Option<usize>,
}

impl DiffusionKeys {
    /// The names of the keys.
    pub const NAMES: [&str; 9] = [
        "steps",
        "algorithm",
        "alg_temp",
        "eps",
        "block_length",
        "cfg_scale",
        "threshold",
        "cache",
        "refresh",
    ];

    /// The first key that is given.
    pub fn given(&self) -> Option<&'static str> {
        let Self { steps, algorithm, alg_temp, eps, block_length, cfg_scale, threshold, cache, refresh } =
            self;
        let given = [
            steps.is_some(),
            algorithm.is_some(),
            alg_temp.is_some(),
            eps.is_some(),
            block_length.is_some(),
            cfg_scale.is_some(),
            threshold.is_some(),
            cache.is_some(),
            refresh.is_some(),
        ];
        Self::NAMES.into_iter().zip(given).find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

/// Implements `diffusion_keys` for a request that has them.
macro_rules! diffusion_keys {
    ($request:ty) => {
        impl $request {
            /// The keys that concern the order in which masks are filled.
            pub fn diffusion_keys(&self) -> $crate::jsonl::diffuse::DiffusionKeys {
                $crate::jsonl::diffuse::DiffusionKeys {
                    steps: self.steps,
                    algorithm: self.algorithm,
                    alg_temp: self.alg_temp,
                    eps: self.eps,
                    block_length: self.block_length,
                    cfg_scale: self.cfg_scale,
                    threshold: self.threshold,
                    cache: self.cache,
                    refresh: self.refresh,
                }
            }
        }
    };
}

pub(crate) use diffusion_keys;

diffusion_keys!(DiffuseLine);

/// Answer to a request to fill masks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diffusion {
    /// Always `diffusion`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// One choice.
    pub choices: Vec<DiffusionChoice>,
    /// Token counts.
    pub usage: Usage,
    /// Further details.
    pub meta: DiffusionMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// A filled canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionChoice {
    /// The choice's index, from 0.
    pub index: usize,
    /// The text from the first mask on, up to a stop string.
    pub text: String,
    /// The tokens after the prompt, including an end-of-sequence token.
    pub token_ids: Vec<u32>,
    /// Why the request ended.
    #[serde(with = "named")]
    pub finish_reason: FinishReason,
    /// All tokens of the canvas, if the prompt had masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canvas: Option<Vec<u32>>,
    /// Every pass, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<Vec<DiffusionStep>>,
}

/// A pass over the canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiffusionStep {
    /// The step of the schedule, or the number of the pass if there is no schedule.
    pub step: usize,
    /// The first row that was computed.
    pub from: usize,
    /// The number of rows computed.
    pub rows: usize,
    /// Positions of the masks that were filled.
    pub positions: Vec<usize>,
    /// The tokens filled in, one per position.
    pub token_ids: Vec<u32>,
    /// The confidence of each token.
    pub confidences: Vec<Finite<f64>>,
}

/// Details of an answer besides the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionMeta {
    /// The algorithm that chose the masks.
    #[serde(with = "named")]
    pub algorithm: Algorithm,
    /// Number of forward passes.
    pub passes: usize,
    /// Rows computed, summed over all passes.
    pub computed_tokens: usize,
    /// Filled masks per pass; `null` without a pass.
    pub tokens_per_pass: Option<Finite<f64>>,
    /// Number of masks in the prompt.
    pub prompt_masks: usize,
    /// Number of plan lookups that found no plan, in the passes of this request.
    pub cache_miss_count: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: Finite<f64>,
    /// Seconds from the first pass to the end.
    pub compute_s: Finite<f64>,
    /// Filled masks per second of `compute_s`.
    pub tokens_per_s: Option<Finite<f64>>,
    /// Peak of the bytes allocated by the process while the request ran, including weights; `null` if allocations are not
    /// counted, or if another request ran at the same time.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that were used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Default number of masks after the prompt.
pub const MAX_NEW_TOKENS: usize = 128;

/// Builds a request for the prompt of a line. Absent keys take their values from `defaults`, whose prompt is not used.
pub fn request(line: DiffuseLine, prompt: Prompt, defaults: &DiffuseRequest) -> DiffuseRequest {
    let defaults = with_keys(&line.diffusion_keys(), defaults.clone());
    DiffuseRequest {
        prompt,
        max_new_tokens: line.max_new_tokens.unwrap_or(defaults.max_new_tokens),
        sampling: Sampling {
            temperature: line.temperature.unwrap_or(defaults.sampling.temperature),
            top_k: line.top_k.unwrap_or(defaults.sampling.top_k),
            top_p: line.top_p.unwrap_or(defaults.sampling.top_p),
            seed: line.seed.unwrap_or(defaults.sampling.seed),
            ..defaults.sampling
        },
        stop: line.stop.map_or(defaults.stop, |stop| stop.0),
        ignore_eos: line.ignore_eos.unwrap_or(defaults.ignore_eos),
        adapters: adapters(line.adapter, &defaults.adapters),
        timeout_s: line.timeout_s.or(defaults.timeout_s),
        queueing: redline_engine::Queueing::default(),
        receipt: receipt::options(line.receipt),
        ..defaults
    }
}

/// The request whose masks are filled in the order that these keys ask for. Absent keys change nothing.
pub(crate) fn with_keys(keys: &DiffusionKeys, request: DiffuseRequest) -> DiffuseRequest {
    DiffuseRequest {
        steps: keys.steps.or(request.steps),
        algorithm: keys.algorithm.or(request.algorithm),
        alg_temp: keys.alg_temp.unwrap_or(request.alg_temp),
        eps: keys.eps.unwrap_or(request.eps),
        block_length: keys.block_length.or(request.block_length),
        cfg_scale: keys.cfg_scale.unwrap_or(request.cfg_scale),
        threshold: keys.threshold.or(request.threshold),
        cache: keys.cache.unwrap_or(request.cache),
        refresh: keys.refresh.or(request.refresh),
        ..request
    }
}

/// The parts of a request that the answer repeats.
#[derive(Clone, Copy, Debug)]
pub struct RequestEcho {
    seed: u64,
    trace: bool,
}

impl RequestEcho {
    /// Copies them from a request. `trace` says whether the answer lists the passes.
    pub fn of(request: &DiffuseRequest, trace: bool) -> Self {
        Self { seed: request.sampling.seed, trace }
    }
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, echo: RequestEcho, outcome: &DiffuseOutcome) -> Diffusion {
    Diffusion {
        object: "diffusion".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        choices: vec![DiffusionChoice {
            index: 0,
            text: outcome.text.clone(),
            token_ids: outcome.token_ids.clone(),
            finish_reason: outcome.finish_reason,
            canvas: (outcome.prompt_masks > 0).then(|| outcome.canvas.clone()),
            passes: echo.trace.then(|| outcome.passes.iter().map(diffusion_step).collect()),
        }],
        usage: Usage::new(outcome.prompt_tokens, filled(outcome), 0),
        meta: DiffusionMeta {
            algorithm: outcome.algorithm,
            passes: outcome.passes.len(),
            computed_tokens: outcome.computed_tokens,
            tokens_per_pass: outcome.tokens_per_pass.map(Finite),
            prompt_masks: outcome.prompt_masks,
            cache_miss_count: outcome.plan_misses,
            queue_s: Finite(outcome.queue_s),
            compute_s: Finite(outcome.compute_s),
            tokens_per_s: outcome.tokens_per_s.map(Finite),
            peak_memory_bytes: outcome.peak_memory_bytes,
            kernel_path: outcome.kernel_path.clone(),
            threads: model.threads(),
            seed: echo.seed,
        },
        receipt: receipt::attached(outcome.receipt.clone()),
    }
}

/// Number of masks that were filled.
pub fn filled(outcome: &DiffuseOutcome) -> usize {
    outcome.passes.iter().map(|pass| pass.filled.len()).sum()
}

/// A pass in the form of answers.
pub(crate) fn diffusion_step(pass: &DiffusionPass) -> DiffusionStep {
    DiffusionStep {
        step: pass.step,
        from: pass.rows.start,
        rows: pass.rows.len(),
        positions: pass.filled.iter().map(|filled| filled.position).collect(),
        token_ids: pass.filled.iter().map(|filled| filled.token).collect(),
        confidences: pass.filled.iter().map(|filled| Finite(filled.confidence)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_engine::{Algorithm, BlockCache};

    #[test]
    fn every_key_is_read_and_written() {
        let json = r#"{"prompt":"p","max_new_tokens":5,"steps":4,"algorithm":"topk-margin","alg_temp":0.5,"eps":0.125,
            "temperature":0.5,"top_k":3,"top_p":0.25,"seed":18446744073709551615,"block_length":5,"cfg_scale":1.5,
            "threshold":0.75,"cache":"dual","refresh":2,"stop":["x"],"ignore_eos":true,"timeout_s":1.5}"#;
        let line: DiffuseLine = serde_json::from_str(json).unwrap();
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_value(&line).unwrap(), value);
        let bare: DiffuseLine = serde_json::from_str(r#"{"prompt":[1]}"#).unwrap();
        assert_eq!(serde_json::to_string(&bare).unwrap(), r#"{"prompt":[1]}"#);
    }

    #[test]
    fn every_key_of_the_order_is_found() {
        for key in DiffusionKeys::NAMES {
            let value = match key {
                "algorithm" => "\"origin\"",
                "cache" => "\"none\"",
                "alg_temp" | "eps" | "cfg_scale" | "threshold" => "0.5",
                _ => "1",
            };
            let line: DiffuseLine = serde_json::from_str(&format!("{{\"{key}\":{value}}}")).unwrap();
            assert_eq!(line.diffusion_keys().given(), Some(key));
        }
        let line: DiffuseLine = serde_json::from_str(r#"{"prompt":"p","cache":null}"#).unwrap();
        assert_eq!((line.diffusion_keys().given(), line.diffusion_keys()), (None, DiffusionKeys::default()));
    }

    #[test]
    fn bad_requests_are_named() {
        for (json, expect) in [
            (r#"{"prompt":"p","step":3}"#, "unknown field `step`"),
            (r#"{"prompt":"p","algorithm":"best"}"#, "unknown variant `best`, expected one of `origin`"),
            (r#"{"prompt":"p","cache":"all"}"#, "unknown variant `all`"),
        ] {
            let error = serde_json::from_str::<DiffuseLine>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        }
    }

    /// The request of a line.
    fn of_line(json: &str, defaults: &DiffuseRequest) -> DiffuseRequest {
        let mut line: DiffuseLine = serde_json::from_str(json).unwrap();
        let prompt = line.prompt.take().unwrap().into();
        request(line, prompt, defaults)
    }

    #[test]
    fn a_line_wins_over_the_flags() {
        let flags = DiffuseRequest {
            steps: Some(8),
            algorithm: Some(Algorithm::Origin),
            cache: BlockCache::Dual,
            stop: vec![".".into()],
            ..DiffuseRequest::new(Prompt::Text(String::new()), 16)
        };
        let defaults = flags;
        let line = |json: &str| of_line(json, &defaults);
        let bare = line(r#"{"prompt":"p"}"#);
        assert_eq!(
            (bare.steps, bare.algorithm, bare.cache),
            (Some(8), Some(Algorithm::Origin), BlockCache::Dual)
        );
        assert_eq!((bare.max_new_tokens, bare.stop.len(), bare.prompt), (16, 1, Prompt::Text("p".into())));
        let full = line(
            r#"{"prompt":[4],"max_new_tokens":2,"steps":1,"algorithm":"low-confidence","cache":"none","stop":[],
            "temperature":0.5,"seed":5,"threshold":0.5,"eps":0.5,"alg_temp":1,"block_length":2,"cfg_scale":3,"refresh":4}"#,
        );
        assert_eq!((full.max_new_tokens, full.steps, full.cache), (2, Some(1), BlockCache::None));
        assert_eq!((full.algorithm, full.stop.len()), (Some(Algorithm::LowConfidence), 0));
        assert_eq!((full.sampling.temperature, full.sampling.seed), (0.5, 5));
        assert_eq!((full.threshold, full.eps, full.alg_temp), (Some(0.5), 0.5, 1.0));
        assert_eq!((full.block_length, full.cfg_scale, full.refresh), (Some(2), 3.0, Some(4)));
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let flags = DiffuseRequest {
            steps: Some(8),
            algorithm: Some(Algorithm::Origin),
            eps: 0.25,
            sampling: Sampling {
                temperature: 0.5,
                top_k: 3,
                top_p: 0.75,
                min_p: 0.0,
                typical_p: 1.0,
                seed: 1,
            },
            alg_temp: 0.125,
            block_length: Some(4),
            cfg_scale: 1.5,
            threshold: Some(0.25),
            cache: BlockCache::Dual,
            refresh: Some(2),
            stop: vec![".".into()],
            ignore_eos: true,
            timeout_s: Some(2.0),
            ..DiffuseRequest::new(Prompt::Text("p".into()), 16)
        };
        let defaults = DiffuseRequest { prompt: Prompt::Text(String::new()), ..flags.clone() };
        let line = |json: &str| format!("{:#?}", of_line(json, &defaults));
        assert_eq!(line(r#"{"prompt":"p"}"#), format!("{flags:#?}"));
        // The engine refuses what these algorithms do not have.
        let sampling = Sampling { min_p: 0.5, ..flags.sampling };
        let min_p = DiffuseRequest { sampling, ..flags.clone() };
        assert_eq!(of_line(r#"{"prompt":"p"}"#, &min_p).sampling.min_p, 0.5);
        let naive = DiffuseRequest { savings: false, ..flags.clone() };
        assert!(!of_line(r#"{"prompt":"p"}"#, &naive).savings);
        let keys = DiffuseRequest {
            steps: Some(1),
            algorithm: Some(Algorithm::TopkMargin),
            eps: 0.5,
            sampling: Sampling {
                temperature: 0.75,
                top_k: 5,
                top_p: 0.5,
                min_p: 0.0,
                typical_p: 1.0,
                seed: 9,
            },
            alg_temp: 1.0,
            block_length: Some(2),
            cfg_scale: 3.0,
            threshold: Some(0.5),
            cache: BlockCache::Prefix,
            refresh: Some(4),
            stop: vec!["x".into(), "y".into()],
            ignore_eos: false,
            timeout_s: Some(3.0),
            ..DiffuseRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let json = r#"{"prompt":[4],"max_new_tokens":2,"steps":1,"algorithm":"topk-margin","eps":0.5,"temperature":0.75,
            "top_k":5,"top_p":0.5,"seed":9,"alg_temp":1,"block_length":2,"cfg_scale":3,"threshold":0.5,"cache":"prefix",
            "refresh":4,"stop":["x","y"],"ignore_eos":false,"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
