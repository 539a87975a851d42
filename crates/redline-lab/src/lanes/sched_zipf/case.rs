//! What a run consists of: the flags, and the schedule that follows from them.

use super::arrivals::{Load, Planned};
use crate::bench::random::{Arrivals, Random, Zipf};
use crate::bench::{Bench, Result, Values, require};

/// Maximum number of adapters that a request combines.
const MAX_COMBINED: usize = 16;
/// Maximum number of adapters.
const MAX_ADAPTERS: usize = 100_000;
/// Seconds after which a further round of blocks begins.
const ROUND_S: f64 = 30.0;

/// The flags.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) load: Load,
    pub(super) duration_s: f64,
    pub(super) rank: usize,
    pub(super) prompt_tokens: usize,
    pub(super) new_tokens: usize,
    /// `None`: those of `--threads`.
    pub(super) decode_threads: Option<usize>,
    pub(super) adapter_threads: usize,
    pub(super) pin_cores: bool,
    /// MiB for adapters; `None`: room for a quarter of them.
    pub(super) adapter_mib: Option<usize>,
    /// Seconds between hot reloads; 0: none.
    pub(super) reload_s: f64,
    pub(super) seed: u64,
    /// Largest tax in percent; 0: no gate.
    pub(super) max_tax: f64,
}

/// Two blocks of the same requests, one with adapters and one without.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) requests: Vec<Planned>,
    /// The number of its first request in the run.
    pub(super) first: usize,
    /// Hot reloads of the block with adapters: seconds from its beginning, and the adapter.
    pub(super) reloads: Vec<(f64, usize)>,
    /// Whether the block without adapters comes first.
    pub(super) base_first: bool,
}

impl Case {
    pub(super) fn of(values: &Values) -> Result<Self> {
        let positive = |name: &str| {
            let number = values.number(name)?;
            let valid = number > 0.0;
            if valid { Ok(number) } else { Err(values.invalid(name, "a number above 0 is needed")) }
        };
        let adapters = values.count("adapters")?;
        require(adapters <= MAX_ADAPTERS, || {
            format!("`--adapters` is {adapters}, but at most {MAX_ADAPTERS} are supported")
        })?;
        let mean_adapters = values.number("mean-adapters")?;
        let most_adapters = adapters.min(MAX_COMBINED);
        require((1.0..=most_adapters as f64).contains(&mean_adapters), || {
            format!(
                "`--mean-adapters` is {mean_adapters}, but a request combines 1 to {most_adapters} adapters"
            )
        })?;
        let shape = positive("burstiness")?;
        let choices = [("poisson", Arrivals::Poisson), ("gamma", Arrivals::Gamma(shape))];
        let arrivals = values.choice("arrivals", &choices)?;
        let (rps, alpha) = (positive("load-rps")?, values.number("alpha")?);
        Ok(Self {
            load: Load { rps, arrivals, adapters, alpha, mean_adapters, most_adapters },
            duration_s: positive("duration-s")?,
            rank: values.count("rank")?,
            prompt_tokens: values.count("prompt-tokens")?,
            new_tokens: values.count("new-tokens")?,
            decode_threads: values.count_or_auto("decode-threads")?,
            adapter_threads: values.count("adapter-threads")?,
            pin_cores: values.switch("pin-cores")?,
            adapter_mib: values.count_or_auto("adapter-mib")?,
            reload_s: values.number("reload-s")?,
            seed: values.whole("seed")? as u64,
            max_tax: values.number("max-tax")?,
        })
    }

    /// The numbers of threads to run with.
    pub(super) fn threads(&self, bench: &Bench<'_>) -> Vec<usize> {
        self.decode_threads.map_or_else(|| bench.threads.clone(), |threads| vec![threads])
    }

    /// Number of pairs of blocks: an even number, so that each arm is first equally often.
    fn pairs(&self) -> usize {
        2 * (self.duration_s / ROUND_S).round().clamp(1.0, 1000.0) as usize
    }

    /// Seconds of a block.
    pub(super) fn block_s(&self) -> f64 {
        self.duration_s / (2 * self.pairs()) as f64
    }

