//! Converts the engine's outcome to JSON, and to lines for people.

use redline_engine as engine;
use redline_engine::{ComparisonOutcome, PerplexityOutcome};
use redline_wire::{Against, Estimate, Finite, KlDivergence, Perplexity, PerplexityMeta, Run};

use super::Measured;
use crate::figure;
use crate::model::Loaded;

/// Builds the JSON document.
pub(super) fn document(loaded: &Loaded, reference: Option<&Loaded>, measured: &Measured) -> Perplexity {
    let outcome = measured.model();
    Perplexity {
        object: "perplexity".to_owned(),
        model: loaded.name.clone(),
        perplexity: estimate(outcome.perplexity),
        nll: estimate(outcome.nll),
        tokens: outcome.tokens,
        against: compared(reference, measured).map(|(reference, outcome)| against(reference, outcome)),
        meta: PerplexityMeta {
            windows: outcome.windows,
            window: outcome.window,
            complete: !outcome.cancelled,
            peak_memory_bytes: outcome.peak_memory_bytes,
            run: run(loaded, outcome),
        },
    }
}

/// The reference, with the comparison against it.
fn compared<'a>(
    reference: Option<&'a Loaded>,
    measured: &'a Measured,
) -> Option<(&'a Loaded, &'a ComparisonOutcome)> {
    match (reference, measured) {
        (Some(reference), Measured::Compared(outcome)) => Some((reference, outcome)),
        _ => None,
    }
}

fn against(reference: &Loaded, outcome: &ComparisonOutcome) -> Against {
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

fn estimate(from: engine::Estimate) -> Estimate {
    Estimate { value: Finite(from.value), standard_error: from.standard_error.map(Finite) }
}

fn run(loaded: &Loaded, outcome: &PerplexityOutcome) -> Run {
    let info = loaded.engine.info();
    Run {
        format: info.format.to_string(),
        kv_format: info.kv_format.name().to_owned(),
        kernel_path: outcome.kernel_path.clone(),
        threads: info.threads,
        compute_s: Finite(outcome.compute_s),
        tokens_per_s: tokens_per_s(outcome).map(Finite),
    }
}

fn tokens_per_s(outcome: &PerplexityOutcome) -> Option<f64> {
    (outcome.compute_s > 0.0).then(|| outcome.tokens as f64 / outcome.compute_s)
}

/// The figures, one per line.
pub(super) fn figures(reference: Option<&Loaded>, measured: &Measured) -> String {
    let outcome = measured.model();
    let mut text = format!(
        "perplexity       {}\nmean NLL         {} nats per token\ntokens           {} in {} of {}\n",
        shown(outcome.perplexity, 4),
        shown(outcome.nll, 5),
        outcome.tokens,
        if outcome.windows == 1 { "1 window".to_owned() } else { format!("{} windows", outcome.windows) },
        outcome.window,
    );
    if let Some((reference, outcome)) = compared(reference, measured) {
        let divergence = &outcome.divergence;
        let part = |name, value: Option<f64>| value.map_or_else(String::new, |v| format!(", {name} {v:.3e}"));
        text.push_str(&format!(
            "\nagainst          {} ({})\nits perplexity   {}\nln ratio         {}\nKL divergence    {}{}{}{}\n\
             top-1 agreement  {:.3} %\n",
            reference.name,
            outcome.reference.kernel_path,
            shown(outcome.reference.perplexity, 4),
            shown(divergence.ln_ratio, 6),
            scientific(divergence.kl),
            part("median", divergence.kl_median),
            part("99 % below", divergence.kl_p99),
            part("largest", Some(divergence.kl_max)),
            100.0 * divergence.top1_agreement,
        ));
    }
    text
}

fn shown(estimate: engine::Estimate, digits: usize) -> String {
    let error = estimate.standard_error.map_or_else(String::new, |e| format!(" ± {e:.digits$}"));
    format!("{:.digits$}{error}", estimate.value)
}

fn scientific(estimate: engine::Estimate) -> String {
    let error = estimate.standard_error.map_or_else(String::new, |e| format!(" ± {e:.1e}"));
    format!("{:.3e}{error}", estimate.value)
}

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &Loaded, measured: &Measured) -> String {
    let outcome = measured.model();
    let mut text = format!("{} tokens in {}", outcome.tokens, figure::seconds(outcome.compute_s));
    if let Some(rate) = tokens_per_s(outcome) {
        text.push_str(&format!(", {rate:.0} tokens/s"));
    }
    if let Measured::Compared(both) = measured {
        text.push_str(&format!(", the reference in {}", figure::seconds(both.reference.compute_s)));
    }
    if outcome.cancelled {
        text.push_str(" (cancelled)");
    }
    let threads = loaded.engine.info().threads;
    text + &figure::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_errors_beside_them() {
        let one = engine::Estimate { value: 33.791_64, standard_error: Some(0.25) };
        assert_eq!(shown(one, 4), "33.7916 ± 0.2500");
        assert_eq!(scientific(one), "3.379e1 ± 2.5e-1");
        let alone = engine::Estimate { standard_error: None, ..one };
        assert_eq!((shown(alone, 2), scientific(alone)), ("33.79".to_owned(), "3.379e1".to_owned()));
    }
}
