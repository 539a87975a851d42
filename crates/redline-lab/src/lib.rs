//! The laboratory: takes measurements, keeps the raw samples, and judges differences.
//!
//! A measurement consists of its raw [`Samples`] and the [`Machine`](redline_system::Machine) on which they were taken; everything
//! else is computed from these. A value that could not be read is `None`, never a guess.

#![forbid(unsafe_code)]

mod attention;
pub mod baseline;
pub mod bench;
mod canary;
pub mod compare;
pub mod conditions;
pub mod doctor;
mod document;
pub mod exchange;
pub mod lanes;
pub mod limits;
pub mod report;
pub mod result;
pub mod roofline;
pub mod run;
pub mod stats;
pub mod verdict;
pub mod versus;
pub mod warmup;
pub mod warning;

pub use compare::Comparison;
pub use doctor::Doctor;
pub use result::{LaneResult, Row};
pub use run::Run;
pub use stats::{Direction, Samples};
pub use verdict::Verdict;
