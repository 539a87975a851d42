//! The machine's limits, measured: read bandwidth and multiply-add rate.
//!
//! A limit is measured before and after the work that is compared with it, with the same threads and the same tier.

use std::hint::black_box;

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Buffer, Exec, OutOfMemory, Simd, Team};

use crate::conditions::{self, Watched};
use crate::roofline::{Arithmetics, Held, Limits};
use crate::stats::sorted;
use redline_system::{Clock, Machine};

/// Minimum duration of a reading in nanoseconds.
pub const READING_NS: u64 = 20_000_000;
/// The same in profile `smoke`.
pub const SHORT_READING_NS: u64 = 5_000_000;
/// Minimum number of passes per reading.
const MIN_PASSES: usize = 5;
/// Minimum duration of a pass of multiply-adds, and its maximum number of rounds.
const PASS_NS: u64 = 1_000_000;
const MAX_ROUNDS: usize = 1 << 22;
/// The value that fills buffers. It is not 0, so that every page is allocated instead of being the shared zero page.
pub(crate) const FILL: u32 = 1;
/// Minimum buffer in bytes, to distinguish memory from caches.
const MIN_BUFFER: u64 = 512 << 20;

/// Size in bytes of a buffer that is removed from the caches before it is read.
const COLD_BUFFER: u64 = 128 << 20;

/// Why a limit could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The buffer could not be allocated.
    #[error("no buffer to measure the bandwidth with: {0}")]
    Memory(OutOfMemory),
    /// The threads could not be started.
    #[error("no threads to measure with: {0}")]
    Threads(std::io::Error),
}

