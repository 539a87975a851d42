//! `redline serve --mode throughput`: a server under load for some seconds, as the seed's smoke test of serving.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;

use redline_api::model::LoadedModel;
use redline_engine::EngineError;
use redline_lab::bench::{Bench, LaneError, Servers, Values};
use redline_lab::lanes::{Lane, LaneFunction};
use redline_lab::run::{Run, Start};
use redline_lab::{LaneResult, Row};
use redline_system::{Machine, wall_clock};

use super::record::{code_of, verdicts, written};
use super::served;
use crate::command::Context;
use crate::message::{self, Failure};
use crate::{env, output, version};

/// The load: two runs of forty requests, which are enough for a 95th percentile of both.
const LOAD: &[(&str, &str)] = &[
    ("concurrency", "8"),
    ("requests", "40"),
    ("num-runs", "2"),
    ("prompt-tokens", "64"),
    ("output-tokens", "32"),
];

/// Starts a server with this model, measures it with requests that use these adapters, the first one most often, prints tokens per
/// second and p95, and writes the run to a file.
pub(in super::super) fn run(
    model: LoadedModel,
    adapters: &[&str],
    report: Option<&Path>,
    context: &Context,
) -> Result<ExitCode, Failure> {
    let lane = Lane::named("load").and_then(|lane| match lane.run {
        LaneFunction::Server(run) => Some((lane, run)),
        _ => None,
    });
    let Some((lane, run)) = lane else { return Err(Failure::failed("there is no lane `load`", None)) };
    let threads = model.engine.info().threads;
    let (model, rows) = (RefCell::new(Some(model)), RefCell::new(Vec::<Row>::new()));
    let start = |_| match model.take() {
        Some(LoadedModel { name, engine }) => served::start(&name, engine),
        None => Err(LaneError::Engine(EngineError::Stopped)),
    };
    let servers = Servers { running: Vec::new(), model: None, headers: Vec::new(), start: &start };
    let bench = Bench {
        clock: &context.clock,
        machine: Machine::here(),
        threads: vec![threads],
        tier: None,
        reading_ns: redline_lab::limits::READING_NS,
        progress: &|_| (),
        note: &message::note,
        record: &|more| {
            rows.borrow_mut().extend(more);
            Ok(())
        },
        process: &|_| Err(String::new()),
    };
    let adapters = adapters.join(",");
    let given = (!adapters.is_empty()).then_some(("adapters", adapters.as_str()));
    Values::new(lane.flags, LOAD.iter().copied().chain(given))
        .and_then(|values| run(&bench, &servers, &values))
        .map_err(|error| match error {
            LaneError::Incorrect(fact) => Failure::incorrect(fact),
            other => Failure::advised(&other, other.hint()),
        })?;
    let result = LaneResult { lane: lane.name.to_owned(), machine: bench.machine, rows: rows.take() };
    if let Some(path) = report {
        let command = env::arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let environment = context.environment.set().collect();
        let start = Start { at: Some(wall_clock()), command, environment };
        let run = Run::new(version::build(), start, result.clone()).map_err(|error| written(&error))?;
        output::file(path, "--report", &run.json().map_err(|error| written(&error))?)?;
    }
    output::piece(&summary(&result.rows))?;
    let codes = verdicts(&result.rows, false).into_iter().map(|(verdict, line)| {
        message::say(line);
        verdict
    });
    Ok(ExitCode::from(code_of(codes)))
}

/// Tokens and requests per second, and 95th percentiles.
fn summary(rows: &[Row]) -> String {
    let line = |row: &Row, label: &str, metric: &str, factor: f64, unit: &str| {
        let value = row.samples_of(metric)?.median()?;
        Some(format!("{label:<22} {} {unit}\n", redline_system::number::short(value * factor)))
    };
    let lines = |row: &Row| {
        [
            line(row, "output", "output_tok_s", 1.0, "tokens/s"),
            line(row, "answered", "req_s", 1.0, "requests/s"),
            line(row, "first token, p95", "ttft_p95_s", 1e3, "ms"),
            line(row, "whole answer, p95", "e2e_p95_s", 1e3, "ms"),
        ]
    };
    rows.iter().flat_map(lines).flatten().collect()
}
