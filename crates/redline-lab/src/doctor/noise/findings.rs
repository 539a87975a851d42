//! The findings about noise, one function each: the evidence, what it means, what to do.

use super::jitter::Jitter;
use super::{Finding, Level, Readings};
use crate::machine::{Activity, HugePages};
use crate::number::{count, percent, short};

/// Thresholds of the share of stolen time: noisy, unfit.
const STOLEN: (f64, f64) = (0.005, 0.05);
const WAITING: (f64, f64) = (0.05, 0.5);
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

/// All findings, in the order of the report.
pub(super) fn all(readings: &Readings, jitter: &[Jitter]) -> Vec<Finding> {
    let mut all = vec![
        governor(readings),
        frequency(readings, jitter),
        stolen(readings),
        throttled(readings),
        hot(readings),
        processes(readings),
        queue(readings),
        pressure(
            "waiting for processors",
            readings,
            |a| a.cpu_pressure_us,
            "end what else runs, or use fewer threads",
        ),
        pressure(
            "waiting for memory",
            readings,
            |a| a.memory_pressure_us,
            "free memory, or take a smaller model",
        ),
        pressure("waiting for disks", readings, |a| a.io_pressure_us, "end what reads and writes disks"),
        switches(readings),
        swapping(readings),
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
    fn bad(mut self, level: Level, fact: impl Into<String>, fix: impl Into<String>) -> Self {
        (self.level, self.fact, self.fix) = (level, Some(fact.into()), Some(fix.into()));
        self
    }

    /// Noisy from the first bound on, unfit from the second.
    fn above(self, value: Option<f64>, bounds: (f64, f64), fact: &str, fix: &str) -> Self {
        match value {
            Some(value) if value >= bounds.1 => self.bad(Level::Unfit, fact, fix),
            Some(value) if value >= bounds.0 => self.bad(Level::Noisy, fact, fix),
            _ => self,
        }
    }
}

/// The increase of a counter during the probe.
fn growth(readings: &Readings, counter: impl Fn(&Activity) -> Option<u64>) -> Option<u64> {
    Some(counter(&readings.after)?.saturating_sub(counter(&readings.before)?))
}

/// The share of processor time that the hypervisor gave to others between two moments.
pub(super) fn stolen_share(before: &Activity, after: &Activity) -> Option<f64> {
    let stolen = after.stolen_ticks?.checked_sub(before.stolen_ticks?)?;
    let all = after.ticks?.checked_sub(before.ticks?)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

/// Other processes that ran between two moments, with their shares of one processor, the busiest first.
pub(super) fn busy(before: &Activity, after: &Activity) -> Option<Vec<(String, f64)>> {
    let elapsed = after.ticks?.checked_sub(before.ticks?)? as f64 / after.cpus? as f64;
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
    let text = (!governors.is_empty()).then(|| governors.join(", "));
    let found = finding("frequency governor", text);
    if governors.iter().all(|g| g == "performance") {
        return found;
    }
    found.bad(
        Level::Usable,
        "the clock may fall between pieces of work",
        "sudo cpupower frequency-set --governor performance",
    )
}

/// The frequency reported by the kernel, or changes in the speed of the arithmetic.
fn frequency(readings: &Readings, jitter: &[Jitter]) -> Finding {
    let seen: Vec<f64> = readings.frequencies.iter().filter_map(|f| f.now).collect();
    let most = readings.frequencies.iter().filter_map(|f| f.most).reduce(f64::max);
    let (low, high) = (seen.iter().copied().reduce(f64::min), seen.iter().copied().reduce(f64::max));
    let fix = "cool the machine, or fix the clock: sudo cpupower frequency-set --max FREQUENCY";
    if let Some((low, high)) = low.zip(high).filter(|(low, _)| *low > 0.0) {
        let most_text = most.map(|most| format!(", {} at most", gigahertz(most))).unwrap_or_default();
        let text = format!("{} to {}{most_text}", gigahertz(low), gigahertz(high));
        let found = finding("clock frequency", Some(text));
        let drift = (high - low) / high;
        if drift > DRIFT {
            return found.bad(
                Level::Usable,
                format!("it changed by {} during the probe", percent(drift)),
                fix,
            );
        }
        return match most {
            Some(most) if high < most * LOW_CLOCK => {
                let fact = format!("it stayed {} below the highest", percent(1.0 - high / most));
                found.bad(Level::Usable, fact, "see the governor, the temperature and the power limit")
            }
            _ => found,
        };
    }
    let Some(compute) = jitter.iter().find(|j| j.kind == "compute") else {
        return finding("clock frequency", None);
    };
    let text = format!(
        "not told; by its arithmetic {} of the best at the median",
        percent(compute.best_s / compute.median_s)
    );
    let found = finding("clock frequency", Some(text));
    if compute.drift.abs() > DRIFT {
        let way = if compute.drift > 0.0 { "slower" } else { "faster" };
        return found.bad(
            Level::Usable,
            format!("arithmetic got {} {way} from beginning to end", percent(compute.drift.abs())),
            fix,
        );
    }
    found
}

fn gigahertz(hertz: f64) -> String {
    format!("{:.2} GHz", hertz * 1e-9)
}

fn stolen(readings: &Readings) -> Finding {
    let share = stolen_share(&readings.before, &readings.after);
    finding("stolen time", share.map(percent)).above(
        share,
        STOLEN,
        "the hypervisor gives processor time to others",
        "take a machine of your own, or compare two versions within one run (`bench LANE --versus`)",
    )
}

fn throttled(readings: &Readings) -> Finding {
    let periods = growth(readings, |a| a.throttled_periods);
    let found = finding("stopped by the control group", periods.map(|n| count(n as usize, "period")));
    match periods {
        Some(1..) => found.bad(
            Level::Noisy,
            "the group used up its quota of processor time",
            "raise the quota (`cpu.max`), or give `--threads` fewer than it has processors",
        ),
        _ => found,
    }
}

fn hot(readings: &Readings) -> Finding {
    let events = growth(readings, |a| a.thermal_events);
    let found = finding("slowed by heat", events.map(|n| count(n as usize, "time")));
    match events {
        Some(1..) => found.bad(
            Level::Noisy,
            "the processor got too hot for its clock",
            "let it cool, look after the fans",
        ),
        _ => found,
    }
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
    finding("other processes", text).above(all, BUSY, &fact, "end them, or wait until they have")
}

fn queue(readings: &Readings) -> Finding {
    let load = readings.before.load_average;
    let others = readings.before.runnable.map(|n| n.saturating_sub(1));
    let text = load.map(|load| match others {
        Some(others) => format!("load average {}, {others} others runnable", short(load)),
        None => format!("load average {}", short(load)),
    });
    let found = finding("run queue before", text);
    if load.is_some_and(|load| load > IDLE_LOAD) || others.is_some_and(|n| n > 0) {
        return found.bad(
            Level::Usable,
            "something was running when the probe began",
            "wait a minute, and end what else runs",
        );
    }
    found
}

fn pressure(name: &str, readings: &Readings, counter: fn(&Activity) -> Option<u64>, fix: &str) -> Finding {
    let share = growth(readings, counter).filter(|_| readings.seconds > 0.0);
    let share = share.map(|us| (us as f64 * 1e-6 / readings.seconds).min(1.0));
    let fact = "something had to wait for a part of the time";
    finding(name, share.map(percent)).above(share, WAITING, fact, fix)
}

fn switches(readings: &Readings) -> Finding {
    let each = readings.seconds * readings.threads as f64;
    let rate = growth(readings, |a| a.involuntary_switches).filter(|_| each > 0.0).map(|n| n as f64 / each);
    finding("put off the processor", rate.map(|rate| format!("{} times per second and thread", short(rate))))
        .above(
            rate,
            SWITCHES,
            "others ran where this process did",
            "end what else runs, or keep it off: taskset, cpusets",
        )
}

fn swapping(readings: &Readings) -> Finding {
    let pages = growth(readings, |a| a.swapped_pages);
    let found = finding("swapped", pages.map(|n| count(n as usize, "page")));
    match pages {
        Some(1..) => {
            found.bad(Level::Noisy, "memory is short", "free memory, or turn swap off: sudo swapoff --all")
        }
        _ => found,
    }
}

fn huge_pages(readings: &Readings) -> Finding {
    let setting = readings.machine.memory.transparent_huge_pages;
    let found = finding("transparent huge pages", setting.map(|s| s.name().to_owned()));
    match setting {
        Some(HugePages::Never) => found.bad(
            Level::Usable,
            "where pages lie changes from run to run",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        _ => found,
    }
}

/// Hardware threads that share a core: they disturb each other only if both are used.
fn siblings(readings: &Readings) -> Finding {
    let topology = &readings.machine.topology;
    let numbers = topology.logical_cpus.zip(topology.physical_cores);
    let text = numbers
        .map(|(threads, cores)| format!("{} on {}", count(threads, "hardware thread"), count(cores, "core")));
    let found = finding("shared cores", text);
    match numbers {
        Some((threads, cores)) if threads > cores && readings.threads > cores => found.bad(
            Level::Usable,
            format!("{} on {}", count(readings.threads, "thread"), count(cores, "core")),
            "one thread per core: leave `--threads` at its default",
        ),
        _ => found,
    }
}

fn timer(readings: &Readings) -> Finding {
    let found = finding("step of the clock", readings.timer_ns.map(|ns| format!("{ns} ns")));
    match readings.timer_ns {
        Some(ns) if ns > COARSE_NS => found.bad(
            Level::Usable,
            "short work cannot be timed",
            "measure for longer; see /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        _ => found,
    }
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
    let found = finding(&format!("{} at two speeds", jitter.kind), Some(text));
    let level = if jitter.kind == "sleep" { Level::Usable } else { Level::Noisy };
    let fact = format!("one is {} slower: somebody else comes and goes, or the clock does", percent(slower));
    Some(found.bad(
        level,
        fact,
        "compare medians of many samples, arms taken in turns (`bench LANE --versus`)",
    ))
}
