//! The roofline model: compares work with the limits of the machine.

use redline_engine::ModelInfo;
use redline_kernels::Arithmetic;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::stats::{Direction, NotFinite, Samples};

/// The method of reading limits. Rename it when the readings change, because then they cannot steady a comparison of builds.
pub const METHOD: &str = "probe/1";

/// The limits of a machine at some moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes per second that can be read.
    pub bandwidth: f64,
    /// Operations per second in the arithmetic of the weights.
    pub peak: f64,
    /// Operations per second in the arithmetic of attention.
    pub attention_peak: f64,
}

/// The arithmetic that a model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetics {
    /// For weights.
    pub weights: Arithmetic,
    /// For queries with keys, and for probabilities with values; both have equally many operations.
    pub attention: [Arithmetic; 2],
}

impl Arithmetics {
    /// The arithmetic of a model.
    pub fn of(info: &ModelInfo) -> Self {
        Self { weights: info.format.arithmetic(), attention: info.kv_format.arithmetics() }
    }

    /// The arithmetic of a single linear layer.
    pub fn of_weights(weights: Arithmetic) -> Self {
        Self { weights, attention: [weights; 2] }
    }
}

/// The minimum work of a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes to read.
    pub bytes: f64,
    /// Operations on weights; a multiplication and an addition count as two.
    pub operations: f64,
    /// Operations of attention: queries with keys, and probabilities with values.
    pub attention: f64,
}

impl Work {
    /// A pass over `tokens` tokens that attend to `keys` keys in total, with `outputs` rows of logits. Weights are read once, those of
    /// experts if a token is expected to go to them.
    pub fn of_pass(info: &ModelInfo, tokens: f64, keys: f64, outputs: f64) -> Self {
        let counts = info.operations;
        let more = info.experts.map_or(0.0, |experts| experts.read_bytes(tokens) - experts.read_bytes(1.0));
        Self {
            bytes: info.bytes_per_token as f64 + more,
            operations: counts.per_token * tokens + counts.per_output * outputs,
            attention: counts.per_key * keys,
        }
    }

    /// A pass over a new sequence of `n` tokens with logits for the last token.
    pub fn of_sequence(info: &ModelInfo, n: usize) -> Self {
        Self::of_pass(info, n as f64, keys_seen(0, n), 1.0)
    }

    /// Operations of both kinds.
    pub fn all_operations(&self) -> f64 {
        self.operations + self.attention
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::default(), |sum, work| Self {
            bytes: sum.bytes + work.bytes,
            operations: sum.operations + work.operations,
            attention: sum.attention + work.attention,
        })
    }
}

/// The total number of keys that `n` tokens attend to, after `stored` earlier tokens.
pub fn keys_seen(stored: usize, n: usize) -> f64 {
    let (stored, n) = (stored as f64, n as f64);
    n * stored + n * (n + 1.0) / 2.0
}

/// The limits of a case, as stored with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes per second that could be read.
    pub bandwidth: f64,
    /// Operations per second in the arithmetic of the weights.
    pub peak: f64,
    /// Operations per second in the arithmetic of attention.
    pub attention_peak: f64,
    /// The arithmetic of the weights.
    pub arithmetic: Option<String>,
}

impl Ceilings {
    /// The medians of the readings around the samples; `None` without samples.
    pub(crate) fn of(arithmetic: Arithmetic, timed: &[Held<f64>]) -> Result<Option<Self>, NotFinite> {
        let median = |limit: fn(&Limits) -> f64| {
            let readings = timed.iter().map(|t| limit(&t.limits)).collect();
            Samples::new("", Direction::Info, readings).map(|samples| samples.median())
        };
        let peaks = median(|l| l.peak)?.zip(median(|l| l.attention_peak)?);
        let of = |(bandwidth, (peak, attention_peak))| {
            let arithmetic = Some(arithmetic.name().to_owned());
            Self { bandwidth, peak, attention_peak, arithmetic }
        };
        Ok(median(|l| l.bandwidth)?.zip(peaks).map(of))
    }

    /// Converts to limits.
    pub fn limits(&self) -> Limits {
        Limits { bandwidth: self.bandwidth, peak: self.peak, attention_peak: self.attention_peak }
    }
}

/// A sample with the limits around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held<T> {
    /// What was measured.
    pub value: T,
    /// The midpoint of the readings before and after it.
    pub limits: Limits,
    /// The conditions of the sample.
    pub condition: Condition,
}

