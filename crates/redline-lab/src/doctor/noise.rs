//! What would disturb a measurement now: an answer within a quarter of a second.

use std::hint::black_box;

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Exec, Simd, Team};

use crate::{limits, stats};
use redline_system::Clock;
use redline_system::machine::{Activity, Frequency, Machine};
use redline_system::number::{percent, short};

/// Duration of the arithmetic.
const SECONDS: f64 = 0.15;
/// Minimum duration of a piece of arithmetic.
const PIECE_NS: u64 = 2_000_000;
/// Number of timings to find the size of a piece. With one, an interrupted timing would make pieces too small to time.
const TRIES: usize = 3;
/// Maximum number of readings.
const MAX: usize = 100_000;
/// Thresholds for warnings: load average, stolen share, another process's share of a processor, spread of equal work.
const LOAD: f64 = 0.5;
const STOLEN: f64 = 0.005;
const BUSY: f64 = 0.1;
const SPREAD: f64 = 0.03;
/// Number of other processes that are named.
const NAMED: usize = 3;

/// Checks the machine. Returns warnings and the current counters. Shares are computed since the counters `since` of an earlier
/// check, or over this check alone.
pub fn quick(machine: &Machine, since: Option<&Activity>, clock: &Clock) -> (Vec<String>, Activity) {
    let before = Activity::now();
    let seconds = equal_work(SECONDS, clock);
    let after = Activity::now();
    (warnings(&machine.frequency, since.unwrap_or(&before), &before, &after, &seconds), after)
}

/// The warnings from counters before and after a check and the seconds that equal pieces of work took.
pub fn warnings(
    frequency: &Frequency,
    since: &Activity,
    before: &Activity,
    after: &Activity,
    seconds: &[f64],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(load) = before.load_average.filter(|load| *load > LOAD) {
        warnings.push(format!("something was running in the last minute (load average {})", short(load)));
    }
    let others = busy(before, after).into_iter().flatten().filter(|(_, share)| *share > BUSY).take(NAMED);
    let others: Vec<String> = others.map(|(name, share)| format!("{name} {}", percent(share))).collect();
    if !others.is_empty() {
        warnings.push(format!("other processes are busy: {}", others.join(", ")));
    }
    if let Some(share) = stolen_share(since, after).filter(|share| *share > STOLEN) {
        warnings.push(format!("the hypervisor gave {} of the processor time to others", percent(share)));
    }
    let slow = frequency.governors.iter().map(String::as_str).filter(|g| *g != "performance");
    let slow: Vec<&str> = slow.collect();
    if !slow.is_empty() {
        warnings.push(format!("the frequency governor is {}: the clock may fall", slow.join(", ")));
    }
    if let Some(spread) = spread(seconds).filter(|spread| *spread > SPREAD) {
        warnings.push(format!("equal work scatters by {}", percent(spread)));
    }
    warnings
}

/// The seconds of equal pieces of arithmetic on this thread, taken for as many seconds.
fn equal_work(seconds: f64, clock: &Clock) -> Vec<f64> {
    let Ok(team) = Team::new(1) else { return Vec::new() };
    let exec = Exec { simd: Simd::best(), team: &team };
    let start = clock.now_ns();
    let rounds = limits::rounds(exec, Arithmetic::F32, clock, PIECE_NS, TRIES);
    let mut readings = Vec::new();
    while readings.len() < MAX && clock.elapsed_s(start) < seconds {
        let piece = || probe::multiply_add(exec, Arithmetic::F32, rounds);
        readings.push(black_box(clock.time(piece)).1 as f64 * 1e-9);
    }
    readings
}

/// The distance between the tenth and the ninetieth percentile, over the median; `None` without a positive reading. Single
/// interruptions do not change it.
fn spread(readings: &[f64]) -> Option<f64> {
    let positive: Vec<f64> = readings.iter().copied().filter(|v| v.is_finite() && *v > 0.0).collect();
    let sorted = stats::sorted(&positive);
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize);
    Some((at(0.9)? - at(0.1)?) / at(0.5)?)
}

/// The share of processor time that the hypervisor gave to others between two moments.
fn stolen_share(before: &Activity, after: &Activity) -> Option<f64> {
    let (before, after) = (before.counters, after.counters);
    let stolen = after.stolen_ticks?.checked_sub(before.stolen_ticks?)?;
    let all = after.ticks?.checked_sub(before.ticks?)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

/// Other processes that ran between two moments, with their shares of one processor, the busiest first.
fn busy(before: &Activity, after: &Activity) -> Option<Vec<(String, f64)>> {
    let ticks = after.counters.ticks?.checked_sub(before.counters.ticks?)?;
    let elapsed = ticks as f64 / after.cpus? as f64;
    if elapsed <= 0.0 {
        return None;
    }
    let others = after.processes.iter().filter(|(number, _)| Some(**number) != after.own_process);
    let mut busy: Vec<(String, f64)> = others
        .filter_map(|(number, now)| {
            let then = before.processes.get(number).filter(|then| then.started == now.started);
            let ticks = now.ticks.saturating_sub(then.map_or(0, |then| then.ticks));
            (ticks > 0).then(|| (format!("{} ({number})", now.name), ticks as f64 / elapsed))
        })
        .collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_work_ends() {
        // Six clock readings determine the size.
        assert_eq!(equal_work(0.1, &Clock::ticking(7_000_000)).len(), 3);
    }

    #[test]
    fn the_spread_leaves_out_the_tails() {
        assert_eq!((spread(&[]), spread(&[0.0, f64::NAN, -1.0])), (None, None));
        assert_eq!((spread(&[1.0]), spread(&[2e-3; 50])), (Some(0.0), Some(0.0)));
        let readings = |slow: usize| [vec![1.0; 100 - slow], vec![1.5; slow]].concat();
        assert_eq!((spread(&readings(9)), spread(&readings(11))), (Some(0.0), Some(0.5)));
    }
}
