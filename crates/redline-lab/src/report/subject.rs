//! The runs of a report, grouped by machine, each with a unique name.

use serde_json::Value;

use super::page::Cell;
use crate::result::Row;
use crate::run::Run;
use crate::stats::{Direction, Samples};

/// Displayed names are cut after this many characters. The embedded data contains the full names.
const LONGEST: usize = 96;

/// A run in the report.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) run: &'a Run,
    /// The index of its machine.
    pub(super) machine: usize,
    /// Engine and commit, with start time or number if needed to be unique.
    pub(super) name: String,
}

/// A machine of the report.
#[derive(Debug)]
pub(super) struct Host<'a> {
    /// The identity of the machine: its fingerprint, or else its summary.
    key: Option<&'a str>,
    /// `Machine 1`.
    pub(super) name: String,
    pub(super) summary: String,
    /// The machine's document from a run.
    pub(super) told: Value,
}

/// All runs of the report.
#[derive(Debug)]
pub(super) struct Subjects<'a> {
    pub(super) machines: Vec<Host<'a>>,
    pub(super) runs: Vec<Subject<'a>>,
}

/// A row with the run it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) row: &'a Row,
}

impl<'a> Subjects<'a> {
    /// Groups and names the runs, in order.
    pub(super) fn new(runs: &'a [Run]) -> Self {
        let mut machines: Vec<Host<'a>> = Vec::new();
        let mut subjects = Vec::new();
        for run in runs {
            let key = run.machine.fingerprint().or(run.machine.summary());
            let known = machines.iter().position(|host| host.key == key);
            let machine = known.unwrap_or_else(|| {
                machines.push(Host {
                    key,
                    name: format!("Machine {}", machines.len() + 1),
                    summary: run.machine.summary().unwrap_or("unknown machine").to_owned(),
                    told: serde_json::to_value(&run.machine).unwrap_or_default(),
                });
                machines.len() - 1
            });
            subjects.push(Subject { run, machine, name: shown(&run.engine.one_line()) });
        }
        tell_apart(&mut subjects);
        Self { machines, runs: subjects }
    }

    /// All rows.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.runs.iter().flat_map(|subject| subject.run.rows.iter().map(move |row| Entry { subject, row }))
    }

    /// The lanes in order of first appearance.
    pub(super) fn lanes(&self) -> Vec<&'a str> {
        distinct(self.runs.iter().map(|subject| subject.run.lane.as_str()))
    }

    /// `lane`, with the machine if there are several.
    pub(super) fn place(&self, lane: &str, machine: usize) -> String {
        let lane = shown(lane);
        if self.machines.len() < 2 {
            return lane;
        }
        format!("{lane} on {}", self.machines[machine].name.to_lowercase())
    }
}

impl<'a> Entry<'a> {
    /// The first judged metric that has samples.
    pub(super) fn headline(&self) -> Option<(&'a str, &'a Samples)> {
        let metrics = self.row.metrics.iter().map(|(name, metric)| (name, metric.samples()));
        metrics.into_iter().find(|(_, samples)| samples.direction() != Direction::Info && samples.n() > 0)
    }

    /// The case with its arm.
    pub(super) fn case(&self) -> String {
        let arm = self.row.arm.as_ref().map(|arm| format!(" [{arm}]")).unwrap_or_default();
        shown(&format!("{}{arm}", self.row.case))
    }

    /// The case for a table, marked if the row is invalid or misses a gate.
    pub(super) fn case_cell(&self) -> Cell {
        if self.row.invalid().is_none() && self.row.missed().is_empty() {
            return self.case().into();
        }
        Cell::bad(format!("! {}", self.case()))
    }

    /// The name of the run, with the arm if it has two.
    pub(super) fn who(&self) -> String {
        let arm = self.row.arm.as_ref().map(|arm| format!(", arm {arm}")).unwrap_or_default();
        shown(&format!("{}{arm}", self.subject.name))
    }

    /// A parameter as text.
    pub(super) fn param(&self, name: &str) -> Option<String> {
        self.row.params.get(name).map(text)
    }
}

/// A JSON value without the quotes of a string.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The distinct values in order of first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// `text`, cut if it is very long.
pub(super) fn shown(text: &str) -> String {
    cut(text, LONGEST)
}

/// `text`, cut after `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Adds the start time, then a number, to the names of runs of the same engine, lane and machine.
fn tell_apart(subjects: &mut [Subject<'_>]) {
    let rules: [fn(&Subject<'_>, usize) -> String; 2] = [
        |subject, _| {
            let at = subject.run.started_at.as_deref().unwrap_or_default();
            format!("{} {}", subject.name, at.trim_end_matches('Z').replace('T', " ")).trim_end().to_owned()
        },
        |subject, number| format!("{} #{number}", subject.name),
    ];
    for rule in rules {
        let same = |a: &Subject<'_>, b: &Subject<'_>| {
            (a.machine, &a.run.lane, &a.name) == (b.machine, &b.run.lane, &b.name)
        };
        let name = |at: usize| {
            let alike = |subject: &&Subject<'_>| same(subject, &subjects[at]);
            let several = subjects.iter().filter(alike).count() > 1;
            let number = subjects[..at].iter().filter(alike).count() + 1;
            if several { rule(&subjects[at], number) } else { subjects[at].name.clone() }
        };
        let names: Vec<String> = (0..subjects.len()).map(name).collect();
        for (subject, name) in subjects.iter_mut().zip(names) {
            subject.name = name;
        }
    }
}

/// The first characters of a run's commit.
pub(super) fn commit(run: &Run) -> Option<String> {
    let git = run.engine.git.as_ref()?;
    let dirty = if run.engine.dirty == Some(true) { "+" } else { "" };
    Some(format!("{}{dirty}", git.chars().take(7).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(engine: &str, started: Option<&str>, machine: Option<&str>) -> Run {
        let document = json!({
            "schema": crate::run::SCHEMA, "engine": {"name": engine}, "lane": "l", "started_at": started,
            "machine": {"fingerprint": machine}, "rows": []
        });
        Run::parse(&document.to_string()).unwrap()
    }

    #[test]
    fn runs_are_told_apart_by_start_then_by_number() {
        let at = Some("2026-11-22T05:10:28Z");
        let runs = [
            run("a", at, Some("m")),
            run("b", at, Some("m")),
            run("a", at, Some("m")),
            run("a", None, Some("m")),
            run("a", None, Some("other")),
            run("c", None, None),
        ];
        let subjects = Subjects::new(&runs);
        let names: Vec<&str> = subjects.runs.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a 2026-11-22 05:10:28 #1", "b", "a 2026-11-22 05:10:28 #2", "a", "a", "c"]);
        let machines: Vec<usize> = subjects.runs.iter().map(|s| s.machine).collect();
        assert_eq!((machines, subjects.machines.len()), (vec![0, 0, 0, 0, 1, 2], 3));
        assert_eq!((subjects.lanes(), subjects.place("l", 1)), (vec!["l"], "l on machine 2".to_owned()));
    }

    #[test]
    fn long_names_are_cut_where_they_are_shown() {
        assert_eq!((cut("äöü", 3), cut("äöüß", 3)), ("äöü".to_owned(), "äö…".to_owned()));
        assert_eq!(shown(&"x".repeat(5000)).chars().count(), LONGEST);
    }
}
