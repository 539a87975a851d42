//! A noise check of a quarter of a second, before a measurement.

use super::findings::{busy, stolen_share};
use super::jitter::Jitter;
use super::probe;
use crate::Clock;
use crate::machine::{Activity, Frequency, Machine};
use crate::number::{percent, short};

/// Duration of the arithmetic.
const SECONDS: f64 = 0.15;
/// Thresholds for warnings: load average, stolen share, another process's share of a processor, spread of equal work.
const LOAD: f64 = 0.5;
const STOLEN: f64 = 0.005;
const BUSY: f64 = 0.1;
const SPREAD: f64 = 0.03;

/// Checks the machine. Returns warnings and the current counters. Shares are computed since the counters `since` of an earlier
/// check, or over this check alone.
pub fn quick(machine: &Machine, since: Option<&Activity>, clock: &Clock) -> (Vec<String>, Activity) {
    let before = Activity::now();
    let canary = probe::canary(SECONDS, clock);
    let after = Activity::now();
    (warnings(&machine.frequency, since.unwrap_or(&before), &before, &after, &canary), after)
}

/// The warnings from counters before and after a check and the readings `canary` of equal work.
pub fn warnings(
    frequency: &Frequency,
    since: &Activity,
    before: &Activity,
    after: &Activity,
    canary: &[f64],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(load) = before.load_average.filter(|load| *load > LOAD) {
        warnings.push(format!("something was running in the last minute (load average {})", short(load)));
    }
    let others = busy(before, after).into_iter().flatten().filter(|(_, share)| *share > BUSY).take(3);
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
    if let Some(jitter) = Jitter::of("compute", canary) {
        if let Some(speeds) = jitter.speeds {
            let slower = percent(speeds.slow_s / speeds.fast_s - 1.0);
            warnings.push(format!("equal work runs at two speeds, {slower} apart"));
        } else if jitter.spread > SPREAD {
            warnings.push(format!("equal work scatters by {}", percent(jitter.spread)));
        }
    }
    warnings
}
