//! What a format of keys and values costs in quality: the perplexity of a text, compared with that over f32 keys and values.

use redline_engine::{Cancel, ComparisonOutcome, PerplexityRequest, Prompt};
use redline_kernels::op::kv::KvFormat;

use crate::bench::requests::Prompts;
use crate::bench::{BenchModel, Result, Setup};

/// The perplexity of a text over keys and values of one format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quality {
    pub(super) perplexity: f64,
    /// The perplexity minus that over f32 keys and values.
    pub(super) delta: f64,
    /// Its standard error, from the differences token by token; `None` for a single token.
    pub(super) error: Option<f64>,
    /// The difference in percent of the perplexity over f32 keys and values.
    pub(super) percent: f64,
    /// Tokens that were predicted.
    pub(super) tokens: usize,
    /// Tokens of a window: the whole context, if the text is as long.
    pub(super) window: usize,
}

/// The quality of formats with a model.
pub(super) struct Qualities {
    /// The name of the model.
    pub(super) model: String,
    /// One for each format.
    pub(super) formats: Vec<Quality>,
}

/// The quality of each format, over the first `tokens` tokens of the model's text, or all of it.
pub(super) fn qualities<const N: usize>(
    model: &BenchModel<'_>,
    formats: [KvFormat; N],
    threads: usize,
    tokens: Option<usize>,
) -> Result<Qualities> {
    let load = |format| (model.load)(Setup { kv_format: Some(format), ..Setup::new(threads) });
    let reference = load(KvFormat::F32)?;
    let info = reference.info();
    let text = Prompts::new(&reference, Some(model.text))?;
    let all = text.length(0);
    let ids = text.ids(tokens.map_or(all, |tokens| tokens.min(all)), 0, info.vocab);
    let window = Some(info.context.min(ids.len()));
    let quality = |format| {
        let request = PerplexityRequest { text: Prompt::Ids(ids.clone()), window, adapters: Vec::new() };
        Ok(Quality::of(&load(format)?.compare(&reference, request, &Cancel::new())?))
    };
    let formats = formats.into_iter().map(quality).collect::<Result<_>>()?;
    Ok(Qualities { model: info.name.clone(), formats })
}

impl Quality {
    fn of(outcome: &ComparisonOutcome) -> Self {
        let (own, reference) = (outcome.model.perplexity.value, outcome.reference.perplexity.value);
        Self {
            perplexity: own,
            delta: own - reference,
            // To first order, because the derivative of e^x is e^x.
            error: outcome.divergence.ln_ratio.standard_error.map(|error| own * error),
            percent: 100.0 * (own / reference - 1.0),
            tokens: outcome.model.tokens,
            window: outcome.model.window,
        }
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{Divergence, Estimate, PerplexityOutcome};

    use super::*;

    #[test]
    fn a_difference_is_told_in_points_and_in_percent() {
        let estimate = |value| Estimate { value, standard_error: Some(0.25) };
        let outcome = |perplexity, kernel_path: &str| PerplexityOutcome {
            perplexity: estimate(perplexity),
            nll: estimate(1.0),
            tokens: 7,
            windows: 2,
            window: 4,
            cancelled: false,
            compute_s: 1.0,
            peak_memory_bytes: None,
            kernel_path: kernel_path.to_owned(),
        };
        let ln_ratio = Estimate { value: 0.1, standard_error: Some(0.01) };
        let divergence = Divergence {
            kl: estimate(0.0),
            kl_median: None,
            kl_p99: None,
            kl_max: 0.0,
            top1_agreement: 1.0,
            ln_ratio,
        };
        let (model, reference) = (outcome(44.0, "w8"), outcome(40.0, "f32"));
        let quality = Quality::of(&ComparisonOutcome { model, reference, divergence });
        assert_eq!((quality.perplexity, quality.delta), (44.0, 4.0));
        assert!((quality.percent - 10.0).abs() < 1e-9 && quality.error == Some(0.44), "{quality:?}");
        assert_eq!((quality.tokens, quality.window), (7, 4));
    }
}
