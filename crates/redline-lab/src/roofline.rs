//! The roofline model: compares work with the limits of the machine.

use redline_engine::ModelInfo;
use redline_kernels::Arithmetic;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::result::Row;
use crate::stats::{Direction, NotFinite, Samples};

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
    /// A pass over `tokens` tokens that attend to `keys` keys in total, with `outputs` rows of logits. Weights are read once.
    pub fn of_pass(info: &ModelInfo, tokens: f64, keys: f64, outputs: f64) -> Self {
        let counts = info.operations;
        Self {
            bytes: info.bytes_per_token as f64,
            operations: counts.per_token * tokens + counts.per_output * outputs,
            attention: counts.per_key * keys,
        }
    }

    /// A pass over a new sequence of `n` tokens with logits for the last token.
    pub fn of_sequence(info: &ModelInfo, n: usize) -> Self {
        Self::of_pass(info, n as f64, keys_seen(0, n), 1.0)
    }
}

/// The total number of keys that `n` tokens attend to, after `stored` earlier tokens.
pub fn keys_seen(stored: usize, n: usize) -> f64 {
    let (stored, n) = (stored as f64, n as f64);
    n * stored + n * (n + 1.0) / 2.0
}

impl Work {
    /// Operations of both kinds.
    pub fn all_operations(&self) -> f64 {
        self.operations + self.attention
    }
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
    fn of(arithmetic: Arithmetic, timed: &[Held<f64>]) -> Result<Option<Self>, NotFinite> {
        let median = |unit: &str, limit: fn(&Limits) -> f64| {
            let readings = timed.iter().map(|t| limit(&t.limits)).collect();
            Samples::new(unit, Direction::Info, readings).map(|samples| samples.median())
        };
        let bandwidth = median("B/s", |l| l.bandwidth)?;
        let peaks = median("OP/s", |l| l.peak)?.zip(median("OP/s", |l| l.attention_peak)?);
        let of = |(bandwidth, (peak, attention_peak))| {
            let arithmetic = Some(arithmetic.name().to_owned());
            Self { bandwidth, peak, attention_peak, arithmetic }
        };
        Ok(bandwidth.zip(peaks).map(of))
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
    fn attention_bounds(&self, work: Work) -> bool {
        work.attention / self.attention_peak > work.operations / self.peak
    }

    /// The minimum number of seconds for the work: the longer of reading and computing.
    pub fn seconds(&self, work: Work) -> f64 {
        (work.bytes / self.bandwidth).max(self.computing(work))
    }
}

/// Adds the work and its limits to a row.
pub fn placed(row: Row, arithmetic: Arithmetic, work: Work, timed: &[Held<f64>]) -> Result<Row, NotFinite> {
    Ok(Row { work: Some(work), ceilings: Ceilings::of(arithmetic, timed)?, ..row })
}

/// Adds to a row the limit that bounds its work in most samples, its readings, the share that was reached, and the values of
/// [`placed`]. `timed` holds the seconds of each sample.
pub fn held(row: Row, arithmetic: Arithmetic, work: Work, timed: &[Held<f64>]) -> Result<Row, NotFinite> {
    let reading = timed.iter().filter(|t| t.limits.reading_bounds(work)).count() * 2 >= timed.len();
    let attention = timed.iter().filter(|t| t.limits.attention_bounds(work)).count() * 2 > timed.len();
    let (name, unit) = if reading {
        ("read_bandwidth".to_owned(), "GB/s")
    } else if attention {
        ("attention_peak".to_owned(), "GOP/s")
    } else {
        (format!("{}_peak", arithmetic.name()), "GOP/s")
    };
    let limit = |t: &Held<f64>| match (reading, attention) {
        (true, _) => t.limits.bandwidth * 1e-9,
        (false, true) => t.limits.attention_peak * 1e-9,
        (false, false) => t.limits.peak * 1e-9,
    };
    let share = timed.iter().map(|t| t.limits.seconds(work) / t.value).collect();
    let share = Samples::new("share", Direction::Info, share)?;
    let limits = Samples::new(unit, Direction::Info, timed.iter().map(limit).collect())?;
    let conditions = timed.iter().map(|t| t.condition).collect();
    let row = row.limit(name, share.median()).conditions(conditions);
    placed(row.metric("share", share).metric("limit", limits), arithmetic, work, timed)
}

#[cfg(test)]
mod tests {
    use redline_engine::OperationCounts;

