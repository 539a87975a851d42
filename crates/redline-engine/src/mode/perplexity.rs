//! Perplexity: the probability of each token of a text given those before it, and the divergence of two models' distributions.
//!
//! The text is run window by window, and a window pass by pass. A window's keys and values may stay in memory between passes, so
//! that two engines can take turns and hold no more logits than one pass produces.

use std::sync::OnceLock;
use std::sync::mpsc::Sender;

use redline_models::adapter::Adapters;

use crate::error::EngineError;
use crate::memory::cache::WindowId;
use crate::mode::sampler::greedy;
use crate::task::logits::Logits;

/// The next pass over a window.
pub(crate) struct EvaluateJob {
    /// The window as the last pass named it; `None` before the first.
    pub(crate) window: Option<WindowId>,
    /// All tokens of the window up to the end of this pass.
    pub(crate) tokens: Vec<u32>,
    /// The adapters of the window.
    pub(crate) adapters: Adapters,
    /// The next token for each of the last tokens, whose logits are evaluated.
    pub(crate) next: Vec<u32>,
    /// Additional results that are wanted.
    pub(crate) wanted: Wanted,
    pub(crate) reply: Sender<Result<Evaluated, EngineError>>,
}

/// Results of a pass besides the likelihoods of the next tokens.
pub(crate) enum Wanted {
    /// Nothing.
    Nothing,
    /// The distributions, written into this memory; as many as a pass evaluates at most.
    Distributions(Distributions),
    /// The divergence of the model's distributions from these.
    Divergence(Distributions),
}

/// Distributions over the vocabulary, one after another: logits and their log-sum-exp.
#[derive(Debug, Default)]
pub(crate) struct Distributions {
    logits: Vec<f32>,
    log_sum_exp: Vec<f64>,
}

/// The result of a pass.
pub(crate) struct Evaluated {
    /// The name of the window for its next pass.
    pub(crate) window: WindowId,
    pub(crate) readings: Readings,
    /// Seconds the pass took.
    pub(crate) seconds: f64,
}

/// Divergence of one distribution from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distance {
    /// KL(reference || model); not finite if either distribution is not.
    pub(crate) kl: f64,
    /// Whether both rank the same token first; `false` if a logit is NaN or the largest is infinite.
    pub(crate) same_top: bool,
}

/// Results from the rows of a pass, in their order.
#[derive(Default)]
pub(crate) struct Readings {
    /// Negative log-likelihood of every token of `next`; not finite if the model's output is not.
    pub(crate) nll: Vec<f64>,
    /// Divergence for every token of `next`, if requested.
    pub(crate) distances: Vec<Distance>,
    /// The requested distributions, or the ones compared with.
    pub(crate) distributions: Distributions,
}

/// Reads the rows of a pass.
pub(crate) struct Reader {
    next: Vec<u32>,
    wanted: Wanted,
    readings: Readings,
}

impl Reader {
    /// Creates a reader for one row per token of `next`.
    pub(crate) fn new(next: Vec<u32>, mut wanted: Wanted) -> Self {
        let distributions = match &mut wanted {
            Wanted::Nothing => Distributions::default(),
            Wanted::Distributions(memory) => std::mem::take(memory).emptied(),
            Wanted::Divergence(distributions) => std::mem::take(distributions),
        };
        let nll = Vec::with_capacity(next.len());
        Self { next, wanted, readings: Readings { nll, distances: Vec::new(), distributions } }
    }

    /// Reads the next rows.
    pub(crate) fn read(&mut self, logits: Logits<'_>, rows: usize) {
        let Readings { nll, distances, distributions } = &mut self.readings;
        let first = nll.len();
        for r in 0..rows {
            let row = logits.row(r);
            let next = self.next[first + r] as usize;
            nll.push(row.log_sum_exp - f64::from(row.logits[next]));
        }
        match self.wanted {
            Wanted::Nothing => {}
            Wanted::Distributions(_) => distributions.push(logits, rows),
            Wanted::Divergence(_) => distributions.distances(first, logits, rows, distances),
        }
    }

    /// Number of rows to read.
    pub(crate) fn rows(&self) -> usize {
        self.next.len()
    }

    /// Returns the results.
    pub(crate) fn into_readings(self) -> Readings {
        self.readings
    }
}

