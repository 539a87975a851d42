//! Parity with another implementation: compares every activation of every step with a reference dump, in the order of the
//! pass.
//!
//! Both sides are streamed: a piece of an activation is compared as soon as it is computed, so neither side is held in
//! memory as a whole. The criterion is the normalised squared error of each activation; the first one beyond the tolerance
//! is where the implementations diverge.

#![forbid(unsafe_code)]

mod difference;
mod reference;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redline_engine::{Activation, ActivationId, ActivationName, Engine, EngineError};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

pub use self::difference::{ActivationDifference, RowChoice, TopChoice, ValuePosition};
pub use self::reference::{Reference, SCHEMA};

/// Why a comparison failed.
#[derive(Debug)]
pub enum ParityError {
    /// The dump is for another model, or incomplete.
    Misfit {
        /// The fact with its numbers and the file.
        fact: String,
        /// Advice for the user.
        hint: String,
    },
    /// A file of the dump cannot be read or is damaged.
    Damaged {
        /// The fact with its numbers and the file.
        fact: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The model could not be run.
    Engine(EngineError),
}

/// The default tolerance of the normalised squared error: about twice the largest rounding error in a single row of any
/// activation of the golden checkpoints (`docs/parity.md`); with f32, the same as in their tests.
pub fn default_tolerance(format: Format, kv_format: KvFormat) -> f64 {
    let of_weights = match format {
        Format::F32 => 1e-9,
        Format::Bf16 | Format::F16 => 2e-3,
        Format::W8 { .. } => 1e-2,
        _ => 0.9,
    };
    let of_keys = match kv_format {
        KvFormat::F32 => 1e-9,
        KvFormat::Bf16 => 4e-4,
        KvFormat::F16 => 1e-5,
        KvFormat::W8 => 3e-3,
        KvFormat::W4 => 0.3,
    };
    f64::max(of_weights, of_keys)
}

/// One activation of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedActivation {
    /// The step; step 0 is the prompt.
    pub step: usize,
    /// The activation.
    pub id: ActivationId,
    /// The difference from the reference.
    pub difference: ActivationDifference,
    /// For logits, the most probable tokens of both sides.
    pub top: Option<TopChoice>,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct ParityReport {
    /// All activations in the order in which they were computed.
    pub lines: Vec<ComparedActivation>,
    /// The largest normalised squared error within the tolerance.
    pub tolerance: f64,
}

impl ParityReport {
    /// Whether an activation is beyond the tolerance.
    pub fn diverges(&self, line: &ComparedActivation) -> bool {
        line.difference.nmse() > self.tolerance
    }

    /// The index of the first line beyond the tolerance; `None` if there is none.
    pub fn first_divergence(&self) -> Option<usize> {
        self.lines.iter().position(|line| self.diverges(line))
    }

    /// The line with the largest error; the first one on a tie.
    pub fn worst(&self) -> Option<&ComparedActivation> {
        let nmse = |line: &ComparedActivation| line.difference.nmse();
        self.lines.iter().reduce(|worst, line| if nmse(line) > nmse(worst) { line } else { worst })
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.lines.last().map_or(0, |line| line.step + 1)
    }
}

/// Runs the reference's steps and compares. A `tolerance` of `None` takes the dump's own tolerance for this format, or the
/// default.
pub fn run(
    engine: &Engine,
    reference: Reference,
    tolerance: Option<f64>,
) -> Result<ParityReport, ParityError> {
    reference.fits(engine.info(), engine.activations())?;
    let info = engine.info();
    let tolerance = tolerance
        .or_else(|| reference.tolerance(info.format))
        .unwrap_or_else(|| default_tolerance(info.format, info.kv_format));
    let steps = reference.steps().cloned().collect();
    let (lines, places, row, failed) = (Vec::new(), HashMap::new(), Vec::new(), None);
    let comparison = Arc::new(Mutex::new(Comparison { reference, lines, places, row, failed }));
    let seen = Arc::clone(&comparison);
    let log = Arc::new(move |step: usize, activation: Activation<'_>| {
        let mut comparison = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if comparison.failed.is_none() {
            comparison.failed = comparison.compare(step, activation).err();
        }
    });
    engine.observe(steps, log).map_err(ParityError::Engine)?;
    let mut comparison = comparison.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = std::mem::take(&mut comparison.lines);
    comparison.failed.take().map_or(Ok(ParityReport { lines, tolerance }), Err)
}

struct Comparison {
    reference: Reference,
    lines: Vec<ComparedActivation>,
    places: HashMap<(usize, ActivationId), usize>,
    /// Buffer for a row of the reference.
    row: Vec<f32>,
    /// The error that ended the comparison early, if any.
    failed: Option<ParityError>,
}

impl Comparison {
    fn compare(&mut self, step: usize, activation: Activation<'_>) -> Result<(), ParityError> {
        let Activation { id, values } = activation;
        let lines = &mut self.lines;
        let place = *self.places.entry((step, id)).or_insert_with(|| {
            let top = (id.name == ActivationName::Logits).then(TopChoice::default);
            lines.push(ComparedActivation { step, id, difference: ActivationDifference::default(), top });
            lines.len() - 1
        });
        let line = &mut self.lines[place];
        self.row.resize(values.width(), 0.0);
        for r in 0..values.rows() {
            self.reference.read(step, id, line.difference.rows, &mut self.row)?;
            if let Some(top) = &mut line.top {
                top.add(values.row(r), &self.row);
            }
            line.difference.add(values.row(r), &self.row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: usize, own: f32, reference: f32) -> ComparedActivation {
        let id = ActivationId { layer: None, name: ActivationName::Logits };
        let mut difference = ActivationDifference::default();
        difference.add(&[own], &[reference]);
        ComparedActivation { step, id, difference, top: None }
    }

    #[test]
    fn an_error_of_the_tolerance_itself_is_within_it() {
        let lines = vec![line(0, 2.0, 2.0), line(1, 3.0, 2.0), line(2, 3.0, 2.0)];
        let report = ParityReport { lines, tolerance: 0.25 };
        assert_eq!((report.first_divergence(), report.steps()), (None, 3));
        assert_eq!(report.worst().map(|line| line.step), Some(1), "of equal errors the first");
        let strict = ParityReport { tolerance: 0.24, ..report };
        assert_eq!(strict.first_divergence(), Some(1));
    }
}
