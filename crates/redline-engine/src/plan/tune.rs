//! Makes a plan by measuring: every candidate of every layer runs several times, in turns.

use redline_kernels::op::linear::Variant;
use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Exec, Participation};
use redline_models::plan::{Plan, Site};

use super::Workshop;
use super::bucket::Bucket;
use redline_kernels::ClockFn;

/// Minimum number of rounds over the candidates.
const MIN_ROUNDS: usize = 3;
/// Maximum number of rounds.
const MAX_ROUNDS: usize = 15;
/// Rounds are added until a layer has run for this many nanoseconds.
const ENOUGH_NS: u64 = 20_000_000;
/// A candidate is chosen only if it takes less than this share of the estimate's time, so that noise does not decide.
const CLEARLY: f64 = 0.97;

/// Number of probes that test whether the machine is busy, and the rounds of multiply-adds in each: some tens of microseconds.
const PROBES: usize = 20;
const PROBE_ROUNDS: usize = 1 << 12;

/// A plan, and what was measured.
pub(super) struct Tuned {
    pub(super) plan: Plan,
    pub(super) measurements: u64,
    /// Time of all layers with the estimated variants over that with the chosen ones; `None` if there was nothing to choose.
    pub(super) gain: Option<f64>,
    /// Whether other processes kept cores busy meanwhile; the plan then consists of the estimates.
    pub(super) busy: bool,
}

/// Makes a plan from measurements, or from the estimates if other processes disturb the measurements.
pub(super) fn plan(shop: &mut Workshop<'_>, bucket: Bucket, clock: &ClockFn) -> Tuned {
    let busy_before = is_busy(shop.exec);
    let tuned = measured(shop, bucket, clock);
    if !busy_before && !is_busy(shop.exec) {
        return tuned;
    }
    let plan = shop.model.estimated(shop.exec, bucket.mode.sites(), bucket.size);
    Tuned { plan, gain: tuned.gain.map(|_| 1.0), busy: true, ..tuned }
}

/// Whether other processes keep team members from working.
fn is_busy(exec: Exec<'_>) -> bool {
    // Wakes sleeping members.
    probe::multiply_add(exec, Arithmetic::F32, PROBE_ROUNDS);
    exec.team.take_participation();
    for _ in 0..PROBES {
        probe::multiply_add(exec, Arithmetic::F32, PROBE_ROUNDS);
    }
    exec.team.take_participation().share().is_some_and(|share| share < Participation::QUIET)
}

fn measured(shop: &mut Workshop<'_>, bucket: Bucket, clock: &ClockFn) -> Tuned {
    let (mut choices, mut measurements) = (Vec::new(), 0);
    let (mut chosen_ns, mut estimated_ns) = (0.0, 0.0);
    for &site in bucket.mode.sites() {
        let candidates = shop.model.candidates(shop.exec, site, bucket.size);
        let Some(&estimate) = candidates.first() else { continue };
        if candidates.len() == 1 {
            choices.push((site, estimate));
            continue;
        }
        let times = measure(shop, site, bucket.size, &candidates, clock);
        measurements += times.iter().map(|times| times.len() as u64).sum::<u64>();
        let times: Vec<f64> = times.iter().map(|times| least(times)).collect();
        let best = choose(&times);
        choices.push((site, candidates[best]));
        chosen_ns += times[best];
        estimated_ns += times[0];
    }
    let gain = (chosen_ns > 0.0).then(|| estimated_ns / chosen_ns);
    Tuned { plan: Plan::new(choices), measurements, gain, busy: false }
}

/// Measures the nanoseconds of each candidate, in rounds. Each run uses the weights of another layer, as a pass does.
fn measure(
    shop: &mut Workshop<'_>,
    site: Site,
    rows: usize,
    candidates: &[Variant],
    clock: &ClockFn,
) -> Vec<Vec<u64>> {
    let mut times = vec![Vec::new(); candidates.len()];
    let mut layer = 0;
    let begin = clock();
    // The first round warms up the arena's pages and the threads.
    for round in 0..=MAX_ROUNDS {
        for (variant, times) in candidates.iter().zip(&mut times) {
            let start = clock();
            shop.model.rehearse(shop.exec, shop.arena, site, layer, rows, *variant);
            layer += 1;
            if round > 0 {
                times.push(clock().saturating_sub(start));
            }
        }
        if round >= MIN_ROUNDS && clock().saturating_sub(begin) > ENOUGH_NS {
            break;
        }
    }
    times
}

/// The shortest time, since disturbances only add time.
fn least(times: &[u64]) -> f64 {
    times.iter().min().map_or(0.0, |&ns| ns as f64)
}

/// The fastest candidate, if it is clearly faster than the first one.
fn choose(times: &[f64]) -> usize {
    let fastest = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
    if times[fastest] < CLEARLY * times[0] { fastest } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_does_not_choose() {
        assert_eq!(choose(&[100.0, 98.0, 97.5]), 0);
        assert_eq!(choose(&[100.0, 80.0, 90.0]), 1);
        assert_eq!(choose(&[100.0]), 0);
        assert_eq!((least(&[5, 1, 3]), least(&[])), (1.0, 0.0));
    }
}
