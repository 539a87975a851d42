//! `perplexity`: how well a model predicts a text, and how far it differs from another model.

use redline_engine::{ComparisonOutcome, Estimate, PerplexityOutcome};
use redline_wire::{
    Against, Finite, KlDivergence, Perplexity, PerplexityEstimate, PerplexityMeta, PerplexityRun,
    SchemaVersion,
};

use crate::LoadedModel;

/// Builds the JSON document of the answer for one model.
pub fn answer(model: &LoadedModel, outcome: &PerplexityOutcome) -> Perplexity {
    Perplexity {
        object: "perplexity".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        perplexity: estimate(outcome.perplexity),
        nll: estimate(outcome.nll),
        tokens: outcome.tokens,
        against: None,
        meta: PerplexityMeta {
            windows: outcome.windows,
            window: outcome.window,
            complete: !outcome.cancelled,
            peak_memory_bytes: outcome.peak_memory_bytes,
            run: run(model, outcome),
        },
    }
}

/// Builds the JSON document of the answer for a model that was compared with a reference.
pub fn comparison(model: &LoadedModel, reference: &LoadedModel, outcome: &ComparisonOutcome) -> Perplexity {
    Perplexity { against: Some(against(reference, outcome)), ..answer(model, &outcome.model) }
}

fn against(reference: &LoadedModel, outcome: &ComparisonOutcome) -> Against {
    let divergence = &outcome.divergence;
    Against {
        model: reference.name.clone(),
        perplexity: estimate(outcome.reference.perplexity),
        nll: estimate(outcome.reference.nll),
        kl_divergence: KlDivergence {
            mean: estimate(divergence.kl),
            median: divergence.kl_median.map(Finite),
            p99: divergence.kl_p99.map(Finite),
            max: Finite(divergence.kl_max),
        },
        top1_agreement: Finite(divergence.top1_agreement),
        ln_ratio: estimate(divergence.ln_ratio),
        run: run(reference, &outcome.reference),
    }
}

fn estimate(from: Estimate) -> PerplexityEstimate {
    PerplexityEstimate { value: Finite(from.value), standard_error: from.standard_error.map(Finite) }
}

fn run(model: &LoadedModel, outcome: &PerplexityOutcome) -> PerplexityRun {
    let info = model.engine.info();
    PerplexityRun {
        format: info.format.to_string(),
        kv_format: info.kv_format.name().to_owned(),
        kernel_path: outcome.kernel_path.clone(),
        threads: info.threads,
        compute_s: Finite(outcome.compute_s),
        tokens_per_s: tokens_per_s(outcome).map(Finite),
    }
}

/// Tokens per second of computation; `None` if no time was measured.
pub fn tokens_per_s(outcome: &PerplexityOutcome) -> Option<f64> {
    (outcome.compute_s > 0.0).then(|| outcome.tokens as f64 / outcome.compute_s)
}
