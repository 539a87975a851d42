//! What operations need of the operating system: memory on huge pages that is counted, a team of threads, and what a process inherits.
//!
//! It is a crate of its own because it changes seldom and is tested in isolation, while the operations above it take minutes to compile.

pub mod memory;
pub mod start;
pub mod threads;

pub use memory::{Buffer, FileBytes, OutOfMemory, Pages};
use redline_simd::Simd;
pub use threads::{ClockFn, Participation, Stopwatch, Team, bind_to_cpus, usable_cpus, with_team};

/// The instructions and the threads that operations run on.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    /// The tier.
    pub simd: Simd,
    /// The threads.
    pub team: &'a Team,
}
