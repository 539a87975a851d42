//! The findings about noise, one function each: the evidence, what it means, what to do.

use super::jitter::Jitter;
use super::{Finding, Level, Readings};
use crate::machine::{Activity, HugePages};
use crate::number::{count, percent, short};

/// Thresholds of the share of stolen time: noisy, unfit.
const STOLEN: (f64, f64) = (0.005, 0.05);
/// Thresholds of the share of time in which something had to wait.
const WAITING: (f64, f64) = (0.05, 0.5);
const WAITED: &str = "something had to wait for a part of the time";
/// Thresholds of another process's share of one processor.
const BUSY: (f64, f64) = (0.05, 0.5);
/// Thresholds of involuntary context switches per second and thread.
const SWITCHES: (f64, f64) = (20.0, 200.0);
/// A load average above this means that something else was running.
const IDLE_LOAD: f64 = 0.5;
/// Frequencies below this share of the highest, and changes by as much, are reported.
const LOW_CLOCK: f64 = 0.9;
const DRIFT: f64 = 0.03;
/// A clock step above this is coarse.
const COARSE_NS: u64 = 1000;
/// Number of other processes that are named.
const NAMED: usize = 3;

pub(super) fn all(readings: &Readings, jitter: &[Jitter]) -> Vec<Finding> {
    let mut all = vec![
        governor(readings),
        frequency(readings, jitter),
        stolen(readings),
        grown(readings, "stopped by the control group", "period", |a| a.counters.throttled).explain(
            "the group used up its quota of processor time",
            "raise the quota (`cpu.max`), or give `--threads` fewer than it has processors",
        ),
        grown(readings, "slowed by heat", "time", |a| a.thermal_events)
            .explain("the processor got too hot for its clock", "let it cool, look after the fans"),
        processes(readings),
        queue(readings),
        waited(readings, "waiting for processors", |a| a.cpu_pressure_us)
            .explain(WAITED, "end what else runs, or use fewer threads"),
        waited(readings, "waiting for memory", |a| a.memory_pressure_us)
            .explain(WAITED, "free memory, or take a smaller model"),
        waited(readings, "waiting for disks", |a| a.io_pressure_us)
            .explain(WAITED, "end what reads and writes disks"),
        switches(readings),
        grown(readings, "swapped", "page", |a| a.swapped_pages)
            .explain("memory is short", "free memory, or turn swap off: sudo swapoff --all"),
        huge_pages(readings),
        siblings(readings),
        timer(readings),
    ];
    all.extend(jitter.iter().filter_map(two_speeds));
    all
}

fn finding(name: &str, value: Option<String>) -> Finding {
    let value = value.unwrap_or_else(|| "unknown".to_owned());
    Finding { name: name.to_owned(), value, level: Level::Quiet, fact: None, fix: None }
}

impl Finding {
    fn level_if(self, bad: bool, level: Level) -> Self {
        if bad { Self { level, ..self } } else { self }
    }

    /// Noisy from the first bound on, unfit from the second.
    fn above(self, value: Option<f64>, (noisy, unfit): (f64, f64)) -> Self {
        let reaches = |bound| value.is_some_and(|value| value >= bound);
        self.level_if(reaches(noisy), Level::Noisy).level_if(reaches(unfit), Level::Unfit)
    }

    /// Adds what the finding means and how to fix it, unless it is harmless.
    fn explain(self, fact: impl Into<String>, fix: &str) -> Self {
        if self.level == Level::Quiet {
            return self;
        }
        Self { fact: Some(fact.into()), fix: Some(fix.to_owned()), ..self }
    }
}

/// The increase of a counter during the probe.
fn growth(readings: &Readings, counter: impl Fn(&Activity) -> Option<u64>) -> Option<u64> {
    Some(counter(&readings.after)?.saturating_sub(counter(&readings.before)?))
}

