//! `redline doctor`: describes the machine, which of its features are usable, and what disturbs it now.

use std::process::ExitCode;

use clap::Args;
use redline_kernels::{Arithmetic, Simd, Tier, vector_extensions};
use redline_lab::Doctor;
use redline_lab::doctor::{Limit, TierStatus, noise};
use redline_lab::limits::{self, Probe};
use redline_system::{Clock, Machine};

use super::Context;
use crate::message::Failure;
use crate::{output, progress};

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Only say, within a quarter of a second, what would disturb a measurement now
    #[arg(long, conflicts_with = "json")]
    noise: bool,
}

/// Prints the report.
pub(super) fn run(args: &DoctorArgs, context: &Context) -> Result<ExitCode, Failure> {
    let machine = Machine::here();
    if args.noise {
        return disturbances(&machine, context);
    }
    let limits = progress::during("measuring", || measure(&machine, context));
    let doctor = Doctor::examine(machine, vector_extensions(), tiers(), limits);
    if args.json {
        output::piece(&doctor.json().map_err(|error| Failure::failed(error.to_string(), None))?)?;
    } else {
        output::piece(&doctor.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what would disturb a measurement now, one line each.
fn disturbances(machine: &Machine, context: &Context) -> Result<ExitCode, Failure> {
    let (mut warnings, _) = noise::quick(machine, None, &context.clock);
    if warnings.is_empty() {
        warnings.push("quiet: nothing was found that would disturb a measurement".to_owned());
    }
    output::line(&warnings.join("\n"))?;
    Ok(ExitCode::SUCCESS)
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
    let probe = Probe::new(threads, Simd::best(), bytes, limits::READING_NS).ok();
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
