//! Statistics of raw samples: location, spread, and percentiles, which are defined only with enough samples.

mod shape;
mod stored;
pub mod student;

use serde::{Deserialize, Serialize};

/// The direction in which a number improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Lower is better: times, bytes.
    Lower,
    /// Higher is better: rates.
    Higher,
    /// Neither: reported but not judged.
    Info,
}

impl Direction {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Info => "info",
        }
    }
}

/// A sample that is not finite.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("sample {index} is {value}, which cannot be measured")]
pub struct NotFinite {
    /// Its index among the samples.
    pub index: usize,
    /// NaN or an infinity.
    pub value: f64,
}

/// Raw values of one quantity by process, in the order they were taken: finite, possibly empty.
///
/// Values of one process share its memory layout, so the processes are the exchangeable units. The
/// [`headline`](Self::headline) takes this into account; every other statistic treats all values alike. A statistic is
/// `None` if it is not defined: all of them without samples, the standard deviation below two samples, a relative
/// spread around 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "stored::Stored")]
pub struct Samples {
    unit: String,
    direction: Direction,
    values: Vec<f64>,
    sorted: Vec<f64>,
    /// The end in `values` of each process that has values.
    ends: Vec<usize>,
    /// The number of each of these processes, from 0.
    numbers: Vec<usize>,
}

/// A 95 % confidence interval, with the method that computed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The method, as named in `results.csv`.
    pub method: &'static str,
}

/// A percentile with a confidence interval of at least 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// The estimate, interpolated linearly between neighbouring samples.
    pub value: f64,
    /// Lower end of the interval, which is a sample.
    pub low: f64,
    /// Upper end of the interval, which is a sample.
    pub high: f64,
}

impl Samples {
    /// Creates samples of a single process, in the order they were measured; NaN and infinities are errors.
    pub fn new(unit: impl Into<String>, direction: Direction, values: Vec<f64>) -> Result<Self, NotFinite> {
        Self::by_process(unit, direction, &[values])
    }

    /// Creates samples of several processes. One without values counts for no statistic, and the others keep their numbers.
    pub fn by_process(
        unit: impl Into<String>,
        direction: Direction,
        processes: &[Vec<f64>],
    ) -> Result<Self, NotFinite> {
        let values = processes.concat();
        if let Some(index) = values.iter().position(|v| !v.is_finite()) {
            return Err(NotFinite { index, value: values[index] });
        }
        let sorted = sorted(&values);
        let (mut ends, mut numbers): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (number, process) in processes.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            ends.push(ends.last().copied().unwrap_or(0) + process.len());
            numbers.push(number);
        }
        Ok(Self { unit: unit.into(), direction, values, sorted, ends, numbers })
    }

    /// The unit of the values.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The direction in which the quantity improves.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The values in the order they were taken.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The number of each process that has values, from 0.
    pub fn process_numbers(&self) -> &[usize] {
        &self.numbers
    }

    /// The values of each process that has any.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        let begin = |process: usize| process.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends.iter().enumerate().map(move |(process, &end)| &self.values[begin(process)..end])
    }

    /// The median of each process.
    pub fn process_medians(&self) -> Vec<f64> {
        self.processes().filter_map(median).collect()
    }

    /// The headline value: the median of the medians of the processes.
    pub fn headline(&self) -> Option<f64> {
        median(&self.process_medians())
    }

    /// A confidence interval for the headline. With several processes: Student's t over the logarithms of their
    /// medians, which must be positive. With one process: order statistics of its median, from 6 values on.
    pub fn interval(&self) -> Option<Interval> {
        if self.ends.len() < 2 {
            let Percentile { low, high, .. } = self.percentile(50.0)?;
            return Some(Interval { low, high, method: "order statistics" });
        }
        let logs = Logs::of(&self.process_medians())?;
        let reach = student::quantile(0.975, logs.n - 1.0) * (logs.variance / logs.n).sqrt();
        let end = |log: f64| log.exp().min(f64::MAX);
        Some(Interval {
            low: end(logs.mean - reach),
            high: end(logs.mean + reach),
            method: "t on log process medians",
        })
    }

    /// Number of values.
    pub fn n(&self) -> usize {
        self.values.len()
    }

    /// The smallest value.
    pub fn min(&self) -> Option<f64> {
        self.sorted.first().copied()
    }

    /// The largest value.
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The middle value, or the midpoint of the two middle values.
    pub fn median(&self) -> Option<f64> {
        median(&self.sorted)
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        let mean = compensated_sum(self.scaled()) / self.n() as f64 * self.scale();
        Some(mean.clamp(self.min()?, self.max()?))
    }

    /// The sample standard deviation (divisor n - 1).
    pub fn std(&self) -> Option<f64> {
        if self.n() < 2 {
            return None;
        }
        let n = self.n() as f64;
        let mean = compensated_sum(self.scaled()) / n;
        let off = compensated_sum(self.scaled().map(|v| v - mean));
        let squares = compensated_sum(self.scaled().map(|v| (v - mean) * (v - mean)));
        let variance = ((squares - off * off / n) / (n - 1.0)).max(0.0);
        Some((variance.sqrt() * self.scale()).min(f64::MAX))
    }

    /// The median distance from the median, unscaled.
    pub fn mad(&self) -> Option<f64> {
        let median = self.median()?;
        let distances = self.sorted.iter().map(|v| (v - median).abs().min(f64::MAX));
        self::median(&distances.collect::<Vec<_>>())
    }

    /// Standard deviation over mean.
    pub fn variation(&self) -> Option<f64> {
        ratio(self.std()?, self.mean()?)
    }

    /// Range over median: (max - min) / median.
    pub fn spread(&self) -> Option<f64> {
        ratio(self.max()? - self.min()?, self.median()?)
    }

    /// The percentile `percent` (between 0 and 100), if there are enough samples for a two-sided 95 % order-statistic
    /// interval: 6 for the 50th, 36 for the 90th, 72 for the 95th, 368 for the 99th.
    pub fn percentile(&self, percent: f64) -> Option<Percentile> {
        let p = percent / 100.0;
        let (low, high) = interval_ranks(self.n(), p)?;
        let place = (self.n() - 1) as f64 * p;
        let below = self.sorted[place.floor() as usize];
        let above = self.sorted[place.ceil() as usize];
        let part = place.fract();
        let value = (below * (1.0 - part) + above * part).clamp(below, above);
        Some(Percentile { value, low: self.sorted[low], high: self.sorted[high] })
    }

    /// A power of two near the largest magnitude. Values divided by it neither overflow nor vanish when squared.
    fn scale(&self) -> f64 {
        let largest = self.min().unwrap_or(0.0).abs().max(self.max().unwrap_or(0.0).abs());
        f64::from_bits(largest.to_bits() & f64::INFINITY.to_bits()).max(f64::MIN_POSITIVE)
    }

    fn scaled(&self) -> impl Iterator<Item = f64> {
        let scale = self.scale();
        self.sorted.iter().map(move |v| v / scale)
    }
}

