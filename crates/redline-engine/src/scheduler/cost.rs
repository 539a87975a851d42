//! A cost model of passes, fitted to the passes so far.
//!
//! Time = a * weights that are read + b * operations of linear layers + c * pairs of token and key: the weights are read once per
//! pass, those of experts if a row goes to them, and everything else grows with the work. The three coefficients minimise the squares
//! of the relative errors, with exponentially smaller weights for older passes. The times of passes without prompts are also recorded
//! by number of rows, as the baseline for the time that prompts add: while prompts keep coming, the fit alone could not separate the
//! two.

use std::collections::BTreeMap;

/// Weight of a pass after the next one has been recorded.
const MEMORY: f64 = 0.98;
/// Weight of the latest pass in the average time of passes without prompts.
const DECODE_ONLY_SHARE: f64 = 0.2;
/// Seconds; shorter passes count as passes of this length.
const SHORTEST: f64 = 1e-6;
/// Number of passes before the fit makes predictions.
const ENOUGH: u32 = 4;

/// The work of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Number of tokens.
    pub(crate) rows: usize,
    /// Number of pairs of a token and a key that it attends to.
    pub(crate) pairs: usize,
    /// Number of rows of logits.
    pub(crate) outputs: usize,
}

impl Work {
    /// The work of running `tokens` tokens after `stored` ones, with `outputs` rows of logits.
    pub(crate) fn of(stored: usize, tokens: usize, outputs: usize) -> Self {
        // Token i attends to everything before it and to itself.
        Self { rows: tokens, pairs: tokens * stored + tokens * (tokens + 1) / 2, outputs }
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            pairs: self.pairs + other.pairs,
            outputs: self.outputs + other.outputs,
        }
    }

    /// The remaining work without a part of it.
    pub(crate) fn without(self, part: Self) -> Self {
        Self {
            rows: self.rows - part.rows,
            pairs: self.pairs - part.pairs,
            outputs: self.outputs - part.outputs,
        }
    }
}

/// The weights that a pass reads, as multiples of those that a pass of one row reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WeightReads {
    /// All experts; 0 without experts.
    pub(crate) experts: f64,
    /// The share of the experts that a single row goes to.
    pub(crate) share: f64,
}

impl WeightReads {
    /// Expected reads of a pass over `rows` rows that choose experts independently of each other.
    fn of(self, rows: usize) -> f64 {
        let read = |rows: f64| self.experts * (1.0 - libm::pow(1.0 - self.share, rows));
        1.0 + read(rows as f64) - read(1.0)
    }
}

/// The cost model. Times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct CostModel {
    /// Cost of a row of logits, in rows of linear layers.
    output_rows: f64,
    reads: WeightReads,
    /// Sums of products of the features (reads, rows, pairs), and of each with the time.
    products: [[f64; 3]; 3],
    times: [f64; 3],
    seen: u32,
    fit: [f64; 3],
    /// Seconds of passes without prompts, by number of rows.
    decode_only: BTreeMap<usize, f64>,
}

impl CostModel {
    /// Creates a model without data. `output_rows` is the number of operations for a row of logits over that for a token's
    /// linear layers.
    pub(crate) fn new(output_rows: f64) -> Self {
        Self {
            output_rows,
            reads: WeightReads::default(),
            products: [[0.0; 3]; 3],
            times: [0.0; 3],
            seen: 0,
            fit: [0.0; 3],
            decode_only: BTreeMap::new(),
        }
    }

    /// The cost model of a machine with experts.
    pub(crate) fn with_reads(self, reads: WeightReads) -> Self {
        Self { reads, ..self }
    }

    /// The features. Pairs are in thousands, so that all three have similar magnitudes.
    fn features(&self, work: Work) -> [f64; 3] {
        [
            self.reads.of(work.rows),
            work.rows as f64 + self.output_rows * work.outputs as f64,
            work.pairs as f64 * 1e-3,
        ]
    }

    /// Records the time of a pass.
    pub(crate) fn learn(&mut self, work: Work, seconds: f64) {
        let x = self.features(work);
        let weight = 1.0 / (seconds.max(SHORTEST) * seconds.max(SHORTEST));
        for i in 0..3 {
            for j in 0..3 {
                self.products[i][j] = MEMORY * self.products[i][j] + weight * x[i] * x[j];
            }
            self.times[i] = MEMORY * self.times[i] + weight * x[i] * seconds;
        }
        self.seen = self.seen.saturating_add(1);
        self.fit = self.solve();
    }

    /// Records the time of a pass without prompts.
    pub(crate) fn learn_decode_only(&mut self, rows: usize, seconds: f64) {
        let known = self.decode_only.entry(rows).or_insert(seconds);
        *known += DECODE_ONLY_SHARE * (seconds - *known);
    }

    /// Predicted time of a pass of `rows` rows without prompts; `None` before there was one.
    pub(crate) fn decode_only_seconds(&self, rows: usize) -> Option<f64> {
        self.decode_only.get(&rows).copied()
    }

    /// Predicted time of a pass; `None` without enough data.
    pub(crate) fn seconds(&self, work: Work) -> Option<f64> {
        let x = self.features(work);
        (self.seen >= ENOUGH).then(|| x.iter().zip(&self.fit).map(|(x, b)| x * b).sum())
    }

    /// Least squares without negative coefficients: a feature whose coefficient would be negative is left out.
    fn solve(&self) -> [f64; 3] {
        let mut used = [true; 3];
        loop {
            let fit = self.solve_over(used);
            let worst = (0..3).filter(|&i| used[i]).min_by(|&i, &j| fit[i].total_cmp(&fit[j]));
            match worst.filter(|&i| fit[i] < 0.0) {
                Some(i) => used[i] = false,
                None => return fit,
            }
        }
    }

