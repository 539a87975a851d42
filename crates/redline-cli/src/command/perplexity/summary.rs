//! Describes the measurement for people.

use redline_api::jsonl::perplexity;
use redline_api::model::LoadedModel;
use redline_engine as engine;
use redline_engine::ComparisonOutcome;
use redline_system::number;

use super::Measured;
use crate::display;

/// The figures, one per line.
pub(super) fn figures(reference: Option<&LoadedModel>, measured: &Measured) -> String {
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
pub(super) fn summary(loaded: &LoadedModel, measured: &Measured) -> String {
    let outcome = measured.model();
    let mut text = format!("{} tokens in {}", outcome.tokens, number::seconds(outcome.compute_s));
    if let Some(rate) = perplexity::tokens_per_s(outcome) {
        text.push_str(&format!(", {rate:.0} tokens/s"));
    }
    if let Measured::Compared(both) = measured {
        text.push_str(&format!(", the reference in {}", number::seconds(both.reference.compute_s)));
    }
    if outcome.cancelled {
        text.push_str(" (cancelled)");
    }
    let threads = loaded.threads();
    text + &display::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}

/// The reference, with the comparison against it.
fn compared<'a>(
    reference: Option<&'a LoadedModel>,
    measured: &'a Measured,
) -> Option<(&'a LoadedModel, &'a ComparisonOutcome)> {
    match (reference, measured) {
        (Some(reference), Measured::Compared(outcome)) => Some((reference, outcome)),
        _ => None,
    }
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
