//! `redline`: the command line of the engine, which scores, generates, and measures the machine.

#![forbid(unsafe_code)]

mod adapters;
mod command;
mod display;
mod env;
mod help;
mod interrupt;
mod json;
mod jsonl;
mod message;
mod model;
mod output;
mod parameters;
mod plan;
mod prefix_cache;
mod profile;
mod progress;
mod spelling;
mod table;
mod text;
mod tokenizer;
mod trace;
mod usage;
mod value;
mod version;
mod writing;

use std::process::ExitCode;

use redline_system::memory::CountingAllocator;

/// Counts allocated memory, so that requests can report how much they needed.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let arguments = env::arguments();
    match command::run(&arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
