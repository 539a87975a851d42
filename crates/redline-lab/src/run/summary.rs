//! A run without its samples: the summary file beside comma-separated values.

use serde::Serialize;
use serde_json::Value;

use super::{Meta, Run, Validity};
use crate::result::{Ordered, Row};

const SCHEMA: &str = "redline.bench.summary/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    lane: &'a str,
    run_id: Option<&'a str>,
    started_at: Option<&'a str>,
    engine: String,
    machine: Option<&'a str>,
    host_fp: Option<&'a str>,
    summary: &'a Validity,
    rows: Vec<Case<'a>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
}

#[derive(Serialize)]
struct Case<'a> {
    case: &'a str,
    params: &'a Ordered<Value>,
    metrics: Ordered<Figure<'a>>,
    limit: Option<&'a str>,
    share_of_limit: Option<f64>,
    kernel_path: Option<&'a str>,
    digest: Option<&'a str>,
    missed: Vec<String>,
}

#[derive(Serialize)]
struct Figure<'a> {
    unit: &'a str,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    n: usize,
}

impl Run {
    /// The document, indented, with a line break at the end.
    pub fn summary_json(&self) -> serde_json::Result<String> {
        let document = Document {
            schema: SCHEMA,
            lane: &self.lane,
            run_id: self.run_id.as_deref(),
            started_at: self.started_at.as_deref(),
            engine: self.engine.one_line(),
            machine: self.machine.summary(),
            host_fp: self.machine.fingerprint(),
            summary: &self.summary,
            rows: self.rows.iter().map(case).collect(),
            meta: self.meta.as_ref(),
        };
        serde_json::to_string_pretty(&document).map(|text| text + "\n")
    }
}

fn case(row: &Row) -> Case<'_> {
    let metrics = row.samples().map(|(name, s)| {
        let interval = s.interval();
        let (low, high) = (interval.map(|i| i.low), interval.map(|i| i.high));
        (name.to_owned(), Figure { unit: s.unit(), value: s.headline(), low, high, n: s.n() })
    });
    Case {
        case: &row.case,
        params: &row.params,
        metrics: metrics.collect(),
        limit: row.limit.as_deref(),
        share_of_limit: row.share_of_limit,
        kernel_path: row.kernel_path.as_deref(),
        digest: row.digest.as_deref(),
        missed: row.missed(),
    }
}
