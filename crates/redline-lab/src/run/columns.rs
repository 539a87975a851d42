//! A run as comma-separated values (RFC 4180, line feeds): an empty cell does not apply.

use serde_json::Value;

use super::Run;
use crate::result::{Metric, Row, csv_line};
use crate::stats::Samples;

/// The columns of `results.csv`.
const RESULTS: &str = "schema,run_id,started_at,host_fp,engine,engine_version,git_sha,git_dirty,bench,case_id,arm,\
                       batch_size,prompt_tokens,output_tokens,num_labels,model_id,weight_format,kv_format,threads,\
                       kernel_path,seed,metric,unit,direction,estimator,value,ci_low,ci_high,ci_level,ci_method,\
                       n_process,n_sample,mean,std,median,mad,cv,min,max,p50,p90,p95,p99,verify,valid,invalid_reasons,\
                       limit,share_of_limit,params";

/// The columns of `samples.csv`.
const SAMPLES: &str = "schema,run_id,case_id,arm,process,sample,metric,value,unit,verify";

/// Parameters that have a column, in the order of the columns, by each name they may have.
const PARAMS: &[&[&str]] = &[
    &["batch_size", "batch"],
    &["prompt_tokens"],
    &["output_tokens", "new_tokens"],
    &["num_labels", "labels"],
    &["model"],
    &["format"],
    &["kv_format"],
    &["threads"],
];

impl Run {
    /// `results.csv`: a line per case and metric.
    pub fn results_csv(&self) -> String {
        let mut text = format!("{RESULTS}\n");
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                let cells = [self.about(), about(row), statistics(name, metric), validity(row)].concat();
                text.push_str(&csv_line(&cells));
            }
        }
        text
    }

    /// `samples.csv`: a line per sample; processes and samples are counted from 0.
    pub fn samples_csv(&self) -> String {
        let mut text = format!("{SAMPLES}\n");
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                for (process, values) in metric.samples().processes().enumerate() {
                    for (sample, value) in values.iter().enumerate() {
                        text.push_str(&csv_line(&[
                            self.schema.clone(),
                            self.run_id.clone().unwrap_or_default(),
                            row.case.clone(),
                            row.arm.clone().unwrap_or_default(),
                            process.to_string(),
                            sample.to_string(),
                            name.to_owned(),
                            value.to_string(),
                            metric.samples().unit().to_owned(),
                            row.digest.clone().unwrap_or_default(),
                        ]));
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
            self.machine.fingerprint().unwrap_or_default().to_owned(),
            self.engine.name.clone(),
            text(&self.engine.version),
            text(&self.engine.git),
            self.engine.dirty.map(|d| d.to_string()).unwrap_or_default(),
            self.lane.clone(),
        ]
    }
}

fn about(row: &Row) -> Vec<String> {
    let param =
        |names: &&[&str]| names.iter().find_map(|name| row.params.get(name)).map(plain).unwrap_or_default();
    let mut cells = vec![row.case.clone(), row.arm.clone().unwrap_or_default()];
    cells.extend(PARAMS.iter().map(param));
    cells.push(row.kernel_path.clone().unwrap_or_default());
    cells.push(row.params.get("seed").map(plain).unwrap_or_default());
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
    cells
}

fn validity(row: &Row) -> Vec<String> {
    let why = row.invalid();
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

/// A value as a cell: text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
