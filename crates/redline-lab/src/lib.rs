//! The laboratory: takes measurements, keeps the raw samples, identifies the machine, and judges differences.
//!
//! A measurement consists of its raw [`Samples`] and the [`Machine`] on which they were taken; everything else is
//! computed from these. A value that could not be read is `None`, never a guess. The only clock is [`Clock`].

#![forbid(unsafe_code)]

mod attention;
pub mod baseline;
pub mod bench;
mod canary;
mod clock;
pub mod compare;
pub mod conditions;
pub mod digest;
pub mod doctor;
mod document;
pub mod exchange;
pub mod lanes;
pub mod limits;
mod linear;
pub mod machine;
pub mod number;
pub mod parity;
pub mod report;
pub mod result;
pub mod roofline;
pub mod run;
pub mod stats;
mod table;
pub mod verdict;
pub mod versus;
pub mod warmup;
pub mod warning;
pub mod width;

pub use clock::{Clock, wall_clock};
pub use compare::Comparison;
pub use doctor::Doctor;
pub use machine::Machine;
pub use result::{LaneResult, Metric, Row};
pub use run::Run;
pub use stats::{Direction, Samples};
pub use verdict::Verdict;
