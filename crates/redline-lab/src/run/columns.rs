//! A run as comma-separated values (RFC 4180, line feeds). A cell that does not apply is empty.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Run;
use crate::conditions::Condition;
use crate::result::{Row, csv_line};
use crate::stats::Samples;
use redline_system::table::or_blank;

/// A line of `results.csv`: a metric of a case.
#[derive(Clone, Copy)]
struct Line<'a> {
    run: &'a Run,
    row: &'a Row,
    metric: &'a str,
    samples: &'a Samples,
}

type LineCell = fn(&Line<'_>) -> String;

/// The columns of `results.csv`. Columns for data that this build does not have stay empty.
const RESULTS: &[(&str, LineCell)] = &[
    ("schema", |l| l.run.schema.clone()),
    ("run_id", |l| or_blank(l.run.run_id.as_ref())),
    ("started_at", |l| or_blank(l.run.started_at.as_ref())),
    ("testbed", |_| String::new()),
    ("host_fp", |l| or_blank(l.run.machine.fingerprint())),
    ("engine", |l| l.run.engine.name.clone()),
    ("engine_version", |l| or_blank(l.run.engine.version.as_ref())),
    ("git_sha", |l| or_blank(l.run.engine.git.as_ref())),
    ("git_dirty", |l| or_blank(l.run.engine.dirty)),
    ("build_id", |_| String::new()),
    ("target_features", |_| String::new()),
    ("suite", |l| or_blank(l.run.profile.as_ref())),
    ("bench", |l| l.run.lane.clone()),
    ("case_id", |l| l.row.case.clone()),
    ("arm", |l| or_blank(l.row.arm.as_ref())),
    ("scenario", |l| l.param(&["scenario"])),
    ("arrival", |l| l.param(&["arrival"])),
    ("rate_rps", |l| l.param(&["rate_rps"])),
    ("concurrency", |l| l.param(&["concurrency", "streams"])),
    ("batch_size", |l| l.param(&["batch_size", "batch", "m"])),
    ("prompt_tokens", |l| l.param(&["prompt_tokens", "length"])),
    ("output_tokens", |l| l.param(&["output_tokens", "new_tokens"])),
    ("cached_tokens", |l| l.param(&["cached_tokens"])),
    ("num_labels", |l| l.param(&["num_labels", "labels"])),
    ("diffusion_steps", |l| l.param(&["diffusion_steps"])),
    ("block_len", |l| l.param(&["block_len"])),
    ("model_id", |l| l.param(&["model"])),
    ("model_sha256", |l| l.param(&["model_sha256"])),
    ("arch", |l| l.param(&["architecture"])),
    ("n_params", |l| l.param(&["parameters"])),
    ("weight_format", |l| l.param(&["format"])),
    ("weight_bytes", |l| l.param(&["weights_bytes"])),
    ("kv_format", |l| l.param(&["kv_format"])),
    ("adapters_n", |l| l.param(&["adapters_n"])),
    ("adapter_rank", |l| l.param(&["adapter_rank"])),
    ("zipf_alpha", |l| l.param(&["zipf_alpha"])),
    ("threads", |l| l.param(&["threads"])),
    ("cpu_list", |l| l.param(&["cpu_list"])),
    ("numa", |l| l.param(&["numa"])),
    ("kernel_path", |l| or_blank(l.row.kernel_path.as_ref())),
    ("seed", |l| l.param(&["seed"])),
    ("dataset_sha256", |l| l.param(&["dataset_sha256"])),
    ("metric", |l| l.metric.to_owned()),
    ("unit", |l| l.samples.unit().to_owned()),
    ("direction", |l| l.samples.direction().name().to_owned()),
    ("estimator", |_| "median_of_process_medians".to_owned()),
    ("value", |l| or_blank(l.samples.headline())),
    ("ci_low", |l| or_blank(l.samples.interval().map(|i| i.low))),
    ("ci_high", |l| or_blank(l.samples.interval().map(|i| i.high))),
    ("ci_level", |l| or_blank(l.samples.interval().map(|_| "0.95"))),
    ("ci_method", |l| or_blank(l.samples.interval().map(|i| i.method))),
    ("n_process", |l| l.samples.processes().len().to_string()),
    ("n_sample", |l| l.samples.n().to_string()),
    ("mean", |l| or_blank(l.samples.mean())),
    ("std", |l| or_blank(l.samples.std())),
    ("median", |l| or_blank(l.samples.median())),
    ("mad", |l| or_blank(l.samples.mad())),
    ("cv", |l| or_blank(l.samples.variation())),
    ("min", |l| or_blank(l.samples.min())),
    ("max", |l| or_blank(l.samples.max())),
    ("p50", |l| l.percentile(50.0)),
    ("p90", |l| l.percentile(90.0)),
    ("p95", |l| l.percentile(95.0)),
    ("p99", |l| l.percentile(99.0)),
    ("outliers_mild", |l| or_blank(l.samples.outliers().map(|o| o.0))),
    ("outliers_severe", |l| or_blank(l.samples.outliers().map(|o| o.1))),
    ("lag1_autocorr", |l| or_blank(l.samples.autocorrelation())),
    ("warmup_runs", |l| or_blank(l.row.warmup.map(|w| w.runs))),
    ("warmup_converged", |l| or_blank(l.row.warmup.map(|w| w.converged))),
    ("noise_score", |_| String::new()),
    ("canary_drift_pct", |l| or_blank(canary_drift(l.row))),
    ("tainted_n", |l| or_blank(tainted(l.row))),
    ("verify", |l| or_blank(l.row.digest.as_ref())),
    ("valid", |l| problem(l.row).is_none().to_string()),
    ("invalid_reasons", |l| or_blank(problem(l.row))),
    ("limit", |l| or_blank(l.row.limit.as_ref())),
    ("share_of_limit", |l| or_blank(l.row.share_of_limit)),
    ("params", |l| l.params()),
];

impl Line<'_> {
    /// The parameter with the first of these names that the case has.
    fn param(&self, names: &[&str]) -> String {
        or_blank(names.iter().find_map(|name| self.row.param_text(name)))
    }

    fn percentile(&self, percent: f64) -> String {
        or_blank(self.samples.percentile(percent).map(|p| p.value))
    }

    fn params(&self) -> String {
        let params = self.row.params.iter().map(|(name, value)| (name.to_owned(), value.clone()));
        Value::Object(params.collect()).to_string()
    }
}