impl<T> Held<T> {
    /// The same limits and conditions with another value.
    pub fn with<U>(&self, value: U) -> Held<U> {
        Held { value, limits: self.limits, condition: self.condition }
    }
}

impl Limits {
    /// The mean of two readings.
    pub fn midpoint(self, other: Self) -> Self {
        Self {
            bandwidth: f64::midpoint(self.bandwidth, other.bandwidth),
            peak: f64::midpoint(self.peak, other.peak),
            attention_peak: f64::midpoint(self.attention_peak, other.attention_peak),
        }
    }

    /// The minimum number of seconds for computing.
    pub fn computing(&self, work: Work) -> f64 {
        work.operations / self.peak + work.attention / self.attention_peak
    }

    /// Whether reading takes longer than computing.
    pub fn reading_bounds(&self, work: Work) -> bool {
        work.bytes / self.bandwidth >= self.computing(work)
    }

    /// Whether attention takes longer to compute than the weights.
    pub(crate) fn attention_bounds(&self, work: Work) -> bool {
        work.attention / self.attention_peak > work.operations / self.peak
    }

    /// The minimum number of seconds for the work: the longer of reading and computing.
    pub fn seconds(&self, work: Work) -> f64 {
        (work.bytes / self.bandwidth).max(self.computing(work))
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{ExpertCounts, OperationCounts};

    use super::*;
    use crate::result::{Row, held};

    const LIMITS: Limits = Limits { bandwidth: 10e9, peak: 100e9, attention_peak: 50e9 };

    #[test]
    fn the_slower_of_reading_and_computing_bounds() {
        let decode = Work { bytes: 1e9, operations: 2e9, attention: 0.0 };
        assert!(LIMITS.reading_bounds(decode));
        assert_eq!(LIMITS.seconds(decode), 0.1);
        let prefill = Work { bytes: 1e9, operations: 50e9, attention: 0.0 };
        assert!(!LIMITS.reading_bounds(prefill));
        assert_eq!(LIMITS.seconds(prefill), 0.5);
        assert_eq!(LIMITS.seconds(Work { attention: 25e9, ..prefill }), 1.0);
    }

    /// A row with a sample of one second at each of these limits.
    fn row_at(work: Work, limits: &[Limits]) -> Row {
        let timed = limits.iter().map(|&limits| Held { value: 1.0, limits, condition: Condition::default() });
        held(Row::new("a"), Arithmetic::F32, work, &timed.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_row_names_its_limit_and_share() {
        let work = |operations, attention| Work { bytes: 1e9, operations, attention };
        let row = |work, seconds: &[f64]| {
            let timed =
                seconds.iter().map(|&value| Held { value, limits: LIMITS, condition: Condition::default() });
            held(Row::new("a"), Arithmetic::Int8, work, &timed.collect::<Vec<_>>()).unwrap()
        };
        for (row, name, share, unit, readings) in [
            (row(work(2e9, 0.0), &[0.2, 0.1, 0.4]), "read_bandwidth", 0.5, "GB/s", &[10.0; 3][..]),
            (row(work(50e9, 0.0), &[0.5]), "int8_peak", 1.0, "GOP/s", &[100.0]),
            (row(work(25e9, 50e9), &[2.5]), "attention_peak", 0.5, "GOP/s", &[50.0]),
        ] {
            assert_eq!((row.limit.as_deref(), row.share_of_limit), (Some(name), Some(share)));
            let limit = row.samples_of("limit").unwrap();
            assert_eq!((limit.unit(), limit.values()), (unit, readings));
        }
        let attending = row(work(25e9, 50e9), &[2.5]);
        assert_eq!((attending.work, work(25e9, 50e9).all_operations()), (Some(work(25e9, 50e9)), 75e9));
        let ceilings = attending.ceilings.unwrap();
        assert_eq!((ceilings.limits(), ceilings.arithmetic.as_deref()), (LIMITS, Some("int8")));
        assert_eq!(row_at(work(25e9, 50e9), &[]).ceilings, None);
        // Less time than the machine needs means that the accounting is wrong.
        assert!(Row { checked: true, ..row(work(0.0, 0.0), &[0.05]) }.invalid().is_some());
    }

    #[test]
    fn a_token_sees_itself_and_all_before_it() {
        // 1 + 2 + 3, and after four stored tokens 5 + 6 + 7.
        assert_eq!((keys_seen(0, 3), keys_seen(4, 3)), (6.0, 18.0));
        assert_eq!((keys_seen(9, 0), keys_seen(9, 1)), (0.0, 10.0));
    }

    #[test]
    fn work_counts_tokens_keys_and_outputs_apart() {
        let info = ModelInfo {
            format: redline_kernels::Format::W8 { group: 128 },
            kv_format: redline_kernels::op::kv::KvFormat::Bf16,
            operations: OperationCounts { per_token: 7.0, per_key: 11.0, per_output: 100.0 },
            ..crate::lanes::tests::info()
        };
        let work = Work { bytes: 1000.0, operations: 7.0 * 3.0 + 100.0 * 2.0, attention: 11.0 * 5.0 };
        assert_eq!(Work::of_pass(&info, 3.0, 5.0, 2.0), work);
        // Two rows go to a quarter of the experts each, and share a quarter of these.
        let experts = Some(ExpertCounts { bytes: 640, share: 0.25 });
        let sparse = ModelInfo { experts, ..info.clone() };
        let bytes = |tokens| Work::of_pass(&sparse, tokens, 5.0, 2.0).bytes;
        assert_eq!((bytes(1.0), bytes(2.0)), (1000.0, 1120.0));
        // A new sequence has logits for its last token only.
        assert_eq!(Work::of_sequence(&info, 3), Work::of_pass(&info, 3.0, 6.0, 1.0));
        let arithmetics = Arithmetics::of(&info);
        assert_eq!(arithmetics.weights, info.format.arithmetic());
        assert_eq!(arithmetics.attention, info.kv_format.arithmetics());
    }

    #[test]
    fn the_limit_of_most_samples_is_the_rows() {
        let work = Work { bytes: 1e9, operations: 10e9, attention: 0.0 };
        // At 10 GB/s and 100 GOP/s both take 0.1 s. Slower memory or slower arithmetic becomes the bound.
        let reading = Limits { bandwidth: 5e9, ..LIMITS };
        let computing = Limits { peak: 50e9, ..LIMITS };
        let row = |limits: &[Limits]| row_at(work, limits).limit.unwrap();
        assert_eq!(row(&[LIMITS]), "read_bandwidth", "a tie is one of reading");
        assert_eq!(row(&[reading, computing]), "read_bandwidth");
        assert_eq!(row(&[reading, computing, computing]), "f32_peak");
        assert_eq!(row(&[reading, reading, computing]), "read_bandwidth");
        // The ceilings are the medians of the readings.
        let readings = [3e9, 1e9, 2e9].map(|bandwidth| Limits {
            bandwidth,
            peak: bandwidth * 10.0,
            attention_peak: bandwidth * 7.0,
        });
        let ceilings = row_at(work, &readings).ceilings.unwrap();
        let median = Limits { bandwidth: 2e9, peak: 20e9, attention_peak: 14e9 };
        assert_eq!((ceilings.limits(), ceilings.arithmetic.as_deref()), (median, Some("f32")));
    }

    #[test]
    fn limits_between_two_readings() {
        let other = Limits { bandwidth: 20e9, peak: 300e9, attention_peak: 150e9 };
        assert_eq!(LIMITS.midpoint(other), Limits { bandwidth: 15e9, peak: 200e9, attention_peak: 100e9 });
    }

    #[test]
    fn attention_must_bound_most_samples() {
        let work = Work { bytes: 1e6, operations: 10e9, attention: 10e9 };
        let quick = Limits { attention_peak: 200e9, ..LIMITS };
        let limit = |limits: &[Limits]| row_at(work, limits).limit.unwrap();
        assert_eq!(limit(&[LIMITS, quick]), "f32_peak", "a tie is one of the weights");
        assert_eq!(limit(&[LIMITS, quick, LIMITS]), "attention_peak");
    }

    #[test]
    fn weights_bound_what_takes_as_long_in_attention() {
        // One second of operations on weights, and one of attention.
        let row = row_at(Work { bytes: 1e9, operations: 100e9, attention: 50e9 }, &[LIMITS]);
        assert_eq!((row.limit.as_deref(), row.share_of_limit), (Some("f32_peak"), Some(2.0)));
    }
}