/// Size of a buffer for which caches hardly help: four times the last-level cache, at least 512 MiB. If `buffers` of
/// that size exceed a quarter of free memory, the size is halved until they fit.
pub fn buffer_bytes(machine: &Machine, buffers: usize) -> usize {
    let quarter = machine.free_bytes() / 4 / buffers.max(1) as u64;
    let mut bytes = machine.last_level_cache().map_or(0, |cache| cache.saturating_mul(4)).max(MIN_BUFFER);
    while bytes > quarter.max(1) {
        bytes /= 2;
    }
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Size of a buffer for [`Probe::cold_read_bandwidth`]: 128 MiB, at most a quarter of free memory. Where the caches cannot be
/// emptied, it must exceed them, as in [`buffer_bytes`].
pub fn cold_buffer_bytes(machine: &Machine) -> usize {
    if !probe::CAN_EVICT {
        return buffer_bytes(machine, 1);
    }
    usize::try_from(COLD_BUFFER.min(machine.free_bytes() / 4).max(1)).unwrap_or(usize::MAX)
}

/// Threads, a tier and a buffer for repeated measurements.
#[derive(Debug)]
pub struct Probe {
    team: Team,
    simd: Simd,
    buffer: Buffer<u32>,
    reading_ns: u64,
}

impl Probe {
    /// A probe with `threads` threads that reads `bytes` bytes. A reading takes at least `reading_ns`.
    pub fn new(threads: usize, simd: Simd, bytes: usize, reading_ns: u64) -> Result<Self, LimitError> {
        let team = Team::new(threads).map_err(LimitError::Threads)?;
        let mut buffer = Buffer::zeroed(bytes.div_ceil(4)).map_err(LimitError::Memory)?;
        buffer.fill(FILL);
        let probe = Self { team, simd, buffer, reading_ns };
        black_box(probe::read(probe.exec(), &probe.buffer, 1));
        Ok(probe)
    }

    /// The threads and the tier, for the work that is compared with the limits.
    pub fn exec(&self) -> Exec<'_> {
        Exec { simd: self.simd, team: &self.team }
    }

    /// The share of threads that arrived in time since the last call, from 0 to 1; `None` for a single thread.
    pub fn present(&self) -> Option<f64> {
        self.team.take_participation().share()
    }

    /// Read bandwidth of the buffer in bytes per second, summed over all threads.
    pub fn read_bandwidth(&self, clock: &Clock) -> f64 {
        bandwidth(self.exec(), &self.buffer, 1, self.reading_ns, clock)
    }

    /// Read bandwidth in bytes per second, summed over all threads. The buffer is removed from the caches before each pass, so it
    /// may be smaller than they are ([`cold_buffer_bytes`]).
    pub fn cold_read_bandwidth(&self, clock: &Clock) -> f64 {
        let evict = || probe::evict(self.exec(), &self.buffer);
        let read = || probe::read(self.exec(), &self.buffer, 1);
        size_of_val(&*self.buffer) as f64 / median_seconds(self.reading_ns, clock, evict, read)
    }

    /// Operations per second on registers, summed over all threads; a multiply-add counts as two.
    pub fn arithmetic_peak(&self, arithmetic: Arithmetic, clock: &Clock) -> f64 {
        peak(self.exec(), arithmetic, self.reading_ns, clock)
    }

    /// One reading of the bandwidth and of every peak, as limits for each of these arithmetics.
    fn read(&self, arithmetics: &[Arithmetics], clock: &Clock) -> Vec<Limits> {
        let bandwidth = self.read_bandwidth(clock);
        let mut seen: Vec<(Arithmetic, f64)> = Vec::new();
        let mut peak_of = |arithmetic| {
            if let Some(&(_, peak)) = seen.iter().find(|(known, _)| *known == arithmetic) {
                return peak;
            }
            let peak = self.arithmetic_peak(arithmetic, clock);
            seen.push((arithmetic, peak));
            peak
        };
        let mut limits = |arithmetics: &Arithmetics| {
            let peak = peak_of(arithmetics.weights);
            let [keys, values] = arithmetics.attention.map(&mut peak_of);
            // Attention does equally many operations of both kinds.
            Limits { bandwidth, peak, attention_peak: 2.0 / (1.0 / keys + 1.0 / values) }
        };
        arithmetics.iter().map(&mut limits).collect()
    }

    /// Takes `n` samples, each between two readings of both limits.
    pub fn hold<T, E>(
        &self,
        n: usize,
        arithmetics: Arithmetics,
        clock: &Clock,
        sample: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Vec<Held<T>>, E> {
        self.hold_arms(n, &[arithmetics], |_| 0, clock, sample)
    }

    /// Takes `n` samples of arms, each of which has its own arithmetic, between two readings of the limits of all arms. `arm`
    /// returns the arm of a sample.
    pub fn hold_arms<T, E>(
        &self,
        n: usize,
        arms: &[Arithmetics],
        arm: impl Fn(usize) -> usize,
        clock: &Clock,
        sample: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Vec<Held<T>>, E> {
        let read = || self.read(arms, clock);
        let canary_ns = |limits: &Vec<Limits>| 1e15 / limits[0].peak;
        let (samples, readings) = conditions::take(n, clock, read, canary_ns, sample)?;
        let held = |(i, (sample, around)): (usize, (Watched<T>, &[Vec<Limits>]))| Held {
            value: sample.value,
            limits: around[0][arm(i)].midpoint(around[1][arm(i)]),
            condition: sample.condition,
        };
        Ok(samples.into_iter().zip(readings.windows(2)).enumerate().map(held).collect())
    }
}

/// Bytes per second at which the team reads `words`, with `streams` streams per thread.
pub(crate) fn bandwidth(
    exec: Exec<'_>,
    words: &[u32],
    streams: usize,
    reading_ns: u64,
    clock: &Clock,
) -> f64 {
    size_of_val(words) as f64 / median_seconds(reading_ns, clock, || (), || probe::read(exec, words, streams))
}

/// Rounds of multiply-adds that take `least_ns` or longer: the shortest of `tries` timings counts.
pub(crate) fn rounds(
    exec: Exec<'_>,
    arithmetic: Arithmetic,
    clock: &Clock,
    least_ns: u64,
    tries: usize,
) -> usize {
    let mut rounds = 1 << 10;
    while rounds < MAX_ROUNDS {
        let timed = || clock.time(|| black_box(probe::multiply_add(exec, arithmetic, rounds))).1;
        if (0..tries).map(|_| timed()).min() >= Some(least_ns) {
            break;
        }
        rounds *= 2;
    }
    rounds
}

/// Operations per second on registers, summed over all threads.
pub(crate) fn peak(exec: Exec<'_>, arithmetic: Arithmetic, reading_ns: u64, clock: &Clock) -> f64 {
    let rounds = rounds(exec, arithmetic, clock, PASS_NS, 1);
    let mut operations = 0.0;
    let pass = || {
        operations = probe::multiply_add(exec, arithmetic, rounds);
        operations
    };
    let seconds = median_seconds(reading_ns, clock, || (), pass);
    operations / seconds
}

/// Seconds of the median pass of a reading, so that an interrupted pass does not count. `prepare` runs before each pass and is not
/// timed.
fn median_seconds<R>(
    reading_ns: u64,
    clock: &Clock,
    mut prepare: impl FnMut(),
    mut pass: impl FnMut() -> R,
) -> f64 {
    let start = clock.now_ns();
    let mut passes = Vec::new();
    while passes.len() < MIN_PASSES || clock.elapsed_ns(start) < reading_ns {
        prepare();
        passes.push(black_box(clock.time(&mut pass)).1.max(1));
    }
    passes.sort_unstable();
    passes[passes.len() / 2] as f64 * 1e-9
}

/// Bytes per second at which `threads` threads read a buffer of `bytes` bytes: the median of five readings.
pub fn read_bandwidth(threads: usize, bytes: usize, clock: &Clock) -> Result<f64, LimitError> {
    let probe = Probe::new(threads, Simd::best(), bytes, READING_NS)?;
    let readings: Vec<f64> = (0..5).map(|_| probe.read_bandwidth(clock)).collect();
    Ok(sorted(&readings)[2])
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::lanes::LaneProfile;

    #[test]
    fn a_limit_is_work_over_time() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        assert_eq!(probe.read_bandwidth(&Clock::ticking(10_000_000)), 4096.0 / (1e7 * 1e-9));
        assert_eq!(probe.cold_read_bandwidth(&Clock::ticking(10_000_000)), 4096.0 / (1e7 * 1e-9));
        let clock = Clock::ticking(10_000_000);
        let operations = probe::multiply_add(probe.exec(), Arithmetic::Int8, 1 << 10);
        assert_eq!(probe.arithmetic_peak(Arithmetic::Int8, &clock), operations / (1e7 * 1e-9));
        // A faster machine runs more rounds until a pass can be timed; the quotient stays the same.
        let doubled = probe.arithmetic_peak(Arithmetic::F32, &Clock::ticking(PASS_NS - 1));
        let once = probe::multiply_add(probe.exec(), Arithmetic::F32, MAX_ROUNDS);
        assert_eq!(doubled, once / ((PASS_NS - 1) as f64 * 1e-9));
    }

    #[test]
    fn the_median_pass_counts() {
        // Passes of 1, 1, 100, 1, 1 ms and so on.
        let reads = AtomicU64::new(0);
        let now = AtomicU64::new(0);
        let clock = Clock::scripted(move || {
            let pass = reads.fetch_add(1, Ordering::Relaxed);
            let step = if pass % 15 == 7 { 100_000_000 } else { 1_000_000 };
            now.fetch_add(step, Ordering::Relaxed) + step
        });
        let mut prepared = 0;
        assert_eq!(median_seconds(READING_NS, &clock, || prepared += 1, || ()), 1e6 * 1e-9);
        assert_eq!(prepared, MIN_PASSES, "before every pass");
    }

    #[test]
    fn samples_stand_between_two_readings() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        let (arithmetics, clock) = (Arithmetics::of_weights(Arithmetic::F32), Clock::ticking(10_000_000));
        let held = probe.hold(3, arithmetics, &clock, Ok::<_, LimitError>).unwrap();
        assert_eq!(held.iter().map(|h| h.value).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(held.iter().all(|h| h.limits.bandwidth == 4096.0 / (1e7 * 1e-9)));
        let failed = probe.hold(3, arithmetics, &clock, |i| if i < 1 { Ok(i) } else { Err(i) });
        assert_eq!(failed.err(), Some(1));
    }

    #[test]
    fn a_sample_has_the_limits_of_its_arm() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        let clock = Clock::ticking(10_000_000);
        let arms = [Arithmetic::Int8, Arithmetic::F32].map(Arithmetics::of_weights);
        let [fast, slow] = [Arithmetic::Int8, Arithmetic::F32].map(|one| probe.arithmetic_peak(one, &clock));
        let held = probe.hold_arms(3, &arms, |i| usize::from(i == 1), &clock, Ok::<_, LimitError>).unwrap();
        let peaks: Vec<f64> = held.iter().map(|held| held.limits.attention_peak).collect();
        assert!(fast > slow && peaks == [fast, slow, fast], "{peaks:?}");
    }

    #[test]
    fn attention_is_bounded_by_both_of_its_arithmetics() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        let clock = Clock::ticking(10_000_000);
        let peak = |arithmetic| probe.arithmetic_peak(arithmetic, &clock);
        let (fast, slow) = (peak(Arithmetic::Int8), peak(Arithmetic::F32));
        assert!(fast > slow, "they differ, or nothing is shown: {fast} {slow}");
        let arithmetics =
            Arithmetics { weights: Arithmetic::Int8, attention: [Arithmetic::Int8, Arithmetic::F32] };
        let limits = probe.read(&[arithmetics], &clock)[0];
        assert_eq!(limits.peak, fast);
        // Half of the operations in one, half in the other: their times add up.
        let seconds = 0.5 / fast + 0.5 / slow;
        assert!((limits.attention_peak * seconds - 1.0).abs() < 1e-12, "{limits:?}");
    }

    #[test]
    fn buffers_leave_the_caches_and_memory_to_others() {
        let mut machine = Machine::default();
        let gib = |n: u64| Some(n << 30);
        machine.memory.available_bytes = gib(64);
        assert_eq!(buffer_bytes(&machine, 1), 512 << 20);
        machine.caches.push(redline_system::machine::Cache {
            level: 3,
            kind: "unified".to_owned(),
            size_bytes: Some(256 << 20),
            line_bytes: None,
            shared_by: None,
            instances: Some(2),
        });
        assert_eq!(buffer_bytes(&machine, 2), 2 << 30);
        if probe::CAN_EVICT {
            assert_eq!(cold_buffer_bytes(&machine), 128 << 20, "caches are emptied");
            machine.usable.memory_free_bytes = Some(256 << 20);
            assert_eq!(cold_buffer_bytes(&machine), 64 << 20);
            machine.usable.memory_free_bytes = None;
        }
        machine.memory.available_bytes = gib(4);
        assert_eq!(buffer_bytes(&machine, 2), 512 << 20);
        machine.memory.available_bytes = Some(0);
        assert_eq!(buffer_bytes(&machine, 1), 1);
    }

    #[test]
    fn the_canary_of_a_sample_is_the_arithmetic_of_the_weights() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        let arithmetics = Arithmetics { weights: Arithmetic::Int8, attention: [Arithmetic::F32; 2] };
        let held = probe.hold(1, arithmetics, &Clock::ticking(10_000_000), Ok::<_, LimitError>).unwrap();
        let operations = probe::multiply_add(probe.exec(), Arithmetic::Int8, 1 << 10);
        let (found, expected) = (held[0].condition.canary_ns.unwrap(), 1e7 * 1e6 / operations);
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn a_reading_takes_five_passes_and_its_time() {
        // The clock is read at the start, around every pass, and after the fifth and every later one.
        let passes = |reading_ns, step_ns| {
            let mut passes = 0;
            median_seconds(reading_ns, &Clock::ticking(step_ns), || {}, || passes += 1);
            passes
        };
        let twenty = [100_000_000, 10_000_000, 1_000_000].map(|step_ns| passes(READING_NS, step_ns));
        assert_eq!((twenty, passes(SHORT_READING_NS, 400_000)), ([5, 5, 8], 6));
    }

    #[test]
    fn a_probe_and_a_canary_read_as_long_as_they_should() {
        // The clock is read once more than twice for each pass of a reading.
        let reads = |reading_ns, read: &dyn Fn(u64, &Clock)| {
            let (reads, step_ns) = (AtomicU64::new(0), 1_000_000);
            let clock = Clock::scripted(move || reads.fetch_add(1, Ordering::Relaxed) * step_ns);
            read(reading_ns, &clock);
            clock.now_ns() / step_ns
        };
        let bandwidth = |reading_ns, clock: &Clock| {
            Probe::new(1, Simd::best(), 4096, reading_ns).unwrap().read_bandwidth(clock);
        };
        let peak = |reading_ns, clock: &Clock| {
            Probe::new(1, Simd::best(), 4096, reading_ns).unwrap().arithmetic_peak(Arithmetic::F32, clock);
        };
        let canary = |reading_ns, clock: &Clock| {
            let canary = crate::canary::Canary::new(1, Simd::best(), reading_ns).unwrap();
            canary.watch(1, clock, Ok::<_, ()>).unwrap();
        };
        for read in [&bandwidth as &dyn Fn(u64, &Clock), &peak, &canary] {
            assert!(reads(SHORT_READING_NS, read) < reads(READING_NS, read));
        }
        assert_eq!(LaneProfile::ALL.iter().map(|(_, it)| it.reading_ns()).min(), Some(SHORT_READING_NS));
        assert_eq!(LaneProfile::Full.reading_ns(), READING_NS);
    }

    #[test]
    fn the_bandwidth_is_the_median_of_five_readings() {
        // A reading of five passes reads the clock twelve times. The passes of the readings take 10, 30, 20, 50 and 40 ms.
        let (reads, now) = (AtomicU64::new(0), AtomicU64::new(0));
        let clock = Clock::scripted(move || {
            let reading = reads.fetch_add(1, Ordering::Relaxed) / 12;
            let step = [10, 30, 20, 50, 40][reading as usize % 5] * 1_000_000;
            now.fetch_add(step, Ordering::Relaxed) + step
        });
        assert_eq!(read_bandwidth(1, 4096, &clock).unwrap(), 4096.0 / (3e7 * 1e-9));
    }
}
