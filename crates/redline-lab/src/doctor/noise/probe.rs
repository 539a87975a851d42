//! Takes the readings of a noise probe.

use std::hint::black_box;
use std::time::Duration;

use redline_kernels::op::probe as work;
use redline_kernels::{Arithmetic, Buffer, Exec, OutOfMemory, Simd, Team};

use super::Readings;
use crate::Clock;
use crate::limits::{self, FILL};
use crate::machine::{Activity, Frequencies, Machine};

/// Minimum duration of a piece of arithmetic.
const PIECE_NS: u64 = 2_000_000;
/// Number of timings to find the size of a piece. With one, an interrupted timing would make pieces too small to time.
const TRIES: usize = 3;
/// Requested duration of a sleep.
const NAP: Duration = Duration::from_millis(1);
/// Bounds of the buffer in bytes; its size is twice the last-level cache.
const BUFFER: (u64, u64) = (64 << 20, 128 << 20);
/// Maximum number of readings of each kind.
const MAX: usize = 100_000;
/// Number of readings between two readings of the clock frequency.
const LOOK: usize = 16;
/// Number of clock readings to find its step.
const STEPS: usize = 1000;

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The buffer could not be allocated.
    #[error("no buffer to read: {0}")]
    Memory(OutOfMemory),
    /// The threads could not be started.
    #[error("no threads to probe with: {0}")]
    Threads(std::io::Error),
}

/// Probes for this many seconds, with the threads that a benchmark would use.
pub fn probe(machine: Machine, seconds: f64, clock: &Clock) -> Result<Readings, ProbeError> {
    let threads = machine.default_threads();
    let team = Team::new(threads).map_err(ProbeError::Threads)?;
    let mut buffer = Buffer::zeroed(words(&machine)).map_err(ProbeError::Memory)?;
    buffer.fill(FILL);
    let exec = Exec { simd: Simd::best(), team: &team };
    let mut readings = Readings { timer_ns: step(clock), threads, machine, ..Readings::default() };
    let rounds = limits::rounds(exec, Arithmetic::F32, clock, PIECE_NS, TRIES);
    black_box(work::read(exec, &buffer, 1));
    readings.before = Activity::now();
    let start = clock.now_ns();
    while readings.compute.len() < MAX && clock.elapsed_s(start) < seconds {
        if readings.compute.len() % LOOK == 0 {
            readings.frequencies.push(Frequencies::now());
        }
        readings.compute.push(timed(clock, || work::multiply_add(exec, Arithmetic::F32, rounds)));
        readings.memory.push(timed(clock, || work::read(exec, &buffer, 1)));
        readings.sleep.push(timed(clock, || std::thread::sleep(NAP)));
    }
    readings.seconds = clock.elapsed_s(start);
    readings.after = Activity::now();
    Ok(readings)
}

/// Readings of the arithmetic alone, on this thread, for this many seconds.
pub(super) fn canary(seconds: f64, clock: &Clock) -> Vec<f64> {
    let Ok(team) = Team::new(1) else { return Vec::new() };
    let exec = Exec { simd: Simd::best(), team: &team };
    let start = clock.now_ns();
    let rounds = limits::rounds(exec, Arithmetic::F32, clock, PIECE_NS, TRIES);
    let mut readings = Vec::new();
    while readings.len() < MAX && clock.elapsed_s(start) < seconds {
        readings.push(timed(clock, || work::multiply_add(exec, Arithmetic::F32, rounds)));
    }
    readings
}

fn timed<R>(clock: &Clock, work: impl FnOnce() -> R) -> f64 {
    black_box(clock.time(work)).1 as f64 * 1e-9
}

/// Number of words to read, at most a quarter of free memory.
fn words(machine: &Machine) -> usize {
    let wanted = machine.last_level_cache().map_or(0, |cache| cache.saturating_mul(2));
    let wanted = wanted.clamp(BUFFER.0, BUFFER.1);
    (wanted.min(machine.free_bytes() / 4) / 4).max(1) as usize
}

/// The smallest step of the clock.
fn step(clock: &Clock) -> Option<u64> {
    let readings: Vec<u64> = (0..STEPS).map(|_| clock.now_ns()).collect();
    readings.windows(2).map(|two| two[1].saturating_sub(two[0])).filter(|step| *step > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_ends_with_as_many_readings_of_each_kind() {
        let mut machine = Machine::default();
        machine.memory.available_bytes = Some(1 << 20);
        // Seven clock readings for every three probe readings.
        let readings = probe(machine, 1.0, &Clock::ticking(10_000_000)).unwrap();
        let n = readings.compute.len();
        assert_eq!((n, readings.memory.len(), readings.sleep.len()), (15, 15, 15));
        assert_eq!((readings.timer_ns, readings.threads), (Some(10_000_000), 1));
        assert!(readings.compute.iter().all(|s| (s - 0.01).abs() < 1e-12) && readings.seconds >= 1.0);
        assert_eq!(readings.frequencies.len(), 1);
    }

    #[test]
    fn a_canary_ends() {
        // Six clock readings determine the size.
        assert_eq!(canary(0.1, &Clock::ticking(7_000_000)).len(), 3);
    }

    #[test]
    fn buffers_leave_memory_to_others() {
        let mut machine = Machine::default();
        for (available, bytes) in [(64 << 30, 64 << 20), (1 << 20, 256 << 10), (0, 4)] {
            machine.memory.available_bytes = Some(available);
            assert_eq!(words(&machine) * 4, bytes);
        }
    }
}
