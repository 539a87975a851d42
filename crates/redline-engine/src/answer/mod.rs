//! Answers: what requests report while they run, their outcomes, and how these reach the caller.

pub(crate) mod outcome;
pub(crate) mod statistics;
pub(crate) mod ticket;
pub(crate) mod transcript;
