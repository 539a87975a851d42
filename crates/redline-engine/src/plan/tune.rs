//! Makes a plan by measuring: every candidate of every layer runs some times, in turns.

use redline_kernels::op::linear::Variant;
use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Exec, Participation};
use redline_models::plan::{Plan, Site};

use super::Workshop;
use super::bucket::Bucket;
use crate::options::Clock;

/// Rounds over the candidates at least.
const LEAST_ROUNDS: usize = 3;
/// Rounds at most.
const MOST_ROUNDS: usize = 15;
/// More rounds are made while a layer has taken less than this, in nanoseconds.
const ENOUGH_NS: u64 = 20_000_000;
/// A candidate must take less than this share of what the estimate takes to be chosen: noise must not choose.
const CLEARLY: f64 = 0.97;

/// Regions of work that tell whether the machine is busy, and the rounds of multiply-adds in each: some tens of microseconds.
const PROBES: usize = 20;
const PROBE_ROUNDS: usize = 1 << 12;

/// A plan and what it took.
pub(super) struct Tuned {
    pub(super) plan: Plan,
    pub(super) measurements: u64,
    /// Time of all layers by the estimates over that by the chosen variants; `None` where there was nothing to choose.
    pub(super) gain: Option<f64>,
    /// Other processes kept cores busy meanwhile: the plan consists of the estimates.
    pub(super) busy: bool,
}

/// A plan from measurements, or the estimates where other processes disturb the measurements.
pub(super) fn plan(shop: &mut Workshop<'_>, bucket: Bucket, clock: &Clock) -> Tuned {
    let busy_before = is_busy(shop.exec);
    let tuned = measured(shop, bucket, clock);
    if !busy_before && !is_busy(shop.exec) {
        return tuned;
    }
    let plan = shop.model.estimated(shop.exec, bucket.mode.sites(), bucket.size);
    Tuned { plan, gain: tuned.gain.map(|_| 1.0), busy: true, ..tuned }
}

/// Whether other processes keep members of the team from working.
fn is_busy(exec: Exec<'_>) -> bool {
    // Wakes members that sleep.
    probe::multiply_add(exec, Arithmetic::F32, PROBE_ROUNDS);
    exec.team.take_participation();
    for _ in 0..PROBES {
        probe::multiply_add(exec, Arithmetic::F32, PROBE_ROUNDS);
    }
    exec.team.take_participation().share().is_some_and(|share| share < Participation::QUIET)
}

fn measured(shop: &mut Workshop<'_>, bucket: Bucket, clock: &Clock) -> Tuned {
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

/// Nanoseconds of each candidate, in rounds. Each run takes another layer's weights, as a pass does.
fn measure(
    shop: &mut Workshop<'_>,
    site: Site,
    rows: usize,
    candidates: &[Variant],
    clock: &Clock,
) -> Vec<Vec<u64>> {
    let mut times = vec![Vec::new(); candidates.len()];
    let mut layer = 0;
    let begin = clock();
    // The first round warms up: pages of the arena, the threads.
    for round in 0..=MOST_ROUNDS {
        for (variant, times) in candidates.iter().zip(&mut times) {
            let start = clock();
            shop.model.rehearse(shop.exec, shop.arena, site, layer, rows, *variant);
            layer += 1;
            if round > 0 {
                times.push(clock().saturating_sub(start));
            }
        }
        if round >= LEAST_ROUNDS && clock().saturating_sub(begin) > ENOUGH_NS {
            break;
        }
    }
    times
}

/// The shortest: what else runs on the machine only adds.
fn least(times: &[u64]) -> f64 {
    times.iter().min().map_or(0.0, |&ns| ns as f64)
}

/// The fastest, if it is clearly faster than the first.
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
