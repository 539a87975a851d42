//! The operating system: memory on huge pages that is counted, a team of threads, what a process inherits, the machine that it runs on,
//! and clocks; and numbers and tables as text.
//!
//! It is a crate of its own because it changes seldom and is tested in isolation, while the operations above it take minutes to compile.

mod clock;
pub mod digest;
pub mod machine;
pub mod memory;
pub mod number;
pub mod start;
pub mod table;
pub mod threads;
pub mod width;

pub use clock::{Clock, Elapsed, monotonic_clock, wall_clock};
pub use machine::Machine;
pub use memory::{Buffer, FileBytes, OutOfMemory, Pages, Plain};
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
