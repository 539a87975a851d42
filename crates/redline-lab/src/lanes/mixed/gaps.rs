//! The time between neighbouring tokens of streams that decode together.

use crate::stats::{percentile_of, sorted};

/// Gaps between tokens in ms, ascending.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gaps(Vec<f64>);

impl Gaps {
    /// All gaps after every stream had its first token. Takes the times in seconds at which each stream's tokens were
    /// chosen.
    pub(super) fn all(streams: &[Vec<f64>]) -> Self {
        Self::of(streams, |_| true)
    }

    /// The gaps of [`all`](Self::all) that lie within one of the spans `(from, to)`.
    pub(super) fn within(spans: &[(f64, f64)], streams: &[Vec<f64>]) -> Self {
        Self::of(streams, |moment| spans.iter().any(|&(from, to)| (from..to).contains(&moment)))
    }

    /// A gap covers one or more passes. Requests arrive between passes and tokens are chosen after a pass, so the position of
    /// a gap is that of its middle, which is robust against rounding at its ends.
    fn of(streams: &[Vec<f64>], counts: impl Fn(f64) -> bool) -> Self {
        let begun = streams.iter().filter_map(|times| times.first()).copied().fold(0.0, f64::max);
        let pairs = streams.iter().flat_map(|times| times.windows(2));
        let counted = pairs.filter(|pair| {
            let middle = f64::midpoint(pair[0], pair[1]);
            middle > begun && counts(middle)
        });
        Self(sorted(&counted.map(|pair| (pair[1] - pair[0]) * 1e3).collect::<Vec<_>>()))
    }

    #[cfg(test)]
    pub(super) fn of_ms(ascending: &[f64]) -> Self {
        Self(ascending.to_vec())
    }

    pub(super) fn n(&self) -> usize {
        self.0.len()
    }

    pub(super) fn mean(&self) -> Option<f64> {
        (self.n() > 0).then(|| self.0.iter().sum::<f64>() / self.n() as f64)
    }

    /// The percentile `percent` (from 0 to 100), interpolated linearly between neighbours, for any number of gaps; `None`
    /// if there are none.
    pub(super) fn percentile(&self, percent: f64) -> Option<f64> {
        percentile_of(&self.0, percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated() {
        let gaps = Gaps((0..21).map(f64::from).collect());
        let of = |percent| gaps.percentile(percent);
        assert_eq!((of(0.0), of(50.0), of(95.0), of(100.0)), (Some(0.0), Some(10.0), Some(19.0), Some(20.0)));
        assert_eq!(gaps.mean(), Some(10.0));
        assert_eq!(Gaps(vec![1.0, 2.0]).percentile(75.0), Some(1.75));
        assert_eq!(Gaps(vec![7.0]).percentile(95.0), Some(7.0));
        let none = Gaps(Vec::new());
        assert_eq!((none.n(), none.mean(), none.percentile(50.0)), (0, None, None));
    }

    #[test]
    fn gaps_count_once_every_stream_has_begun() {
        // The second stream begins with the third token of the first stream, which waited for it, so that gap does not
        // count.
        let streams = [vec![2.0, 3.0, 4.0, 4.5], vec![4.0, 4.5, 4.75]];
        assert_eq!(Gaps::all(&streams), Gaps(vec![250.0, 500.0, 500.0]));
        assert_eq!(Gaps::all(&streams[..1]), Gaps(vec![500.0, 1000.0, 1000.0]));
        assert_eq!(Gaps::all(&[]).n(), 0);
    }

    #[test]
    fn gaps_count_while_a_prompt_is_under_way() {
        // Prompts from 2 to 4 and from 5 to 8, with a pass between them.
        let streams = [vec![1.0, 2.0, 4.0, 5.0, 8.0, 9.0, 10.0]];
        let prompts = [(2.0, 4.0), (5.0, 8.0)];
        assert_eq!(Gaps::within(&prompts, &streams), Gaps(vec![2000.0, 3000.0]));
        assert_eq!(Gaps::within(&prompts[..1], &streams), Gaps(vec![2000.0]));
        // A prompt that was answered before every stream had begun delays no gap that counts.
        let late = [streams[0].clone(), vec![5.0]];
        assert_eq!(Gaps::within(&prompts[..1], &late).n(), 0);
        assert_eq!(Gaps::within(&[], &streams).n(), 0);
    }
}
