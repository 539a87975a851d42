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

use crate::message::Failure;

/// Counts allocated memory, so that requests can report how much they needed.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes of the stack of the commands. That of the process may be small (`ulimit -s`).
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    let run = || {
        let arguments = env::arguments();
        command::run(&arguments).unwrap_or_else(Failure::report)
    };
    match std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(run) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => Failure::failed(format!("no thread for the command: {error}"), None).report(),
    }
}
