//! The numbers of a report as JSON embedded in the page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::distribution::chosen;
use super::subject::Subjects;
use super::{Detail, visible};
use crate::result::Row;
use crate::stats::{Direction, Samples};
use redline_system::number::six_digits;

/// The schema of the data in a report.
pub(super) const SCHEMA: &str = "redline.bench.report/1";

/// Builds the document, without text that could end the enclosing HTML element.
pub(super) fn json(subjects: &Subjects<'_>, title: &str, detail: Detail) -> String {
    let run = |subject: &super::subject::Subject<'_>| {
        let run = subject.run;
        json!({
            "name": subject.name, "run_id": run.run_id, "started_at": run.started_at, "lane": run.lane,
            "machine": subject.machine, "engine": run.engine, "command": run.command, "environment": run.environment,
            "arms": run.arms, "comparison": run.comparison, "limits": run.limits,
            "rows": run.rows.iter().map(|row| stored(row, detail)).collect::<Vec<_>>(),
        })
    };
    let runs: Vec<Value> = subjects.runs.iter().map(run).collect();
    let document = json!({"schema": SCHEMA, "title": title, "machines": subjects.machines, "runs": runs});
    document.to_string().chars().fold(String::new(), |mut text, c| {
        // Escape characters that HTML would change, and those that could end the element.
        if matches!(c, '<' | '>' | '&') || visible(c) != c {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
        text
    })
}

fn stored(row: &Row, detail: Detail) -> Value {
    let metrics = row.samples().map(|(name, samples)| (name.to_owned(), numbers(samples, detail)));
    let mut value = json!({
        "case": row.case, "params": row.params, "checked": row.checked, "invalid": row.invalid(),
        "limit": row.limit, "share_of_limit": row.share_of_limit.map(six_digits), "kernel_path": row.kernel_path,
        "digest": row.digest, "arm": row.arm, "gates": row.gates, "missed": row.missed(), "work": row.work,
        "ceilings": row.ceilings, "metrics": metrics.collect::<serde_json::Map<_, _>>(),
    });
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && value != &json!([]));
    }
    value
}

/// Summary of a metric; judged metrics also include their samples.
fn numbers(s: &Samples, detail: Detail) -> Value {
    let round = |value: Option<f64>| value.map(six_digits);
    let mut value =
        json!({"unit": s.unit(), "direction": s.direction(), "headline": round(s.headline()), "n": s.n()});
    if s.direction() == Direction::Info {
        return value;
    }
    value["processes"] = json!(processes(s, detail.samples));
    if let Some(interval) = s.interval() {
        value["interval"] = json!([six_digits(interval.low), six_digits(interval.high)]);
        value["method"] = json!(interval.method);
    }
    for (name, number) in [("mean", s.mean()), ("std", s.std()), ("min", s.min()), ("max", s.max())] {
        value[name] = json!(round(number));
    }
    value
}

/// The samples of each process in order; evenly selected ones if there are many.
fn processes(samples: &Samples, most: usize) -> Vec<Vec<f64>> {
    if most == 0 {
        return Vec::new();
    }
    let of =
        |process: &[f64]| chosen(process.len(), most).into_iter().map(|at| six_digits(process[at])).collect();
    samples.processes().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{row, run};

    #[test]
    fn the_data_is_read_back_and_ends_no_element() {
        let hostile = "</script><!--<script>&\u{2028}\"";
        let mut runs = [run("score", vec![row(hostile, &[1.0 / 3.0, 2.0])])];
        runs[0].engine.name = hostile.into();
        let text = json(&Subjects::new(&runs), hostile, Detail::FULL);
        assert!(!text.contains('<') && !text.contains('&'), "{text}");
        let document: Value = serde_json::from_str(&text).unwrap();
        let row = &document["runs"][0]["rows"][0];
        assert_eq!((&document["title"], &row["case"]), (&hostile.into(), &hostile.into()));
        assert_eq!(row["metrics"]["rate"]["processes"], json!([[0.333333, 2.0]]));
        let bare = json(&Subjects::new(&runs), "t", Detail { samples: 0, ..Detail::FULL });
        assert!(bare.len() < text.len() && !bare.contains("0.333333,2.0"));
    }

    #[test]
    fn what_is_only_told_has_no_samples() {
        let told = Samples::new("share", Direction::Info, vec![0.5, 0.25]).unwrap();
        let runs = [run("score", vec![row("a", &[2.0, 1.0, 6.0]).metric("share", told)])];
        let text = json(&Subjects::new(&runs), "t", Detail::FULL);
        let document: Value = serde_json::from_str(&text).unwrap();
        let metrics = &document["runs"][0]["rows"][0]["metrics"];
        let summary = json!({"unit": "share", "direction": "info", "headline": 0.375, "n": 2});
        assert_eq!(metrics["share"], summary);
        let number = |name: &str| metrics["rate"][name].as_f64();
        assert_eq!(["min", "headline", "mean", "max"].map(number), [1.0, 2.0, 3.0, 6.0].map(Some));
    }
}
