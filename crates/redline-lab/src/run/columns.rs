//! A run as comma-separated values (RFC 4180, line feeds). A cell that does not apply is empty.

use serde_json::Value;

use super::Run;
use crate::conditions::Condition;
use crate::result::{Metric, Row, csv_line};
use crate::stats::Samples;

/// The columns of `results.csv`. Columns for data that this build does not have stay empty.
const RESULTS: &str = "schema,run_id,started_at,testbed,host_fp,engine,engine_version,git_sha,git_dirty,build_id,target_features,\
                       suite,bench,case_id,arm,scenario,arrival,rate_rps,concurrency,batch_size,prompt_tokens,output_tokens,\
                       cached_tokens,num_labels,diffusion_steps,block_len,model_id,model_sha256,arch,n_params,weight_format,\
                       weight_bytes,kv_format,adapters_n,adapter_rank,zipf_alpha,threads,cpu_list,numa,kernel_path,seed,\
                       dataset_sha256,metric,unit,direction,estimator,value,ci_low,ci_high,ci_level,ci_method,n_process,\
                       n_sample,mean,std,median,mad,cv,min,max,p50,p90,p95,p99,outliers_mild,outliers_severe,lag1_autocorr,\
                       warmup_runs,warmup_converged,noise_score,canary_drift_pct,tainted_n,verify,valid,invalid_reasons,limit,\
                       share_of_limit,params";

/// The columns of `samples.csv`.
const SAMPLES: &str = "schema,run_id,case_id,arm,process,sample,order,start_ns,metric,value,unit,tainted,taint_reasons,freq_mhz,\
                       steal_pct,majflt,nvcsw,nivcsw,canary_ns,verify";

/// Parameters with their own column, from `scenario` to `dataset_sha256`, each with its possible names.
const PARAMS: &[&[&str]] = &[
    &["scenario"],
    &["arrival"],
    &["rate_rps"],
    &["concurrency", "streams"],
    &["batch_size", "batch", "m"],
    &["prompt_tokens", "length"],
    &["output_tokens", "new_tokens"],
    &["cached_tokens"],
    &["num_labels", "labels"],
    &["diffusion_steps"],
    &["block_len"],
    &["model"],
    &["model_sha256"],
    &["architecture"],
    &["parameters"],
    &["format"],
    &["weights_bytes"],
    &["kv_format"],
    &["adapters_n"],
    &["adapter_rank"],
    &["zipf_alpha"],
    &["threads"],
    &["cpu_list"],
    &["numa"],
    &[KERNELS],
    &["seed"],
    &["dataset_sha256"],
];

/// The name of the kernel-path column among them, which is not a parameter.
const KERNELS: &str = "kernel_path";

impl Run {
    /// `results.csv`: a line per case and metric.
    pub fn results_csv(&self) -> String {
        let mut text = format!("{RESULTS}\n");
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                let cells =
                    [self.about(), about(row), statistics(name, metric), surroundings(row), validity(row)]
                        .concat();
                text.push_str(&csv_line(&cells));
            }
        }
        text
    }

    /// `samples.csv`: a line per sample. Processes and samples are counted from 0; the order is over all cases of a process.
    pub fn samples_csv(&self) -> String {
        let mut text = format!("{SAMPLES}\n");
        let orders = Orders::of(&self.rows);
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                for (process, values) in metric.samples().processes().enumerate() {
                    // Conditions belong to single samples; a metric of the whole case has none.
                    let conditions = row.conditions.get(process).filter(|c| c.len() == values.len());
                    for (sample, value) in values.iter().enumerate() {
                        let condition = conditions.map(|c| &c[sample]);
                        let mut cells = vec![
                            self.schema.clone(),
                            self.run_id.clone().unwrap_or_default(),
                            row.case.clone(),
                            row.arm.clone().unwrap_or_default(),
                            process.to_string(),
                            sample.to_string(),
                        ];
                        cells.extend(started(condition, &orders, row.arm.as_deref(), process));
                        cells.extend([
                            name.to_owned(),
                            value.to_string(),
                            metric.samples().unit().to_owned(),
                        ]);
                        cells.extend(disturbed(condition));
                        cells.push(row.digest.clone().unwrap_or_default());
                        text.push_str(&csv_line(&cells));
                    }
                }
            }
        }
        text
    }

    fn about(&self) -> Vec<String> {
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        vec![
            self.schema.clone(),
            text(&self.run_id),
            text(&self.started_at),
            String::new(),
            self.machine.fingerprint().unwrap_or_default().to_owned(),
            self.engine.name.clone(),
            text(&self.engine.version),
            text(&self.engine.git),
            self.engine.dirty.map(|d| d.to_string()).unwrap_or_default(),
            String::new(),
            String::new(),
            text(&self.profile),
            self.lane.clone(),
        ]
    }
}

/// The start times of the samples of each arm and process, sorted.
struct Orders<'a>(Vec<Started<'a>>);

