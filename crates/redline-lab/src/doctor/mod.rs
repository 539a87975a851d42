//! The doctor's report: a description of the machine, its measured limits, and anything that would disturb a
//! measurement.
//!
//! A report is a pure function of the [`Machine`] and of the tiers and limits that the caller measured. Every remark
//! follows from the fact beside it.

pub mod noise;
mod sections;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::document;
use redline_system::Machine;

/// An instruction-set tier and whether it can run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TierStatus {
    /// The tier's name.
    pub name: String,
    /// Whether this machine has it.
    pub available: bool,
    /// Why not, or another remark.
    pub reason: Option<String>,
}

/// A limit of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// What is limited, such as `read bandwidth`.
    pub name: String,
    /// The number of threads it was measured with.
    pub threads: usize,
    /// The measured value; `None` if it was not measured.
    pub value: Option<f64>,
    /// Its unit, such as `GB/s`.
    pub unit: String,
    /// The share of its threads that arrived in time, from 0 to 1; `None` for a single thread. If it is low, other processes
    /// kept cores busy, and the measured value is too low.
    pub present: Option<f64>,
}

/// A report on a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doctor {
    machine: Machine,
    features: BTreeMap<String, bool>,
    tiers: Vec<TierStatus>,
    limits: Vec<Limit>,
    /// The sections of the report.
    pub sections: Vec<Section>,
}

/// A group of lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// The title of the section.
    pub title: String,
    /// The lines.
    pub entries: Vec<Entry>,
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name of the fact.
    pub name: String,
    /// The fact; `unknown` if it could not be read.
    pub value: String,
    /// A conclusion from the fact, if there is one.
    pub remark: Option<String>,
}

impl Doctor {
    /// Builds the report from a machine, its vector extensions (`has_NAME` in JSON), the status of its tiers and its measured
    /// limits.
    pub fn examine(
        machine: Machine,
        extensions: impl IntoIterator<Item = (&'static str, bool)>,
        tiers: Vec<TierStatus>,
        limits: Vec<Limit>,
    ) -> Self {
        let features = extensions.into_iter().map(|(name, has)| (format!("has_{name}"), has)).collect();
        let sections = sections::all(&machine, &tiers, &limits);
        Self { machine, features, tiers, limits, sections }
    }

    /// The report as text: sections with names and values in columns, and each remark below its line.
    pub fn text(&self) -> String {
        let names = self.sections.iter().flat_map(|s| &s.entries).map(|e| e.name.chars().count());
        let width = names.max().unwrap_or(0);
        let mut text = format!("{}\n", self.machine.one_line());
        for section in &self.sections {
            text.push_str(&format!("\n{}\n", section.title));
            for entry in &section.entries {
                text.push_str(&format!("  {:<width$}  {}\n", entry.name, entry.value));
                for line in entry.remark.iter().flat_map(|r| r.lines()) {
                    text.push_str(&format!("  {:<width$}  > {line}\n", ""));
                }
            }
        }
        text
    }

    /// The report as one JSON document, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        document::json("redline.doctor/1", self)
    }
}
