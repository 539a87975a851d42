//! The machine's limits, measured: how fast memory can be read, how fast numbers can be multiplied and added.
//!
//! A limit is measured with the same threads and the same tier as the work it is held against, before and after it.

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Buffer, Exec, OutOfMemory, Simd, Team};

use crate::Clock;

/// A reading lasts at least this long.
const READING_NS: u64 = 20_000_000;
/// Passes over the buffer that a reading has at least.
const MIN_PASSES: usize = 5;
/// Rounds of multiply-adds in one reading.
const ROUNDS: usize = 400_000;

/// Why a limit could not be measured.
#[derive(Debug)]
pub enum LimitError {
    /// The buffer to read could not be had.
    Memory(OutOfMemory),
    /// The threads could not be started.
    Threads(std::io::Error),
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(e) => write!(f, "no buffer to measure the bandwidth with: {e}"),
            Self::Threads(e) => write!(f, "no threads to measure with: {e}"),
        }
    }
}

impl std::error::Error for LimitError {}

/// Threads, a tier and a buffer, ready to measure again and again.
#[derive(Debug)]
pub struct Probe {
    team: Team,
    simd: Simd,
    buffer: Buffer<u32>,
}

impl Probe {
    /// A probe with `threads` threads that reads `bytes` bytes.
    pub fn new(threads: usize, simd: Simd, bytes: usize) -> Result<Self, LimitError> {
        let team = Team::new(threads).map_err(LimitError::Threads)?;
        let mut buffer = Buffer::zeroed(bytes.div_ceil(4)).map_err(LimitError::Memory)?;
        // Written, so that every page is its own and not the shared page of zeros.
        buffer.fill(1);
        let probe = Self { team, simd, buffer };
        std::hint::black_box(probe::read(probe.exec(), &probe.buffer));
        Ok(probe)
    }

    fn exec(&self) -> Exec<'_> {
        Exec { simd: self.simd, team: &self.team }
    }

    /// Bytes per second at which the buffer is read, all threads together: the median over the passes of one reading, so
    /// that a pass which something else interrupted does not count.
    pub fn read_bandwidth(&self, clock: &Clock) -> f64 {
        let start = clock.now_ns();
        let mut passes = Vec::new();
        while passes.len() < MIN_PASSES || clock.elapsed_ns(start) < READING_NS {
            let (_, ns) = clock.time(|| std::hint::black_box(probe::read(self.exec(), &self.buffer)));
            passes.push(ns.max(1));
        }
        passes.sort_unstable();
        self.buffer.bytes() as f64 / (passes[passes.len() / 2] as f64 * 1e-9)
    }

    /// Operations per second from registers, all threads together; a multiplication and an addition count as two.
    pub fn arithmetic_peak(&self, arithmetic: Arithmetic, clock: &Clock) -> f64 {
        let (operations, ns) = clock.time(|| probe::multiply_add(self.exec(), arithmetic, ROUNDS));
        operations / (ns.max(1) as f64 * 1e-9)
    }
}

/// Bytes per second at which `threads` threads read a buffer of `bytes` bytes: the median of five readings.
pub fn read_bandwidth(threads: usize, bytes: usize, clock: &Clock) -> Result<f64, LimitError> {
    let probe = Probe::new(threads, Simd::best(), bytes)?;
    let mut readings: Vec<f64> = (0..5).map(|_| probe.read_bandwidth(clock)).collect();
    readings.sort_by(f64::total_cmp);
    Ok(readings[2])
}