/// Why the row is invalid, or which gates it misses.
fn problem(row: &Row) -> Option<String> {
    row.invalid().or_else(|| row.missed_text())
}

/// The change of the canary from the first to the last sample, in percent.
fn canary_drift(row: &Row) -> Option<f64> {
    let mut canaries = row.conditions.iter().flatten().filter_map(|c| c.canary_ns);
    let first = canaries.next()?;
    Some((canaries.next_back().unwrap_or(first) / first - 1.0) * 100.0)
}

fn tainted(row: &Row) -> Option<usize> {
    let tainted = row.conditions.iter().flatten().filter(|c| !c.tainted.is_empty()).count();
    (!row.conditions.is_empty()).then_some(tainted)
}

/// A line of `samples.csv`. Processes and samples are counted from 0.
struct Sample<'a> {
    line: Line<'a>,
    process: usize,
    sample: usize,
    value: f64,
    condition: Option<&'a Condition>,
    /// The place among the samples of all cases of the process.
    order: Option<usize>,
}

impl Sample<'_> {
    fn condition<T: ToString>(&self, cell: impl Fn(&Condition) -> Option<T>) -> String {
        or_blank(self.condition.and_then(cell))
    }
}

type SampleCell = fn(&Sample<'_>) -> String;

const SAMPLES: &[(&str, SampleCell)] = &[
    ("schema", |s| s.line.run.schema.clone()),
    ("run_id", |s| or_blank(s.line.run.run_id.as_ref())),
    ("case_id", |s| s.line.row.case.clone()),
    ("arm", |s| or_blank(s.line.row.arm.as_ref())),
    ("process", |s| s.process.to_string()),
    ("sample", |s| s.sample.to_string()),
    ("order", |s| or_blank(s.order)),
    ("start_ns", |s| s.condition(|c| Some(c.start_ns))),
    ("metric", |s| s.line.metric.to_owned()),
    ("value", |s| s.value.to_string()),
    ("unit", |s| s.line.samples.unit().to_owned()),
    ("tainted", |s| s.condition(|c| Some(!c.tainted.is_empty()))),
    ("taint_reasons", |s| s.condition(|c| Some(c.tainted.names().collect::<Vec<_>>().join(" ")))),
    ("freq_mhz", |s| s.condition(|c| c.mhz)),
    ("steal_pct", |s| s.condition(|c| c.steal.map(|share| share * 100.0))),
    ("majflt", |s| s.condition(|c| c.major_faults)),
    ("nvcsw", |s| s.condition(|c| c.voluntary_switches)),
    ("nivcsw", |s| s.condition(|c| c.involuntary_switches)),
    ("canary_ns", |s| s.condition(|c| c.canary_ns)),
    ("verify", |s| or_blank(s.line.row.digest.as_ref())),
];

impl Run {
    /// `results.csv`: a line per case and metric.
    pub fn results_csv(&self) -> String {
        csv(RESULTS, self.lines())
    }

    /// `samples.csv`: a line per sample. The order is over all cases of a process.
    pub fn samples_csv(&self) -> String {
        let starts = starts(&self.rows);
        let mut samples = Vec::new();
        for line in self.lines() {
            for (&process, values) in line.samples.process_numbers().iter().zip(line.samples.processes()) {
                // Conditions belong to single samples; a metric of the whole case has none.
                let conditions = line.row.conditions.get(process).filter(|c| c.len() == values.len());
                let starts = starts.get(&(line.row.arm.as_deref(), process));
                for (sample, &value) in values.iter().enumerate() {
                    let condition = conditions.map(|c| &c[sample]);
                    let order = starts.zip(condition).and_then(|(s, c)| s.binary_search(&c.start_ns).ok());
                    samples.push(Sample { line, process, sample, value, condition, order });
                }
            }
        }
        csv(SAMPLES, samples.into_iter())
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let line = move |row, (metric, samples)| Line { run: self, row, metric, samples };
        self.rows.iter().flat_map(move |row| row.samples().map(move |metric| line(row, metric)))
    }
}

type Cell<T> = fn(&T) -> String;

/// The header and a line per item.
fn csv<T>(columns: &[(&str, Cell<T>)], items: impl Iterator<Item = T>) -> String {
    let header: Vec<_> = columns.iter().map(|(name, _)| name).collect();
    let line = |item| csv_line(&columns.iter().map(|(_, cell)| cell(&item)).collect::<Vec<_>>());
    csv_line(&header) + &items.map(line).collect::<String>()
}

/// The start times of all samples, sorted, by arm and process.
fn starts(rows: &[Row]) -> BTreeMap<(Option<&str>, usize), Vec<u64>> {
    let mut starts: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for row in rows {
        for (process, conditions) in row.conditions.iter().enumerate() {
            let process = starts.entry((row.arm.as_deref(), process)).or_default();
            process.extend(conditions.iter().map(|c| c.start_ns));
        }
    }
    for process in starts.values_mut() {
        process.sort_unstable();
        process.dedup();
    }
    starts
}
