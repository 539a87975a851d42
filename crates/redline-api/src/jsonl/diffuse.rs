//! `diffuse`: filling the masks of a canvas.

use redline_engine::{DiffuseOutcome, DiffuseRequest, DiffusionPass, Prompt};
use redline_settings::{Algorithm, FinishReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adapter::adapters;
use crate::chat::keys::ChatKeys;
use crate::cost::Usage;
use crate::diffusion::DiffusionKeys;
use crate::error::ApiError;
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::TextOrIds;
use crate::json::named;
use crate::json::parts::with_parts;
use crate::json::text::JsonText;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;
use crate::sampling::SamplingParameters;

/// One request to fill masks, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, remote = "DiffuseLine")]
pub struct DiffuseLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// The text before the masks; it may contain masks itself.
    pub prompt: Option<TextOrIds>,
    /// Number of masks after the prompt.
    pub max_new_tokens: Option<usize>,
    /// A conversation, instead of a prompt: objects with `role` and `content`, which the model's chat template formats.
    pub messages: Option<Vec<JsonText>>,
    /// How tokens are chosen.
    #[serde(skip)]
    pub sampling: SamplingParameters,
    /// The order in which masks are filled.
    #[serde(skip)]
    pub diffusion: DiffusionKeys,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
    /// What concerns the conversation, beside the messages.
    #[serde(skip)]
    pub chat: ChatKeys,
}

with_parts! {
    DiffuseLine {
        sampling: SamplingParameters,
        diffusion: DiffusionKeys,
        options: RequestOptions,
        chat: ChatKeys,
    }
}

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

/// Builds a request for the prompt of a line. Absent keys take their values from `defaults`. Its prompt,
/// conversation, salt and receipt are not used.
pub fn request(
    line: DiffuseLine,
    prompt: Prompt,
    defaults: &DiffuseLine,
) -> Result<DiffuseRequest, ApiError> {
    let defaults = defaults.clone();
    let max_new_tokens = line.max_new_tokens.or(defaults.max_new_tokens).unwrap_or(MAX_NEW_TOKENS);
    let mut request = DiffuseRequest {
        adapters: adapters(line.options.adapter.or(defaults.options.adapter), &[]),
        timeout_s: line.options.timeout_s.or(defaults.options.timeout_s),
        receipt: receipt::options(line.options.receipt),
        ..DiffuseRequest::new(prompt, max_new_tokens)
    };
    line.sampling.or(defaults.sampling).apply_to_canvas(&mut request)?;
    line.diffusion.or(defaults.diffusion).apply(&mut request);
    Ok(request)
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
    use redline_engine::{Algorithm, BlockCache, Sampling};

    use super::*;

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
    fn of_line(json: &str, defaults: &str) -> Result<String, ApiError> {
        let mut line: DiffuseLine = serde_json::from_str(json).unwrap();
        let prompt = line.prompt.take().unwrap().into();
        Ok(format!("{:#?}", request(line, prompt, &serde_json::from_str(defaults).unwrap())?))
    }

    #[test]
    fn every_key_of_a_line_reaches_the_request_and_wins_over_the_defaults() {
        let expected = DiffuseRequest {
            steps: Some(1),
            algorithm: Some(Algorithm::TopkMargin),
            eps: 0.5,
            sampling: Sampling { temperature: 0.75, top_k: 5, top_p: 0.5, seed: 9, ..Sampling::default() },
            alg_temp: 1.0,
            block_length: Some(2),
            cfg_scale: 3.0,
            threshold: Some(0.5),
            cache: BlockCache::Prefix,
            refresh: Some(4),
            stop: vec!["x".into(), "y".into()],
            ignore_eos: true,
            timeout_s: Some(3.0),
            ..DiffuseRequest::new(Prompt::Ids(vec![4]), 2)
        };
        let line = r#"{"prompt":[4],"max_new_tokens":2,"steps":1,"algorithm":"topk-margin","eps":0.5,"temperature":0.75,
            "top_k":5,"top_p":0.5,"seed":9,"alg_temp":1,"block_length":2,"cfg_scale":3,"threshold":0.5,"cache":"prefix",
            "refresh":4,"stop":["x","y"],"ignore_eos":true,"timeout_s":3}"#;
        let others = r#"{"max_new_tokens":16,"steps":8,"algorithm":"origin","eps":0.25,"temperature":0.5,"top_k":3,"top_p":0.75,
            "seed":1,"alg_temp":0.125,"block_length":4,"cfg_scale":1.5,"threshold":0.25,"cache":"dual","refresh":2,"stop":".",
            "ignore_eos":false,"timeout_s":2}"#;
        for (line, defaults) in [(line, "{}"), (line, others), (r#"{"prompt":[4]}"#, line)] {
            assert_eq!(of_line(line, defaults).unwrap(), format!("{expected:#?}"));
        }
        let bare = DiffuseRequest::new(Prompt::Text("p".into()), MAX_NEW_TOKENS);
        assert_eq!(
            of_line(r#"{"prompt":"p","cache":null,"min_p":0,"n":1}"#, "{}").unwrap(),
            format!("{bare:#?}")
        );
        let refused = of_line(r#"{"prompt":"p","min_p":0.5}"#, "{}").unwrap_err().to_string();
        assert_eq!(refused, "`min_p` is not supported by models that fill masks");
    }
}
