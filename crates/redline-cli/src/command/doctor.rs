//! `redline doctor`: describes the machine, which of its features are usable, and how steadily it runs.

use std::process::ExitCode;

use clap::Args;
use redline_kernels::{Arithmetic, Simd, Tier, vector_extensions};
use redline_lab::doctor::noise::{self, Noise};
use redline_lab::doctor::{Limit, TierStatus};
use redline_lab::limits::{self, Probe};
use redline_lab::{Clock, Doctor, Machine};

use super::Context;
use crate::message::{self, Failure, INVALID};
use crate::output;
use crate::progress;
use crate::value;

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 5 noisier than `--max-noise`.";

/// Flags of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Measure instead how steadily the machine runs: noise scores, their causes, and what to do about them
    #[arg(long)]
    noise: bool,
    /// Duration of this measurement in seconds
    #[arg(long, value_name = "N", requires = "noise", default_value_t = noise::SECONDS, value_parser = value::probe_seconds)]
    noise_seconds: f64,
    /// Exit with code 5 if the noise score is above this, from 0 to 100
    #[arg(long, value_name = "SCORE", requires = "noise", value_parser = value::score)]
    max_noise: Option<f64>,
}

/// Prints the report.
pub(super) fn run(args: &DoctorArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.noise {
        return probe(args, context);
    }
    let machine = Machine::here();
    let limits = progress::during("measuring", || measure(&machine, context));
    let doctor = Doctor::examine(machine, vector_extensions(), tiers(), limits);
    if args.json {
        output::piece(&doctor.json().map_err(|error| Failure::failed(error.to_string(), None))?)?;
    } else {
        output::piece(&doctor.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures and prints how steadily the machine runs.
fn probe(args: &DoctorArgs, context: &Context) -> Result<ExitCode, Failure> {
    let readings =
        progress::during("probing", || noise::probe(Machine::here(), args.noise_seconds, &context.clock));
    let readings = readings.map_err(|error| Failure::failed(error.to_string(), None))?;
    let noise = Noise::of(&readings);
    let text = if args.json {
        noise.json().map_err(|error| Failure::failed(error.to_string(), None))?
    } else {
        noise.text()
    };
    let beyond = args.max_noise.filter(|most| noise.score > *most);
    if let Some(most) = beyond {
        message::note(&format!("the noise is {:.1}, above {most}", noise.score));
    }
    output::verdict(&text, if beyond.is_some() { INVALID } else { 0 })
}

fn tiers() -> Vec<TierStatus> {
    Tier::ALL.iter().map(|&tier| status(tier)).collect()
}

fn status(tier: Tier) -> TierStatus {
    let name = tier.name().to_owned();
    match Simd::new(tier) {
        Ok(simd) if simd.name() == name => TierStatus { name, available: true, reason: None },
        Ok(simd) => TierStatus { name, available: true, reason: Some(format!("runs as {}", simd.name())) },
        Err(why) => TierStatus { name, available: false, reason: Some(why.to_string()) },
    }
}

/// Measures the limits of one thread and of all threads.
fn measure(machine: &Machine, context: &Context) -> Vec<Limit> {
    let bytes = limits::cold_buffer_bytes(machine);
    let mut threads = vec![1, machine.default_threads()];
    threads.dedup();
    threads.into_iter().flat_map(|threads| measured(threads, bytes, &context.clock)).collect()
}

fn measured(threads: usize, bytes: usize, clock: &Clock) -> Vec<Limit> {
    let probe = Probe::new(threads, Simd::best(), bytes).ok();
    let limit = |name: String, unit: &str, value: Option<f64>| {
        let present = probe.as_ref().and_then(Probe::present);
        Limit { name, threads, value, unit: unit.to_owned(), present }
    };
    let bandwidth = probe.as_ref().map(|probe| probe.cold_read_bandwidth(clock) / 1e9);
    let mut limits = vec![limit("read bandwidth".to_owned(), "GB/s", bandwidth)];
    for &arithmetic in Arithmetic::ALL {
        let peak = probe.as_ref().map(|probe| probe.arithmetic_peak(arithmetic, clock) / 1e9);
        limits.push(limit(format!("{} multiply-add", arithmetic.name()), "GOP/s", peak));
    }
    limits
}
