//! The requests of a run, drawn before it: when each arrives, and which adapters it combines.

use crate::bench::random::{Arrivals, Random, Zipf};

/// A request of the schedule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// Seconds from the beginning of its block.
    pub(super) at_s: f64,
    /// Its adapters, each at most once; 0 is the most popular one.
    pub(super) adapters: Vec<usize>,
}

/// The distribution of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Requests per second.
    pub(super) rps: f64,
    pub(super) arrivals: Arrivals,
    /// The number of adapters that there are.
    pub(super) adapters: usize,
    /// The popularity of adapter `i`, counted from 1, is proportional to `i^-alpha`.
    pub(super) alpha: f64,
    /// Mean number of adapters that a request combines, at least 1.
    pub(super) mean_adapters: f64,
    /// Maximum number of adapters that a request combines.
    pub(super) most_adapters: usize,
}

impl Load {
    /// The requests of `seconds`, in order. A request has one adapter and as many more as a Poisson distribution says.
    pub(super) fn draw(&self, seconds: f64, random: &mut Random) -> Vec<Planned> {
        let zipf = Zipf::new(self.adapters, self.alpha);
        let most = self.most_adapters.min(self.adapters);
        let mut requests = Vec::new();
        let mut at_s = 0.0;
        loop {
            at_s += self.arrivals.gap(random) / self.rps;
            if at_s >= seconds {
                return requests;
            }
            let count = (1 + random.poisson(self.mean_adapters - 1.0)).min(most);
            requests.push(Planned { at_s, adapters: zipf.distinct(count, random) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::random::tests::{moments, near};

    const LOAD: Load = Load {
        rps: 50.0,
        arrivals: Arrivals::Poisson,
        adapters: 100,
        alpha: 1.0,
        mean_adapters: 4.0,
        most_adapters: 16,
    };

    #[test]
    fn a_schedule_follows_from_its_seed() {
        let draw = |seed| LOAD.draw(5.0, &mut Random::new(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn arrivals_come_at_the_rate_and_gamma_in_bursts() {
        let seconds = 2000.0;
        for (arrivals, variation) in
            [(Arrivals::Poisson, 1.0), (Arrivals::Gamma(0.25), 4.0), (Arrivals::Gamma(4.0), 0.25)]
        {
            let requests = Load { arrivals, ..LOAD }.draw(seconds, &mut Random::new(5));
            near(requests.len() as f64 / seconds, LOAD.rps, 0.02);
            assert!(requests.is_sorted_by(|a, b| a.at_s <= b.at_s));
            assert!(requests.iter().all(|request| (0.0..seconds).contains(&request.at_s)));
            let gaps = requests.windows(2).map(|pair| pair[1].at_s - pair[0].at_s);
            let (mean, variance) = moments(gaps);
            near(variance / (mean * mean), variation, 0.05);
        }
    }

    #[test]
    fn the_mean_number_of_adapters_is_that_of_the_load() {
        let requests = LOAD.draw(2000.0, &mut Random::new(9));
        let (mean, _) = moments(requests.iter().map(|request| request.adapters.len() as f64));
        near(mean, LOAD.mean_adapters, 0.01);
        assert!(requests.iter().all(|request| (1..=16).contains(&request.adapters.len())));
        let few = Load { adapters: 2, ..LOAD }.draw(20.0, &mut Random::new(9));
        assert!(few.iter().all(|request| request.adapters.len() <= 2));
        let one = Load { mean_adapters: 1.0, ..LOAD }.draw(20.0, &mut Random::new(9));
        assert!(one.iter().all(|request| request.adapters.len() == 1));
    }
}
