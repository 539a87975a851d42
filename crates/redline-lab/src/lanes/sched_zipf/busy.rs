//! How busy the engine was: the times that its threads report, as shares of the measured windows.

use std::sync::{Arc, Mutex, PoisonError};

use redline_engine::{Stage, StageLog, StageTime};

/// From begin to end, in nanoseconds.
pub(super) type Times = (u64, u64);

/// Keeps what the engine reports.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<StageTime>>>);

impl Recorder {
    /// The log for the engine.
    pub(super) fn log(&self) -> StageLog {
        let kept = self.0.clone();
        Arc::new(move |time| kept.lock().unwrap_or_else(PoisonError::into_inner).push(time))
    }

    /// Takes what was reported since the last call.
    pub(super) fn take(&self) -> Vec<StageTime> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Shares of the measured windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busy {
    /// The share in which a pass ran.
    pub(super) decode_util: f64,
    /// The share in which a thread for adapters read or packed one, on average over the threads.
    pub(super) adapter_util: f64,
    /// Of the time in which any adapter was read, the share in which a pass ran too; `None` if none was read.
    pub(super) overlap_ratio: Option<f64>,
}

impl Busy {
    /// Takes windows that do not overlap, and the number of threads for adapters.
    pub(super) fn of(times: &[StageTime], windows: &[Times], threads: usize) -> Self {
        let within = |wanted: fn(Stage) -> bool| {
            let of_stage = times.iter().filter(move |time| wanted(time.stage));
            of_stage.flat_map(|a| windows.iter().filter_map(move |&window| common((a.start, a.end), window)))
        };
        let adapters: Vec<Times> = within(|stage| stage != Stage::Pass).collect();
        let all = total(windows.iter().copied());
        let passes = union(within(|stage| stage == Stage::Pass));
        let reading = union(adapters.iter().copied());
        let both = reading.iter().flat_map(|&one| passes.iter().filter_map(move |&other| common(one, other)));
        let (both, any) = (total(both), total(reading.iter().copied()));
        Self {
            decode_util: total(passes.iter().copied()) / all.max(1.0),
            adapter_util: total(adapters.into_iter()) / (all * threads as f64).max(1.0),
            overlap_ratio: (any > 0.0).then(|| both / any),
        }
    }
}

/// Nanoseconds of all.
fn total(times: impl Iterator<Item = Times>) -> f64 {
    times.map(|(start, end)| (end - start) as f64).sum()
}

/// What two have in common.
fn common(one: Times, other: Times) -> Option<Times> {
    let (start, end) = (one.0.max(other.0), one.1.min(other.1));
    (start < end).then_some((start, end))
}

/// The time covered by any of them, in order.
fn union(times: impl Iterator<Item = Times>) -> Vec<Times> {
    let mut sorted: Vec<Times> = times.collect();
    sorted.sort_unstable();
    let mut merged: Vec<Times> = Vec::new();
    for (start, end) in sorted {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stage: Stage, start: u64, end: u64) -> StageTime {
        StageTime { stage, start, end }
    }

    #[test]
    fn shares_are_of_the_windows() {
        // Windows of 100 and 200 ns; a pass lies half outside.
        let windows = [(100, 200), (400, 600)];
        let passes = [at(Stage::Pass, 50, 150), at(Stage::Pass, 250, 350), at(Stage::Pass, 450, 550)];
        let loads = [at(Stage::Restore, 120, 180), at(Stage::Load, 500, 620), at(Stage::Load, 520, 540)];
        let busy = |loads: &[StageTime], threads| Busy::of(&[&passes, loads].concat(), &windows, threads);
        let both = busy(&loads, 2);
        assert_eq!(both.decode_util, 150.0 / 300.0);
        // 60, 100 and 20 ns of two threads.
        assert_eq!(both.adapter_util, 180.0 / 600.0);
        // Adapters are read from 120 to 180 and from 500 to 600; passes run until 150, and until 550.
        assert_eq!(both.overlap_ratio, Some(80.0 / 160.0));
        assert_eq!(busy(&loads, 1).adapter_util, 180.0 / 300.0);
        assert_eq!((busy(&[], 1).adapter_util, busy(&[], 1).overlap_ratio), (0.0, None));
    }

    #[test]
    fn shares_grow_with_the_load() {
        // Requests at a steady rate: each has a pass of 10 ns, and every second one an adapter that is read within 4 ns.
        let with = |requests: u64| {
            let every = 1000 / requests;
            let times: Vec<StageTime> = (0..requests)
                .flat_map(|i| {
                    let start = i * every;
                    let read = (i % 2 == 0).then(|| at(Stage::Restore, start, start + 4));
                    [at(Stage::Pass, start, start + 10)].into_iter().chain(read)
                })
                .collect();
            Busy::of(&times, &[(0, 1000)], 1)
        };
        let (light, heavy) = (with(10), with(80));
        assert_eq!((light.decode_util, heavy.decode_util), (0.1, 0.8));
        assert_eq!((light.adapter_util, heavy.adapter_util), (0.02, 0.16));
        assert_eq!(heavy.overlap_ratio, Some(1.0));
    }

    #[test]
    fn what_was_taken_is_not_reported_again() {
        let recorder = Recorder::default();
        let log = recorder.log();
        log(at(Stage::Pass, 1, 2));
        assert_eq!(recorder.take(), [at(Stage::Pass, 1, 2)]);
        log(at(Stage::Load, 3, 4));
        assert_eq!(recorder.take(), [at(Stage::Load, 3, 4)]);
        assert!(recorder.take().is_empty());
    }
}
