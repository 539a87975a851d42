//! `diffuse`: fills masks.

use redline_engine::{DiffuseOutcome, DiffuseRequest, DiffusionPass, Prompt, Sampling};
use redline_wire::{
    DiffuseLine, Diffusion, DiffusionChoice, DiffusionKeys, DiffusionMeta, DiffusionStep, Finite,
    SchemaVersion, Usage,
};

use crate::adapter::adapters;
use crate::{LoadedModel, receipt};

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
    use redline_engine::{Algorithm, BlockCache};

    use super::*;

    /// The request of a line.
    fn of_line(json: &str, defaults: &DiffuseRequest) -> DiffuseRequest {
        let mut line: DiffuseLine = serde_json::from_str(json).unwrap();
        let prompt = crate::prompt::prompt(line.prompt.take().unwrap());
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
