//! Tests of the public API: machines described by file trees, golden numbers, written files.

mod columns;
mod compare;
mod doctor;
mod exchange;
mod interrupted;
mod machine;
mod noise;
mod result;
mod run;
mod scipy;
mod stats;
mod trees;
mod verdict;
mod versus;