impl Distributions {
    fn emptied(mut self) -> Self {
        self.logits.clear();
        self.log_sum_exp.clear();
        self
    }

    fn push(&mut self, logits: Logits<'_>, rows: usize) {
        for row in (0..rows).map(|r| logits.row(r)) {
            self.logits.extend_from_slice(row.logits);
            self.log_sum_exp.push(row.log_sum_exp);
        }
    }

    /// Appends the divergence of each row from the distributions, starting at index `first`.
    fn distances(&self, first: usize, logits: Logits<'_>, rows: usize, to: &mut Vec<Distance>) {
        let found: Vec<OnceLock<Distance>> = vec![OnceLock::new(); rows];
        let Logits { exec, rows: values, log_sum_exp: sums } = logits;
        exec.team.split(rows, 1, 2, |rows| {
            for r in rows {
                let (logits, log_sum_exp) = (values.row(r), sums[r]);
                let p =
                    (&self.logits[(first + r) * logits.len()..][..logits.len()], self.log_sum_exp[first + r]);
                found[r].get_or_init(|| distance(p, (logits, log_sum_exp)));
            }
        });
        to.extend(found.into_iter().filter_map(OnceLock::into_inner));
    }
}

/// The divergence of Q from P, each given as logits with their log-sum-exp.
///
/// The sum over ids ascending of `p ln(p / q) - p + q`, in f64. With p and q that sum to 1 this is KL(P || Q); every term
/// is at least 0, and an error of the normalisers enters with its square only.
fn distance(p: (&[f32], f64), q: (&[f32], f64)) -> Distance {
    let mut kl = 0.0;
    for (&x, &y) in p.0.iter().zip(q.0) {
        let (ln_p, ln_q) = (f64::from(x) - p.1, f64::from(y) - q.1);
        let (in_p, in_q) = (libm::exp(ln_p), libm::exp(ln_q));
        // The limit of p ln(p / q) for p = 0 is 0.
        kl += if in_p == 0.0 { in_q } else { in_p * (ln_p - ln_q) - in_p + in_q };
    }
    let same_top = greedy(p.0).is_some_and(|top| greedy(q.0) == Some(top));
    // Rounding may make the sum slightly negative.
    Distance { kl: if kl < 0.0 { 0.0 } else { kl }, same_top }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kl(p: &[f32], q: &[f32]) -> Distance {
        let normalised = |x: &[f32]| x.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        distance((p, normalised(p)), (q, normalised(q)))
    }

    #[test]
    fn distances_by_hand() {
        // P = 1/2, 1/4, 1/4 and Q = 1/4, 1/4, 1/2: KL = 1/2 ln 2 + 0 - 1/4 ln 2.
        let (p, q) = ([2f32, 1.0, 1.0].map(f32::ln), [1f32, 1.0, 2.0].map(f32::ln));
        let found = kl(&p, &q);
        assert!((found.kl - 0.25 * 2f64.ln()).abs() < 1e-7 && !found.same_top, "{found:?}");
        assert_eq!(kl(&p, &p), Distance { kl: 0.0, same_top: true });
        // A constant added to all logits changes nothing.
        let moved = p.map(|x| x + 3.0);
        assert!(kl(&p, &moved).kl < 1e-12 && kl(&p, &moved).same_top);
    }

    #[test]
    fn ties_go_to_the_lower_id_and_impossible_tokens_count_nothing() {
        assert!(kl(&[1.0, 1.0, 0.0], &[2.0, 0.0, 2.0]).same_top);
        assert!(!kl(&[1.0, 1.0, 0.0], &[0.0, 2.0, 2.0]).same_top);
        let never = kl(&[0.0, f32::NEG_INFINITY], &[0.0, 0.0]);
        assert!((never.kl - 2f64.ln()).abs() < 1e-12, "{never:?}");
        assert_eq!(kl(&[0.0, 0.0], &[0.0, f32::NEG_INFINITY]).kl, f64::INFINITY);
        assert!(kl(&[0.0, f32::NAN], &[0.0, 0.0]).kl.is_nan());
    }

    #[test]
    fn errors_of_the_normalisers_hardly_enter() {
        let logits = [0.5f32, -1.0, 2.0, 0.0];
        let sum = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
        let found = distance((&logits, sum + 1e-6), (&logits, sum - 1e-6));
        assert!(found.kl < 1e-11, "{found:?}");
    }
}
