//! Means and quantiles of values per token. Sums run in the order of the tokens.

use crate::answer::outcome::{Divergence, Estimate};

/// The mean of at least one value, and its standard error.
pub(crate) fn mean(values: &[f64]) -> Estimate {
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - value) * (x - value)).sum();
    Estimate { value, standard_error: (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt()) }
}

/// The perplexity for a mean negative log-likelihood.
pub(crate) fn perplexity(nll: Estimate) -> Estimate {
    let value = libm::exp(nll.value);
    Estimate { value, standard_error: nll.standard_error.map(|error| value * error) }
}

/// Median and 99th percentile, if there are enough values, and the largest value.
pub(crate) fn quantiles(values: &[f64]) -> (Option<f64>, Option<f64>, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    // The smallest value that `percent` of 100 values do not exceed.
    let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
    let enough = sorted.len() >= Divergence::ENOUGH;
    (enough.then(|| rank(50)), enough.then(|| rank(99)), sorted.last().copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_their_errors() {
        assert_eq!(mean(&[2.5]), Estimate { value: 2.5, standard_error: None });
        // Deviations -2, 0, 2: variance 8 / 2, and its square root over the root of 3.
        let three = mean(&[1.0, 3.0, 5.0]);
        assert_eq!(three.value, 3.0);
        assert!((three.standard_error.unwrap() - (4.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!(mean(&[7.0; 10]).standard_error, Some(0.0));
        let two = perplexity(Estimate { value: 2f64.ln(), standard_error: Some(0.25) });
        assert!((two.value - 2.0).abs() < 1e-15 && (two.standard_error.unwrap() - 0.5).abs() < 1e-15);
        assert_eq!(perplexity(Estimate { value: 0.0, standard_error: None }).standard_error, None);
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let mut values: Vec<f64> = (1..=200).map(f64::from).collect();
        values.reverse();
        assert_eq!(quantiles(&values), (Some(100.0), Some(198.0), 200.0));
        assert_eq!(quantiles(&values[..100]), (Some(150.0), Some(199.0), 200.0));
        assert_eq!(quantiles(&values[..99]), (None, None, 200.0));
        assert_eq!(quantiles(&[3.0]), (None, None, 3.0));
    }
}