    use super::*;

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

    #[test]
    fn a_row_names_its_limit_and_share() {
        let timed = |seconds: &[f64]| {
            seconds
                .iter()
                .map(|&value| Held { value, limits: LIMITS, condition: Condition::default() })
                .collect::<Vec<_>>()
        };
        let row =
            |work, seconds: &[f64]| held(Row::new("a"), Arithmetic::Int8, work, &timed(seconds)).unwrap();
        let reading = row(Work { bytes: 1e9, operations: 2e9, attention: 0.0 }, &[0.2, 0.1, 0.4]);
        assert_eq!((reading.limit.as_deref(), reading.share_of_limit), (Some("read_bandwidth"), Some(0.5)));
        let limit = reading.metrics.get("limit").unwrap().samples();
        assert_eq!((limit.unit(), limit.values()), ("GB/s", &[10.0; 3][..]));
        let computing = row(Work { bytes: 1e9, operations: 50e9, attention: 0.0 }, &[0.5]);
        assert_eq!((computing.limit.as_deref(), computing.share_of_limit), (Some("int8_peak"), Some(1.0)));
        assert_eq!(computing.metrics.get("limit").unwrap().samples().values(), [100.0]);
        let attending = row(Work { bytes: 1e9, operations: 25e9, attention: 50e9 }, &[2.5]);
        assert_eq!(
            (attending.limit.as_deref(), attending.share_of_limit),
            (Some("attention_peak"), Some(0.5))
        );
        assert_eq!(attending.metrics.get("limit").unwrap().samples().values(), [50.0]);
        let work = Work { bytes: 1e9, operations: 25e9, attention: 50e9 };
        assert_eq!((attending.work, work.all_operations()), (Some(work), 75e9));
        let ceilings = attending.ceilings.unwrap();
        assert_eq!((ceilings.limits(), ceilings.arithmetic.as_deref()), (LIMITS, Some("int8")));
        assert_eq!(held(Row::new("b"), Arithmetic::F32, work, &[]).unwrap().ceilings, None);
        // Less time than the machine needs means that the accounting is wrong.
        assert!(
            Row { checked: true, ..row(Work { bytes: 1e9, operations: 0.0, attention: 0.0 }, &[0.05]) }
                .invalid()
                .is_some()
        );
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
        let row = |limits: &[Limits]| {
            let timed: Vec<_> = limits
                .iter()
                .map(|&limits| Held { value: 1.0, limits, condition: Condition::default() })
                .collect();
            held(Row::new("a"), Arithmetic::F32, work, &timed).unwrap().limit.unwrap()
        };
        assert_eq!(row(&[LIMITS]), "read_bandwidth", "a tie is one of reading");
        assert_eq!(row(&[reading, computing]), "read_bandwidth");
        assert_eq!(row(&[reading, computing, computing]), "f32_peak");
        assert_eq!(row(&[reading, reading, computing]), "read_bandwidth");
        // The ceilings are the medians of the readings.
        let timed = [3e9, 1e9, 2e9].map(|bandwidth| Held {
            value: 1.0,
            limits: Limits { bandwidth, peak: bandwidth * 10.0, attention_peak: bandwidth * 7.0 },
            condition: Condition::default(),
        });
        let ceilings = held(Row::new("a"), Arithmetic::F32, work, &timed).unwrap().ceilings.unwrap();
        let median = Limits { bandwidth: 2e9, peak: 20e9, attention_peak: 14e9 };
        assert_eq!((ceilings.limits(), ceilings.arithmetic.as_deref()), (median, Some("f32")));
    }

    #[test]
    fn limits_between_two_readings() {
        let other = Limits { bandwidth: 20e9, peak: 300e9, attention_peak: 150e9 };
        assert_eq!(LIMITS.midpoint(other), Limits { bandwidth: 15e9, peak: 200e9, attention_peak: 100e9 });
    }
}