/// Logarithms of at least one positive value: their number, mean and variance (0 for one value).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logs {
    pub(crate) n: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Logs {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| *v <= 0.0) {
            return None;
        }
        let n = values.len() as f64;
        let mean = compensated_sum(values.iter().map(|v| v.ln())) / n;
        let squares = compensated_sum(values.iter().map(|v| (v.ln() - mean) * (v.ln() - mean)));
        Some(Self { n, mean, variance: squares / (n - 1.0).max(1.0) })
    }
}

/// The percentile `percent` (from 0 to 100) of ascending values, interpolated linearly between neighbours; `None` without values.
pub(crate) fn percentile_of(ascending: &[f64], percent: f64) -> Option<f64> {
    let place = ascending.len().checked_sub(1)? as f64 * percent / 100.0;
    let (below, above) = (ascending.get(place.floor() as usize)?, ascending.get(place.ceil() as usize)?);
    let part = place.fract();
    Some(below * (1.0 - part) + above * part)
}

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The middle value, or the midpoint of the two middle values.
fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) })
}

/// `part / |whole|`, if that is finite.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    Some(part / whole.abs()).filter(|r| r.is_finite())
}

/// Neumaier summation: the error of every addition is accumulated and added at the end.
fn compensated_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    sum + lost
}

/// Indices of the two order statistics that enclose the quantile `p` of any distribution, each with a miss probability
/// of at most 2.5 %; `None` if even the extremes miss it more often.
///
/// The number of samples below the quantile is binomial(n, p). Its weights are summed outwards from the mode, where they
/// neither overflow nor all vanish.
fn interval_ranks(n: usize, p: f64) -> Option<(usize, usize)> {
    const TAIL: f64 = 0.025;
    if n == 0 || !(p > 0.0 && p < 1.0) {
        return None;
    }
    let odds = p / (1.0 - p);
    let mode = (((n + 1) as f64 * p) as usize).min(n);
    let mut weights = vec![0.0; n + 1];
    weights[mode] = 1.0;
    for k in mode..n {
        weights[k + 1] = weights[k] * odds * (n - k) as f64 / (k + 1) as f64;
    }
    for k in (0..mode).rev() {
        weights[k] = weights[k + 1] / odds * (k + 1) as f64 / (n - k) as f64;
    }
    let allowed = TAIL * compensated_sum(weights.iter().copied());
    let fitting = |tail: &mut dyn Iterator<Item = &f64>| {
        let mut mass = 0.0;
        tail.take_while(|w| {
            mass += **w;
            mass <= allowed
        })
        .count()
    };
    let (below, above) = (fitting(&mut weights.iter()), fitting(&mut weights.iter().rev()));
    (below > 0 && above > 0).then(|| (below - 1, n - above))
}
