//! The laboratory from outside: made-up machines, golden numbers, written files.

mod compare;
mod doctor;
mod machine;
mod result;
mod run;
mod stats;
mod trees;
mod verdict;
mod versus;
