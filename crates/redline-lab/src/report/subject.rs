//! The runs of a report, grouped by machine, each with a unique name.

use super::page::{Cell, colour};
use crate::result::Row;
use crate::run::{Host, Run};
use crate::stats::{Direction, Samples};

/// Displayed names are cut after this many characters. The embedded data contains the full names.
const LONGEST: usize = 96;
/// The summary of a machine that no run describes.
pub(super) const UNKNOWN: &str = "unknown machine";

#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) run: &'a Run,
    /// The index of its machine.
    pub(super) machine: usize,
    /// Engine and commit, with start time or number if needed to be unique.
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct Subjects<'a> {
    /// Distinct machines.
    pub(super) machines: Vec<&'a Host>,
    pub(super) runs: Vec<Subject<'a>>,
}

/// A row with the run it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) row: &'a Row,
}

/// A metric of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) metric: &'a str,
    pub(super) samples: &'a Samples,
}

impl<'a> Subjects<'a> {
    /// Groups and names the runs, in order.
    pub(super) fn new(runs: &'a [Run]) -> Self {
        // Fingerprints identify machines, or else summaries.
        let key = |host: &'a Host| host.fingerprint().or(host.summary());
        let same = |a: &&'a Host, b: &&'a Host| key(a) == key(b);
        let machines = distinct_by(runs.iter().map(|run| &run.machine), same);
        let index = |run: &'a Run| machines.iter().position(|host| same(host, &&run.machine)).unwrap_or(0);
        let subject = |run| Subject { run, machine: index(run), name: shown(&run.engine.one_line()) };
        let mut subjects: Vec<Subject<'a>> = runs.iter().map(subject).collect();
        distinguish(&mut subjects);
        Self { machines, runs: subjects }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.runs.iter().flat_map(|subject| subject.run.rows.iter().map(move |row| Entry { subject, row }))
    }

    /// `lane`, with the machine if there are several.
    pub(super) fn place(&self, (lane, machine): (&str, usize)) -> String {
        let lane = shown(lane);
        if self.machines.len() < 2 {
            return lane;
        }
        format!("{lane} on machine {}", machine + 1)
    }
}

impl<'a> Subject<'a> {
    /// The lane and the machine, which results must share to be drawn together.
    pub(super) fn place(&self) -> (&'a str, usize) {
        (&self.run.lane, self.machine)
    }
}

impl<'a> Entry<'a> {
    pub(super) fn metrics(self) -> impl Iterator<Item = Measured<'a>> {
        let measured = move |(metric, samples)| Measured { entry: self, metric, samples };
        self.row.samples().map(measured)
    }

    pub(super) fn judged(self) -> impl Iterator<Item = Measured<'a>> {
        self.metrics().filter(|measured| measured.samples.direction() != Direction::Info)
    }

    /// The case with its arm.
    pub(super) fn full_case(&self) -> String {
        let arm = self.row.arm.as_ref().map(|arm| format!(" [{arm}]")).unwrap_or_default();
        format!("{}{arm}", self.row.case)
    }

    pub(super) fn case(&self) -> String {
        shown(&self.full_case())
    }

    /// The case for a table, marked if the row is invalid or misses a gate.
    pub(super) fn case_cell(&self) -> Cell {
        if self.row.invalid().is_none() && self.row.missed().is_empty() {
            return self.case().into();
        }
        Cell::bad(format!("! {}", self.case()))
    }

    /// Why the row is invalid, for a table; empty if it is valid.
    pub(super) fn invalid_cell(&self) -> Cell {
        self.row.invalid().map(|why| Cell::bad(format!("INVALID: {why}"))).unwrap_or_default()
    }

    /// Why the row is invalid, for the end of a tooltip; empty if it is valid.
    pub(super) fn invalid_note(&self) -> String {
        self.row.invalid().map(|why| format!("; INVALID: {why}")).unwrap_or_default()
    }

    /// The classes of a mark of a series; marks of invalid rows are hollow.
    pub(super) fn mark_class(&self, series: usize) -> String {
        format!("{}{}", colour(series), if self.row.invalid().is_some() { " hollow" } else { "" })
    }

    /// The name of the run, with the arm if it has two.
    pub(super) fn who(&self) -> String {
        let arm = self.row.arm.as_ref().map(|arm| format!(", arm {arm}")).unwrap_or_default();
        shown(&format!("{}{arm}", self.subject.name))
    }

    pub(super) fn param(&self, name: &str) -> Option<String> {
        self.row.param_text(name)
    }
}

/// The distinct values in order of first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    distinct_by(values, T::eq)
}

fn distinct_by<T>(values: impl Iterator<Item = T>, same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let groups = gather(values, |group, value| same(&group[0], value)).into_iter();
    groups.filter_map(|group| group.into_iter().next()).collect()
}

/// Groups in order of first appearance; `belongs` says whether an item belongs to a group.
pub(super) fn gather<T>(items: impl Iterator<Item = T>, belongs: impl Fn(&[T], &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for item in items {
        match groups.iter_mut().find(|group| belongs(group, &item)) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
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
fn distinguish(subjects: &mut [Subject<'_>]) {
    let suffixes: [fn(&Run, usize) -> String; 2] = [
        |run, _| run.started_at.as_deref().unwrap_or_default().trim_end_matches('Z').replace('T', " "),
        |_, number| format!("#{number}"),
    ];
    for suffix in suffixes {
        let keys: Vec<_> = subjects.iter().map(|subject| (subject.place(), subject.name.clone())).collect();
        for (at, subject) in subjects.iter_mut().enumerate() {
            let alike = |key: &&(_, String)| **key == keys[at];
            if keys.iter().filter(alike).count() > 1 {
                let number = keys[..=at].iter().filter(alike).count();
                let name = format!("{} {}", subject.name, suffix(subject.run, number));
                name.trim_end().clone_into(&mut subject.name);
            }
        }
    }
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
        let runs = [("a", at, "m"), ("b", at, "m"), ("a", at, "m"), ("a", None, "m"), ("a", None, "other")];
        let mut runs: Vec<Run> = runs.map(|(engine, at, machine)| run(engine, at, Some(machine))).into();
        runs.push(run("c", None, None));
        let subjects = Subjects::new(&runs);
        let names: Vec<&str> = subjects.runs.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a 2026-11-22 05:10:28 #1", "b", "a 2026-11-22 05:10:28 #2", "a", "a", "c"]);
        let machines: Vec<usize> = subjects.runs.iter().map(|s| s.machine).collect();
        assert_eq!((machines, subjects.machines.len()), (vec![0, 0, 0, 0, 1, 2], 3));
        assert_eq!(subjects.place(("l", 1)), "l on machine 2");
    }

    #[test]
    fn long_names_are_cut_where_they_are_shown() {
        assert_eq!((cut("äöü", 3), cut("äöüß", 3)), ("äöü".to_owned(), "äö…".to_owned()));
        assert_eq!(shown(&"x".repeat(5000)).chars().count(), LONGEST);
    }
}
