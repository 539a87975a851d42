//! The laboratory from outside: made-up machines, golden numbers, written files.

mod doctor;
mod machine;
mod result;
mod stats;
mod trees;