/// An arm, the number of its process, and the start times of its samples.
type Started<'a> = ((Option<&'a str>, usize), Vec<u64>);

impl<'a> Orders<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let mut orders: Vec<Started<'_>> = Vec::new();
        for row in rows {
            for (process, conditions) in row.conditions.iter().enumerate() {
                let key = (row.arm.as_deref(), process);
                let at = orders.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                    orders.push((key, Vec::new()));
                    orders.len() - 1
                });
                orders[at].1.extend(conditions.iter().map(|c| c.start_ns));
            }
        }
        for (_, starts) in &mut orders {
            starts.sort_unstable();
            starts.dedup();
        }
        Self(orders)
    }

    fn place(&self, arm: Option<&str>, process: usize, start_ns: u64) -> Option<usize> {
        let (_, starts) = self.0.iter().find(|(key, _)| *key == (arm, process))?;
        starts.binary_search(&start_ns).ok()
    }
}

/// The cells `order,start_ns`.
fn started(
    condition: Option<&Condition>,
    orders: &Orders<'_>,
    arm: Option<&str>,
    process: usize,
) -> [String; 2] {
    let place = condition.and_then(|c| orders.place(arm, process, c.start_ns));
    [place.map(|p| p.to_string()), condition.map(|c| c.start_ns.to_string())].map(Option::unwrap_or_default)
}

/// The cells from `tainted` to `canary_ns`.
fn disturbed(condition: Option<&Condition>) -> [String; 8] {
    let Some(c) = condition else { return Default::default() };
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let count = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
    [
        (!c.tainted.is_empty()).to_string(),
        c.tainted.names().collect::<Vec<_>>().join(" "),
        number(c.mhz),
        number(c.steal.map(|share| share * 100.0)),
        count(c.major_faults),
        count(c.voluntary_switches),
        count(c.involuntary_switches),
        number(c.canary_ns),
    ]
}

fn about(row: &Row) -> Vec<String> {
    let param = |names: &&[&str]| match **names {
        [KERNELS] => row.kernel_path.clone().unwrap_or_default(),
        _ => names.iter().find_map(|name| row.params.get(name)).map(plain).unwrap_or_default(),
    };
    let mut cells = vec![row.case.clone(), row.arm.clone().unwrap_or_default()];
    cells.extend(PARAMS.iter().map(param));
    cells
}

fn statistics(name: &str, metric: &Metric) -> Vec<String> {
    let s: &Samples = metric.samples();
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let interval = s.interval();
    let level = interval.map(|_| "0.95".to_owned()).unwrap_or_default();
    let method = interval.map(|i| i.method.to_owned()).unwrap_or_default();
    let mut cells = vec![name.to_owned(), s.unit().to_owned(), s.direction().name().to_owned()];
    cells.extend(["median_of_process_medians".to_owned(), number(s.headline())]);
    cells.extend([number(interval.map(|i| i.low)), number(interval.map(|i| i.high)), level, method]);
    cells.extend([s.processes().len().to_string(), s.n().to_string()]);
    cells.extend([s.mean(), s.std(), s.median(), s.mad(), s.variation(), s.min(), s.max()].map(number));
    cells.extend([50.0, 90.0, 95.0, 99.0].map(|p| number(s.percentile(p).map(|p| p.value))));
    let outliers = s.outliers();
    let count = |n: Option<usize>| n.map(|n| n.to_string()).unwrap_or_default();
    cells.extend([count(outliers.map(|o| o.0)), count(outliers.map(|o| o.1)), number(s.autocorrelation())]);
    cells
}

/// The cells from `warmup_runs` to `tainted_n`.
fn surroundings(row: &Row) -> Vec<String> {
    let warmup = row.warmup.as_ref();
    let canaries = || row.conditions.iter().flatten().filter_map(|c| c.canary_ns);
    let drift =
        canaries().next().zip(canaries().next_back()).map(|(first, last)| (last / first - 1.0) * 100.0);
    let tainted = row.conditions.iter().flatten().filter(|c| !c.tainted.is_empty()).count();
    vec![
        warmup.map(|w| w.runs.to_string()).unwrap_or_default(),
        warmup.map(|w| w.converged.to_string()).unwrap_or_default(),
        String::new(),
        drift.map(|d| d.to_string()).unwrap_or_default(),
        if row.conditions.is_empty() { String::new() } else { tainted.to_string() },
    ]
}

fn validity(row: &Row) -> Vec<String> {
    let missed = row.missed();
    let why = row.invalid().or_else(|| (!missed.is_empty()).then(|| missed.join("; ")));
    let params: serde_json::Map<String, Value> =
        row.params.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    vec![
        row.digest.clone().unwrap_or_default(),
        why.is_none().to_string(),
        why.unwrap_or_default(),
        row.limit.clone().unwrap_or_default(),
        row.share_of_limit.map(|s| s.to_string()).unwrap_or_default(),
        Value::Object(params).to_string(),
    ]
}

/// A value as a cell; strings without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
