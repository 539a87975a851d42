//! What a run consists of: the flags, and the schedule that follows from them.

use super::arrivals::{Load, Planned};
use crate::bench::random::{Arrivals, Random, Zipf};
use crate::bench::{Bench, FlagValue as _, RUNS, Result, WARMUPS, flags, positive, require};

/// Maximum number of adapters that a request combines.
const MAX_COMBINED: usize = 16;
/// Maximum number of adapters.
const MAX_ADAPTERS: usize = 100_000;
/// Seconds after which a further round of blocks begins.
const ROUND_S: f64 = 30.0;

flags! {
    pub(super) struct Flags;
    alpha: f64 = "alpha", "X", "1.1", "Exponent of the adapters' popularity (Zipf); 0: all are equally popular";
    adapters: usize = "adapters", "N", "512", "Number of adapters", |flag, text| {
        let (adapters, needed) = (usize::parse(flag, text)?, format!("at most {MAX_ADAPTERS} are supported"));
        if adapters <= MAX_ADAPTERS { Ok(adapters) } else { Err(flag.invalid(text, &needed)) }
    };
    mean_adapters: f64 = "mean-adapters", "X", "4", "Mean number of adapters that a request combines: one, and a Poisson number more";
    rank: usize = "rank", "N", "8", "Rank of the adapters";
    rps: f64 = "load-rps", "X", "24", "Requests per second", positive;
    arrivals: Arrivals = "arrivals", "WHICH", "poisson", "Time between arrivals: poisson (exponential), gamma or constant";
    burstiness: f64 = "burstiness", "X", "1", "Shape of gamma: 1 is poisson, less has more bursts", positive;
    duration_s: f64 = "duration-s", "S", "90", "Seconds of a run, half of them with adapters", positive;
    prompt_tokens: usize = "prompt-tokens", "N", "32", "Tokens of a prompt";
    new_tokens: usize = "new-tokens", "N", "32", "New tokens of a request";
    decode_threads: Option<usize> = "decode-threads", "N", "auto", "Threads of the model, instead of those of --threads";
    adapter_threads: usize = "adapter-threads", "N", "1", "Threads that read adapters";
    pin_cores: bool = "pin-cores", "", "false",
        "Bind each thread of the model to a CPU, and those for adapters to the CPUs that are left";
    adapter_mib: Option<usize> = "adapter-mib", "N", "auto", "Memory for adapters in MiB; auto: room for a quarter of them";
    reload_s: f64 = "reload-s", "S", "1", "Seconds between adapters that are replaced while requests run; 0: none";
    seed: u64 = "seed", "N", "0", "Seed of the schedule";
    timed: usize = "num-runs", "N", "1", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
    max_tax: f64 = "max-tax", "PERCENT", "0", "Fail where adapters add more; 0: no gate";
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

impl Flags {
    /// Maximum number of adapters that a request combines.
    pub(super) fn most_adapters(&self) -> usize {
        self.adapters.min(MAX_COMBINED)
    }

    /// The distribution of requests.
    pub(super) fn load(&self) -> Result<Load> {
        let &Self { rps, alpha, adapters, mean_adapters, .. } = self;
        let (most_adapters, arrivals) = (self.most_adapters(), self.arrivals.with_shape(self.burstiness));
        require((1.0..=most_adapters as f64).contains(&mean_adapters), || {
            format!(
                "`--mean-adapters` is {mean_adapters}, but a request combines 1 to {most_adapters} adapters"
            )
        })?;
        Ok(Load { rps, arrivals, adapters, alpha, mean_adapters, most_adapters })
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
        let (load, mut random) = (self.load()?, Random::new(self.seed));
        let popularity = Zipf::new(self.adapters, self.alpha);
        let mut first = 0;
        let pairs: Vec<Pair> = (0..self.pairs())
            .map(|index| {
                let requests = load.draw(self.block_s(), &mut random);
                let times = (1..).map(|number| f64::from(number) * self.reload_s);
                let times = times.take_while(|&at_s| self.reload_s > 0.0 && at_s < self.block_s());
                let reloads = times.map(|at_s| (at_s, popularity.distinct(1, &mut random)[0])).collect();
                let pair = Pair { first, reloads, base_first: index % 2 == 1, requests };
                first += pair.requests.len();
                pair
            })
            .collect();
        require(first > 0, || {
            let Self { rps, duration_s, .. } = self;
            format!("`--load-rps` is {rps} and `--duration-s` is {duration_s}, so no request arrives")
        })?;
        Ok(pairs)
    }

    /// The row's name.
    pub(super) fn name(&self, threads: usize) -> String {
        let Self { rps, adapters, alpha, mean_adapters, rank, .. } = self;
        let (seconds, loaders) = (self.duration_s, self.adapter_threads);
        format!(
            "sched-zipf/n{adapters}/a{alpha}/k{mean_adapters}/r{rank}/q{rps}/s{seconds}/l{loaders}/t{threads}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LaneError;

    #[test]
    fn the_defaults_are_those_of_the_seed() {
        let case = Flags::with(&[]).unwrap();
        let Load { rps, arrivals, adapters, alpha, mean_adapters, most_adapters } = case.load().unwrap();
        assert_eq!((rps, arrivals, adapters, alpha), (24.0, Arrivals::Poisson, 512, 1.1));
        assert_eq!((mean_adapters, most_adapters, case.duration_s), (4.0, 16, 90.0));
        assert_eq!((case.adapter_threads, case.pin_cores, case.decode_threads), (1, false, None));
        assert_eq!(case.name(2), "sched-zipf/n512/a1.1/k4/r8/q24/s90/l1/t2");
    }

    #[test]
    fn arms_share_the_time_in_blocks_and_each_is_first_in_half_of_them() {
        for (seconds, pairs, block_s) in [("1", 2, 0.25), ("90", 6, 7.5), ("44", 2, 11.0)] {
            let case = Flags::with(&[("duration-s", seconds)]).unwrap();
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
            let case = Flags::with(&[("duration-s", "40"), ("reload-s", every)]).unwrap();
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
            let load = Flags::with(&[(name, value)]).and_then(|case| case.load());
            let Err(LaneError::Usage(fact)) = load else { panic!("{name} {value}") };
            assert!(fact.contains(&format!("`--{name}` is")) && fact.contains(part), "{fact}");
        }
        let none = Flags::with(&[("load-rps", "0.001"), ("duration-s", "0.001")]).unwrap().schedule();
        assert!(matches!(none, Err(LaneError::Usage(fact)) if fact.contains("no request arrives")));
    }
}