    /// Gaussian elimination over the features in use. A small term on the diagonal splits the coefficient of features that are
    /// always proportional.
    fn solve_over(&self, used: [bool; 3]) -> [f64; 3] {
        let mut a = [[0.0; 4]; 3];
        for i in 0..3 {
            if !used[i] {
                a[i][i] = 1.0;
                continue;
            }
            for j in (0..3).filter(|&j| used[j]) {
                a[i][j] = self.products[i][j];
            }
            a[i][i] = a[i][i] * (1.0 + 1e-9) + 1e-12;
            a[i][3] = self.times[i];
        }
        for i in 0..3 {
            for k in i + 1..3 {
                let factor = a[k][i] / a[i][i];
                for j in i..4 {
                    a[k][j] -= factor * a[i][j];
                }
            }
        }
        let mut fit = [0.0; 3];
        for i in (0..3).rev() {
            let known: f64 = (i + 1..3).map(|j| a[i][j] * fit[j]).sum();
            fit[i] = (a[i][3] - known) / a[i][i];
        }
        fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(passes: &[(usize, usize)], time: impl Fn(Work) -> f64) -> CostModel {
        let mut model = CostModel::new(0.25);
        for &(stored, tokens) in passes {
            let work = Work::of(stored, tokens, 1);
            model.learn(work, time(work));
        }
        model
    }

    #[test]
    fn a_linear_machine_is_learnt_exactly() {
        let time = |w: Work| 0.02 + 0.001 * (w.rows as f64 + 0.25 * w.outputs as f64) + 2e-7 * w.pairs as f64;
        let model = taught(&[(0, 100), (100, 1), (500, 8), (0, 512), (2000, 30)], time);
        for (stored, tokens) in [(0, 1), (1000, 64), (10, 300)] {
            let work = Work::of(stored, tokens, 1);
            let found = model.seconds(work).unwrap();
            assert!((found / time(work) - 1.0).abs() < 1e-3, "{found} for {}", time(work));
        }
    }

    #[test]
    fn more_rows_read_more_experts() {
        let reads = WeightReads { experts: 8.0, share: 0.0625 };
        assert_eq!([0, 1, 2].map(|rows| reads.of(rows)), [0.5, 1.0, 1.46875]);
        assert_eq!((reads.of(10_000), WeightReads::default().of(7)), (8.5, 1.0));
        let mut model = CostModel::new(0.0).with_reads(reads);
        let time = |work: Work| 0.02 * reads.of(work.rows) + 0.001 * work.rows as f64;
        for rows in [1, 2, 4, 8, 512, 100, 16] {
            model.learn(Work::of(0, rows, 0), time(Work::of(0, rows, 0)));
        }
        for rows in [3, 6, 32, 300] {
            let (work, found) = (Work::of(0, rows, 0), model.seconds(Work::of(0, rows, 0)).unwrap());
            assert!((found / time(work) - 1.0).abs() < 1e-3, "{rows} rows: {found} for {}", time(work));
        }
    }

    #[test]
    fn it_says_nothing_before_it_has_seen_enough_and_nothing_negative_after() {
        assert_eq!(taught(&[(0, 5), (5, 1), (6, 1)], |_| 1.0).seconds(Work::of(0, 1, 1)), None);
        // Larger passes took less time, but no coefficient may be negative.
        let odd = taught(&[(0, 1), (0, 10), (0, 100), (0, 200), (0, 400)], |w| 1.0 / w.rows as f64);
        assert!(odd.fit.iter().all(|&b| b >= 0.0), "{:?}", odd.fit);
        let still = taught(&[(0, 1), (1, 1), (2, 1), (3, 1)], |_| 0.0);
        assert_eq!(still.seconds(Work::of(100, 100, 1)), Some(0.0));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut model = CostModel::new(0.0);
        let passes = |model: &mut CostModel, rate: f64| {
            for i in 0..600 {
                let work = Work::of(0, 1 + i % 64, 0);
                model.learn(work, rate * work.rows as f64);
            }
        };
        passes(&mut model, 1.0);
        passes(&mut model, 3.0);
        let found = model.seconds(Work::of(0, 64, 0)).unwrap();
        assert!((found / 192.0 - 1.0).abs() < 0.02, "{found}");
    }

    #[test]
    fn short_passes_count_as_much_as_long_ones() {
        // A machine that is not linear: small passes cost more than large ones predict.
        let time = |w: Work| if w.rows < 64 { 0.05 + 0.002 * w.rows as f64 } else { 0.003 * w.rows as f64 };
        let passes: Vec<(usize, usize)> =
            (0..40).map(|i| (0, if i % 4 == 0 { 512 } else { 8 + i % 3 * 8 })).collect();
        let model = taught(&passes, time);
        for rows in [8, 16, 24] {
            let work = Work::of(0, rows, 1);
            let found = model.seconds(work).unwrap();
            assert!((found / time(work) - 1.0).abs() < 0.15, "{rows} rows: {found} for {}", time(work));
        }
    }

    #[test]
    fn passes_without_prompts_are_remembered() {
        let mut model = taught(&[(0, 9), (0, 9), (0, 9), (0, 9)], |_| 1.0);
        assert_eq!(model.decode_only_seconds(8), None);
        model.learn_decode_only(8, 0.25);
        assert_eq!((model.decode_only_seconds(8), model.decode_only_seconds(9)), (Some(0.25), None));
        for _ in 0..100 {
            model.learn_decode_only(8, 0.5);
        }
        assert!((model.decode_only_seconds(8).unwrap() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn pairs_are_counted_by_hand() {
        // Tokens 3 and 4 of a sequence (from 0) see 4 and 5 keys.
        assert_eq!(Work::of(3, 2, 1), Work { rows: 2, pairs: 9, outputs: 1 });
    }
}
