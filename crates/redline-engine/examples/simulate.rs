//! Runs schedules of the simulator, starting at the first seed: `simulate COUNT [FIRST]`.

use std::process::ExitCode;

use redline_engine::simulator::{Report, simulate};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(count)), Ok(first)) = (numbers.next(), numbers.next().unwrap_or(Ok(0))) else {
        eprintln!("error: give the number of schedules and, if not 0, the first seed");
        return ExitCode::from(2);
    };
    let mut sum = Report::default();
    for seed in first..first.saturating_add(count) {
        match simulate(seed) {
            Ok(report) => sum = sum.and(report),
            Err(fact) => {
                eprintln!("error: {fact}\n\nhint: `cargo xtask simulate 1 {seed}` runs it again");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{count} schedules: {sum:?}");
    ExitCode::SUCCESS
}
