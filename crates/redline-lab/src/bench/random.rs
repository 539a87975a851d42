//! Random numbers of workloads, the same on every machine: times between arrivals, and popularity.

use redline_models::random::{STEP, mix};

use super::{Flag, FlagValue, Result};

/// The distribution of the time between arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// Exponential: the arrivals of many independent clients.
    Poisson,
    /// Gamma with this shape: 1 is Poisson, less has more bursts.
    Gamma(f64),
    /// Always the same.
    Constant,
}

impl Arrivals {
    /// The same with this shape, if it has one.
    pub(crate) fn with_shape(self, shape: f64) -> Self {
        if matches!(self, Self::Gamma(_)) { Self::Gamma(shape) } else { self }
    }

    /// The time until the next arrival, with mean 1.
    pub(crate) fn gap(self, random: &mut Random) -> f64 {
        match self {
            Self::Poisson => random.exponential(),
            Self::Gamma(shape) => random.gamma(shape) / shape,
            Self::Constant => 1.0,
        }
    }
}

impl FlagValue for Arrivals {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        let all = [("poisson", Self::Poisson), ("gamma", Self::Gamma(1.0)), ("constant", Self::Constant)];
        flag.choice(text, &all)
    }
}

/// Adapters with Zipf's distribution.
#[derive(Clone, Debug)]
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(adapters: usize, alpha: f64) -> Self {
        Self((1..=adapters).map(|rank| libm::pow(rank as f64, -alpha)).collect())
    }

    /// Draws `count` adapters without replacement, at most all of them.
    pub(crate) fn distinct(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let mut weights = self.0.clone();
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count.min(weights.len()) {
            let all: f64 = weights.iter().sum();
            let mut left = random.uniform() * all;
            let passed = |weight: &f64| {
                left -= weight;
                left < 0.0 && *weight > 0.0
            };
            let last = weights.iter().rposition(|weight| *weight > 0.0);
            let Some(adapter) = weights.iter().position(passed).or(last) else { break };
            weights[adapter] = 0.0;
            drawn.push(adapter);
        }
        drawn
    }
}

/// A sequence of random numbers (SplitMix64), the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// In [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// With mean 1.
    fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }

    /// Standard normal (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// Gamma with scale 1 (Marsaglia and Tsang 2000).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
            let bound = 0.5 * x * x + d - d * v + d * libm::log(v.max(f64::MIN_POSITIVE));
            if v > 0.0 && libm::log(1.0 - self.uniform()) < bound {
                return d * v;
            }
        }
    }

    /// Poisson (Knuth): the number of uniform factors until their product falls below `exp(-mean)`.
    pub(crate) fn poisson(&mut self, mean: f64) -> usize {
        let least = libm::exp(-mean);
        let mut product = 1.0;
        for count in 0.. {
            product *= 1.0 - self.uniform();
            if product < least {
                return count;
            }
        }
        0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Mean and variance.
    pub(crate) fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let values: Vec<f64> = values.collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        (mean, squares / values.len() as f64)
    }

    #[track_caller]
    pub(crate) fn near(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance * expected.abs().max(1e-9), "{value} {expected}");
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut random = Random::new(1);
        let n = 200_000;
        let (mean, variance) = moments((0..n).map(|_| random.uniform()));
        near(mean, 0.5, 0.01);
        near(variance, 1.0 / 12.0, 0.01);
        let (mean, variance) = moments((0..n).map(|_| random.exponential()));
        near(mean, 1.0, 0.01);
        near(variance, 1.0, 0.03);
        let (mean, variance) = moments((0..n).map(|_| random.normal()));
        assert!(mean.abs() < 0.01, "{mean}");
        near(variance, 1.0, 0.02);
        for shape in [0.25, 1.0, 4.0] {
            let (mean, variance) = moments((0..n).map(|_| random.gamma(shape)));
            near(mean, shape, 0.02);
            near(variance, shape, 0.05);
        }
        for expected in [0.0, 0.5, 3.0] {
            let (mean, variance) = moments((0..n).map(|_| random.poisson(expected) as f64));
            near(mean, expected, 0.02);
            near(variance, expected, 0.03);
        }
    }

    #[test]
    fn popularity_falls_with_the_power_of_the_rank() {
        let n = 100_000;
        for alpha in [0.0, 1.0, 1.5] {
            let (zipf, mut random) = (Zipf::new(50, alpha), Random::new(7));
            let mut counts = [0usize; 50];
            for _ in 0..n {
                counts[zipf.distinct(1, &mut random)[0]] += 1;
            }
            let all: f64 = (1..=50).map(|rank| f64::from(rank).powf(-alpha)).sum();
            for rank in [1usize, 2, 3, 10] {
                let share = (rank as f64).powf(-alpha) / all;
                near(counts[rank - 1] as f64 / f64::from(n), share, 0.1);
            }
        }
    }

    #[test]
    fn a_request_combines_each_adapter_once() {
        let (zipf, mut random) = (Zipf::new(6, 3.0), Random::new(3));
        for count in 0..=8 {
            let mut drawn = zipf.distinct(count, &mut random);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), count.min(6));
        }
        // The second one is drawn although its weight is lost in the sum of both.
        assert_eq!(Zipf::new(2, 60.0).distinct(2, &mut random), [0, 1]);
    }
}
