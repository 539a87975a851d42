//! Converts the engine's outcome to JSON, and to a line for people.

use redline_engine as engine;
use redline_engine::{DiffuseOutcome, DiffuseRequest};
use redline_wire::{Diffusion, DiffusionChoice, DiffusionMeta, DiffusionStep, Finite, Usage};

use crate::command::ending;
use crate::figure;
use crate::model::Loaded;

/// The parts of a request that the answer repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestEcho {
    seed: u64,
    trace: bool,
}

impl RequestEcho {
    /// Of that request.
    pub(super) fn of(request: &DiffuseRequest, trace: bool) -> Self {
        Self { seed: request.sampling.seed, trace }
    }
}

/// Builds the JSON document.
pub(super) fn diffusion(loaded: &Loaded, echo: RequestEcho, outcome: &DiffuseOutcome) -> Diffusion {
    Diffusion {
        object: "diffusion".to_owned(),
        model: loaded.name.clone(),
        choices: vec![DiffusionChoice {
            text: outcome.text.clone(),
            token_ids: outcome.token_ids.clone(),
            finish_reason: outcome.finish_reason,
            canvas: (outcome.prompt_masks > 0).then(|| outcome.canvas.clone()),
            passes: echo.trace.then(|| outcome.passes.iter().map(step).collect()),
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
            threads: loaded.engine.info().threads,
            seed: echo.seed,
        },
    }
}

/// The number of masks filled.
fn filled(outcome: &DiffuseOutcome) -> usize {
    outcome.passes.iter().map(|pass| pass.filled.len()).sum()
}

fn step(pass: &engine::DiffusionPass) -> DiffusionStep {
    DiffusionStep {
        step: pass.step,
        from: pass.rows.start,
        rows: pass.rows.len(),
        positions: pass.filled.iter().map(|filled| filled.position).collect(),
        token_ids: pass.filled.iter().map(|filled| filled.token).collect(),
        confidences: pass.filled.iter().map(|filled| Finite(filled.confidence)).collect(),
    }
}

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &Loaded, outcome: &DiffuseOutcome) -> String {
    let mut text = format!(
        "{} prompt tokens, {} masks filled in {} passes over {} rows, {}",
        outcome.prompt_tokens,
        filled(outcome),
        outcome.passes.len(),
        outcome.computed_tokens,
        figure::seconds(outcome.compute_s),
    );
    if let Some(rate) = outcome.tokens_per_s {
        text.push_str(&format!(", {rate:.1} tokens/s"));
    }
    text.push_str(ending::remark(outcome.finish_reason));
    let threads = loaded.engine.info().threads;
    text + &figure::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}