/// The share of processor time that the hypervisor gave to others between two moments.
pub(super) fn stolen_share(before: &Activity, after: &Activity) -> Option<f64> {
    let (before, after) = (before.counters, after.counters);
    let stolen = after.stolen_ticks?.checked_sub(before.stolen_ticks?)?;
    let all = after.ticks?.checked_sub(before.ticks?)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

/// Other processes that ran between two moments, with their shares of one processor, the busiest first.
pub(super) fn busy(before: &Activity, after: &Activity) -> Option<Vec<(String, f64)>> {
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

fn governor(readings: &Readings) -> Finding {
    let governors = &readings.machine.frequency.governors;
    let slow = governors.iter().any(|g| g != "performance");
    finding("frequency governor", (!governors.is_empty()).then(|| governors.join(", ")))
        .level_if(slow, Level::Usable)
        .explain(
            "the clock may fall between pieces of work",
            "sudo cpupower frequency-set --governor performance",
        )
}

/// The frequency reported by the kernel, or changes in the speed of the arithmetic.
fn frequency(readings: &Readings, jitter: &[Jitter]) -> Finding {
    let name = "clock frequency";
    let current: Vec<f64> = readings.frequencies.iter().filter_map(|f| f.now).collect();
    let most = readings.frequencies.iter().filter_map(|f| f.most).reduce(f64::max);
    let (low, high) = (current.iter().copied().reduce(f64::min), current.iter().copied().reduce(f64::max));
    let fix = "cool the machine, or fix the clock: sudo cpupower frequency-set --max FREQUENCY";
    if let Some((low, high)) = low.zip(high).filter(|(low, _)| *low > 0.0) {
        let most_text = most.map(|most| format!(", {} at most", gigahertz(most))).unwrap_or_default();
        let text = format!("{} to {}{most_text}", gigahertz(low), gigahertz(high));
        let (drift, share) = ((high - low) / high, most.map_or(1.0, |most| high / most));
        let finding = finding(name, Some(text)).level_if(drift > DRIFT || share < LOW_CLOCK, Level::Usable);
        return if drift > DRIFT {
            finding.explain(format!("it changed by {} during the probe", percent(drift)), fix)
        } else {
            let fact = format!("it stayed {} below the highest", percent(1.0 - share));
            finding.explain(fact, "see the governor, the temperature and the power limit")
        };
    }
    let Some(compute) = jitter.iter().find(|j| j.kind == "compute") else { return finding(name, None) };
    let share = percent(compute.best_s / compute.median_s);
    let drift = percent(compute.drift.abs());
    let way = if compute.drift > 0.0 { "slower" } else { "faster" };
    finding(name, Some(format!("not reported; by its arithmetic {share} of the best at the median")))
        .level_if(compute.drift.abs() > DRIFT, Level::Usable)
        .explain(format!("arithmetic got {drift} {way} from beginning to end"), fix)
}

fn gigahertz(hertz: f64) -> String {
    format!("{:.2} GHz", hertz * 1e-9)
}

fn stolen(readings: &Readings) -> Finding {
    let share = stolen_share(&readings.before, &readings.after);
    finding("stolen time", share.map(percent)).above(share, STOLEN).explain(
        "the hypervisor gives processor time to others",
        "take a machine of your own, or compare two versions within one run (`bench LANE --versus`)",
    )
}

/// A counter that should not grow; it counts `noun`s.
fn grown(readings: &Readings, name: &str, noun: &str, counter: fn(&Activity) -> Option<u64>) -> Finding {
    let growth = growth(readings, counter);
    finding(name, growth.map(|n| count(n as usize, noun))).level_if(growth > Some(0), Level::Noisy)
}

/// A counter of the microseconds in which something had to wait.
fn waited(readings: &Readings, name: &str, counter: fn(&Activity) -> Option<u64>) -> Finding {
    let share = growth(readings, counter).filter(|_| readings.seconds > 0.0);
    let share = share.map(|us| (us as f64 * 1e-6 / readings.seconds).min(1.0));
    finding(name, share.map(percent)).above(share, WAITING)
}

fn processes(readings: &Readings) -> Finding {
    let busy = busy(&readings.before, &readings.after);
    let text = busy.as_ref().map(|busy| {
        let named: Vec<String> =
            busy.iter().take(NAMED).map(|(name, share)| format!("{name} {}", percent(*share))).collect();
        if named.is_empty() { "none was busy".to_owned() } else { named.join(", ") }
    });
    let all = busy.map(|busy| busy.iter().map(|(_, share)| share).sum::<f64>());
    let fact = all.map(|all| format!("they took {} of one processor", percent(all))).unwrap_or_default();
    finding("other processes", text).above(all, BUSY).explain(fact, "end them, or wait until they have")
}

fn queue(readings: &Readings) -> Finding {
    let load = readings.before.load_average;
    let others = readings.before.runnable.map(|n| n.saturating_sub(1));
    let text = load.map(|load| match others {
        Some(others) => format!("load average {}, {others} others runnable", short(load)),
        None => format!("load average {}", short(load)),
    });
    let busy = load.is_some_and(|load| load > IDLE_LOAD) || others.is_some_and(|n| n > 0);
    finding("run queue before", text)
        .level_if(busy, Level::Usable)
        .explain("something was running when the probe began", "wait a minute, and end what else runs")
}

fn switches(readings: &Readings) -> Finding {
    let each = readings.seconds * readings.threads as f64;
    let rate =
        growth(readings, |a| a.counters.involuntary_switches).filter(|_| each > 0.0).map(|n| n as f64 / each);
    finding("put off the processor", rate.map(|rate| format!("{} times per second and thread", short(rate))))
        .above(rate, SWITCHES)
        .explain("others ran where this process did", "end what else runs, or keep it off: taskset, cpusets")
}

fn huge_pages(readings: &Readings) -> Finding {
    let setting = readings.machine.memory.transparent_huge_pages;
    finding("transparent huge pages", setting.map(|s| s.to_string()))
        .level_if(setting == Some(HugePages::Never), Level::Usable)
        .explain(
            "where pages lie changes from run to run",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
}

/// Hardware threads that share a core: they disturb each other only if both are used.
fn siblings(readings: &Readings) -> Finding {
    let topology = &readings.machine.topology;
    let numbers = topology.logical_cpus.zip(topology.physical_cores);
    let on = |threads: String, cores: usize| format!("{threads} on {}", count(cores, "core"));
    let text = numbers.map(|(threads, cores)| on(count(threads, "hardware thread"), cores));
    let shared = numbers.filter(|&(threads, cores)| threads > cores && readings.threads > cores);
    let fact = shared.map(|(_, cores)| on(count(readings.threads, "thread"), cores)).unwrap_or_default();
    finding("shared cores", text)
        .level_if(shared.is_some(), Level::Usable)
        .explain(fact, "one thread per core: leave `--threads` at its default")
}

fn timer(readings: &Readings) -> Finding {
    let step = readings.timer_ns;
    finding("step of the clock", step.map(|ns| format!("{ns} ns")))
        .level_if(step > Some(COARSE_NS), Level::Usable)
        .explain(
            "short work cannot be timed",
            "measure for longer; see /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
}

fn two_speeds(jitter: &Jitter) -> Option<Finding> {
    let speeds = jitter.speeds?;
    let slower = speeds.slow_s / speeds.fast_s - 1.0;
    let text = format!(
        "{:.3} ms in {}, {:.3} ms in {} of the readings",
        speeds.fast_s * 1e3,
        percent(1.0 - speeds.slow_share),
        speeds.slow_s * 1e3,
        percent(speeds.slow_share)
    );
    let level = if jitter.kind == "sleep" { Level::Usable } else { Level::Noisy };
    let fact = format!(
        "one is {} slower: another process comes and goes, or the clock frequency changes",
        percent(slower)
    );
    let finding = finding(&format!("{} at two speeds", jitter.kind), Some(text))
        .level_if(true, level)
        .explain(fact, "compare medians of many samples, arms taken in turns (`bench LANE --versus`)");
    Some(finding)
}
