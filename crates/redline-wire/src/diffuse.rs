//! `diffuse`: requests and answers.

use serde::{Deserialize, Serialize};

use crate::finite::Finite;
use crate::generate::FinishReason;
use crate::input::{Strings, TextOrIds};
use crate::usage::Usage;

/// One request to fill masks, as a line of JSON Lines input. A key that is absent takes the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffuseLine {
    /// What stands before the masks; may hold masks itself.
    pub prompt: TextOrIds,
    /// Masks behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Steps, at most one per mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// Which masks are filled first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<DiffusionAlgorithm>,
    /// Temperature of the choice among masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alg_temp: Option<f32>,
    /// Dream's last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f32>,
    /// 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Keep the k most probable tokens; 0 keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Keep the smallest set whose probability reaches this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Keys the random numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Masks of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_length: Option<usize>,
    /// Classifier-free guidance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f32>,
    /// Every mask whose token is at least so probable is filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// What is not computed again within a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiffusionCache>,
    /// Passes of a block after which one over all comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<usize>,
    /// The text ends before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Strings>,
    /// Go on behind an end-of-sequence token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_eos: Option<bool>,
    /// Seconds that the request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
}

/// Which masks are filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffusionAlgorithm {
    /// Each at random.
    Origin,
    /// Those whose token is most probable.
    MaskgitPlus,
    /// Those whose token is furthest ahead of the next one.
    TopkMargin,
    /// Those whose distribution has the least entropy.
    Entropy,
    /// Those whose token is most probable, block by block.
    LowConfidence,
    /// Any, block by block.
    Random,
}

/// What is not computed again within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffusionCache {
    /// Everything is.
    None,
    /// What stands before it.
    Prefix,
    /// Everything but the block.
    Dual,
}

/// Answer to a request to fill masks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diffusion {
    /// Always `diffusion`.
    pub object: String,
    /// The model's name.
    pub model: String,
    /// One choice.
    pub choices: Vec<DiffusionChoice>,
    /// Token counts.
    pub usage: Usage,
    /// Everything else.
    pub meta: DiffusionMeta,
}

/// A canvas that was filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionChoice {
    /// From the first mask on, up to a stop string.
    pub text: String,
    /// The tokens behind the prompt, an end-of-sequence token included.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// All tokens, where the prompt had masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canvas: Option<Vec<u32>>,
    /// Every pass, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<Vec<DiffusionStep>>,
}

/// A pass over the canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionStep {
    /// The step of the schedule; where there is none, the number of the pass.
    pub step: usize,
    /// The first row that was run.
    pub from: usize,
    /// How many were.
    pub rows: usize,
    /// Positions of the masks that it filled.
    pub positions: Vec<usize>,
    /// What they became.
    pub token_ids: Vec<u32>,
    /// How sure that was.
    pub confidences: Vec<Finite<f64>>,
}

/// What an answer says besides the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionMeta {
    /// Which masks were filled first.
    pub algorithm: DiffusionAlgorithm,
    /// Forward passes.
    pub passes: usize,
    /// Rows that were run, all passes together.
    pub computed_tokens: usize,
    /// Masks that were filled per pass; `null` without a pass.
    pub tokens_per_pass: Option<Finite<f64>>,
    /// Masks of the prompt.
    pub prompt_masks: usize,
    /// Plans that were not there for passes it took part in.
    pub cache_miss_count: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: Finite<f64>,
    /// Seconds from there to its end.
    pub compute_s: Finite<f64>,
    /// Masks that were filled, per second of `compute_s`.
    pub tokens_per_s: Option<Finite<f64>>,
    /// Most bytes that the process had allocated while the request ran, weights included; `null` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Keys the random numbers.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn bad_requests_are_named() {
        for (json, expect) in [
            (r#"{"prompt":"p","step":3}"#, "unknown field `step`"),
            (r#"{"prompt":"p","algorithm":"best"}"#, "unknown variant `best`, expected one of `origin`"),
            (r#"{"prompt":"p","cache":"all"}"#, "unknown variant `all`"),
            (r#"{"steps":3}"#, "missing field `prompt`"),
        ] {
            let error = serde_json::from_str::<DiffuseLine>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        }
    }
}
