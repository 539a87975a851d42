//! Tests of the public API: machines described by file trees, golden numbers, written files.

mod columns;
mod compare;
mod doctor;
mod exchange;
mod interrupted;
mod noise;
mod result;
mod run;
mod scipy;
mod stats;
mod verdict;
mod versus;

/// A virtual machine with two cores.
fn small_machine() -> redline_system::Machine {
    redline_system::Machine::read(redline_testing::trees::small_vm().path())
}