    /// The blocks of a run, the same for every run. An error if no request arrives.
    pub(super) fn schedule(&self) -> Result<Vec<Pair>> {
        let mut random = Random::new(self.seed);
        let popularity = Zipf::new(self.load.adapters, self.load.alpha);
        let mut first = 0;
        let pairs: Vec<Pair> = (0..self.pairs())
            .map(|index| {
                let requests = self.load.draw(self.block_s(), &mut random);
                let times = (1..).map(|number| f64::from(number) * self.reload_s);
                let times = times.take_while(|&at_s| self.reload_s > 0.0 && at_s < self.block_s());
                let reloads = times.map(|at_s| (at_s, popularity.distinct(1, &mut random)[0])).collect();
                let pair = Pair { first, reloads, base_first: index % 2 == 1, requests };
                first += pair.requests.len();
                pair
            })
            .collect();
        require(first > 0, || {
            let Load { rps, .. } = self.load;
            format!("`--load-rps` is {rps} and `--duration-s` is {}, so no request arrives", self.duration_s)
        })?;
        Ok(pairs)
    }

    /// The row's name.
    pub(super) fn name(&self, threads: usize) -> String {
        let Load { rps, adapters, alpha, mean_adapters, .. } = self.load;
        let (rank, seconds, loaders) = (self.rank, self.duration_s, self.adapter_threads);
        format!(
            "sched-zipf/n{adapters}/a{alpha}/k{mean_adapters}/r{rank}/q{rps}/s{seconds}/l{loaders}/t{threads}"
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::LaneError;

    pub(in super::super) fn case(given: &[(&'static str, &'static str)]) -> Result<Case> {
        Case::of(&Values::new(super::super::LANE.flags, given.iter().copied()))
    }

    #[test]
    fn the_defaults_are_those_of_the_seed() {
        let case = case(&[]).unwrap();
        let Load { rps, arrivals, adapters, alpha, mean_adapters, most_adapters } = case.load;
        assert_eq!((rps, arrivals, adapters, alpha), (24.0, Arrivals::Poisson, 512, 1.1));
        assert_eq!((mean_adapters, most_adapters, case.duration_s), (4.0, 16, 90.0));
        assert_eq!((case.adapter_threads, case.pin_cores, case.decode_threads), (1, false, None));
        assert_eq!(case.name(2), "sched-zipf/n512/a1.1/k4/r8/q24/s90/l1/t2");
    }

    #[test]
    fn arms_share_the_time_in_blocks_and_each_is_first_in_half_of_them() {
        for (seconds, pairs, block_s) in [("1", 2, 0.25), ("90", 6, 7.5), ("44", 2, 11.0)] {
            let case = case(&[("duration-s", seconds)]).unwrap();
            let schedule = case.schedule().unwrap();
            assert_eq!((schedule.len(), case.block_s()), (pairs, block_s));
            let first: Vec<bool> = schedule.iter().map(|pair| pair.base_first).collect();
            assert_eq!(first, [false, true].repeat(pairs / 2));
            let counts = schedule.iter().map(|pair| pair.requests.len());
            let firsts: Vec<usize> =
                counts.scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n))).collect();
            assert_eq!(schedule.iter().map(|pair| pair.first).collect::<Vec<_>>(), firsts);
            assert_eq!(case.schedule().unwrap(), schedule);
        }
    }

    #[test]
    fn reloads_come_at_a_regular_time() {
        let reloads = |every: &'static str| {
            let case = case(&[("duration-s", "40"), ("reload-s", every)]).unwrap();
            let times = |pair: &Pair| pair.reloads.iter().map(|(at_s, _)| *at_s).collect::<Vec<_>>();
            case.schedule().unwrap().iter().map(times).collect::<Vec<_>>()
        };
        assert_eq!(reloads("4"), vec![vec![4.0, 8.0]; 2]);
        assert_eq!(reloads("10"), vec![vec![0.0; 0]; 2]);
        assert_eq!(reloads("0"), vec![vec![0.0; 0]; 2]);
    }

    #[test]
    fn values_without_sense_are_refused() {
        for (name, value, part) in [
            ("adapters", "100001", "at most 100000"),
            ("mean-adapters", "0.5", "1 to 16"),
            ("mean-adapters", "17", "1 to 16"),
            ("load-rps", "0", "above 0"),
            ("duration-s", "0", "above 0"),
            ("burstiness", "0", "above 0"),
            ("arrivals", "steady", "poisson, gamma"),
        ] {
            let Err(LaneError::Usage(fact)) = case(&[(name, value)]) else { panic!("{name} {value}") };
            assert!(fact.contains(&format!("`--{name}` is")) && fact.contains(part), "{fact}");
        }
        let none = case(&[("load-rps", "0.001"), ("duration-s", "0.001")]).unwrap().schedule();
        assert!(matches!(none, Err(LaneError::Usage(fact)) if fact.contains("no request arrives")));
    }
}
