//! Parity with another implementation: every activation of every step against a reference dump, in the order of the pass.
//!
//! Both sides stream: a piece of an activation is compared as soon as it is computed, so neither is held as a whole. What is
//! judged is the normalised squared error of each activation; the first beyond the tolerance is where the two part.

mod difference;
mod reference;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redline_engine::{Activation, ActivationId, ActivationName, Engine, EngineError};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

pub use self::difference::{Choice, Difference, Place, TopChoice};
pub use self::reference::{Reference, SCHEMA};

/// Why there is no comparison.
#[derive(Debug)]
pub enum ParityError {
    /// The dump is not about this model, or not whole.
    Misfit {
        /// The fact with its numbers and the file.
        fact: String,
        /// What to do.
        hint: String,
    },
    /// A file of the dump cannot be read or is damaged.
    Damaged {
        /// The fact with its numbers and the file.
        fact: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The model could not be run.
    Engine(EngineError),
}

/// The largest normalised squared error that counts as parity, unless somebody says otherwise: about twice the worst that
/// rounding comes to in a single row of any activation of the golden checkpoints (`docs/parity.md`); with f32, as in their tests.
pub fn default_tolerance(format: Format, kv_format: KvFormat) -> f64 {
    let of_weights = match format {
        Format::F32 => 1e-9,
        Format::Bf16 => 2e-3,
        Format::W8 { .. } => 1e-2,
        Format::W4 { .. } => 0.9,
    };
    let of_keys = match kv_format {
        KvFormat::F32 => 1e-9,
        KvFormat::Bf16 => 4e-4,
    };
    f64::max(of_weights, of_keys)
}

/// One activation of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The step, from 0: the prompt.
    pub step: usize,
    /// Which activation.
    pub id: ActivationId,
    /// How far this model's lies from the reference's.
    pub difference: Difference,
    /// For logits: what both find most probable.
    pub top: Option<TopChoice>,
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Parity {
    /// Every activation in the order in which it was computed.
    pub lines: Vec<Line>,
    /// The largest normalised squared error that counts as parity.
    pub tolerance: f64,
}

impl Parity {
    /// Whether an activation lies beyond the tolerance.
    pub fn diverges(&self, line: &Line) -> bool {
        line.difference.nmse() > self.tolerance
    }

    /// Where the two part first, by its place among the lines; `None`: nowhere.
    pub fn first_divergence(&self) -> Option<usize> {
        self.lines.iter().position(|line| self.diverges(line))
    }

    /// The activation that lies furthest from the reference, the first of equals.
    pub fn worst(&self) -> Option<&Line> {
        self.lines.iter().reduce(
            |worst, line| {
                if line.difference.nmse() > worst.difference.nmse() { line } else { worst }
            },
        )
    }

    /// Steps.
    pub fn steps(&self) -> usize {
        self.lines.last().map_or(0, |line| line.step + 1)
    }
}

/// Runs the reference's steps and compares; `tolerance` of `None` takes the reference's own for this format, or the default.
pub fn run(engine: &Engine, reference: Reference, tolerance: Option<f64>) -> Result<Parity, ParityError> {
    reference.fits(engine.info(), engine.activations())?;
    let info = engine.info();
    let tolerance = tolerance
        .or_else(|| reference.tolerance(info.format))
        .unwrap_or_else(|| default_tolerance(info.format, info.kv_format));
    let steps = reference.steps().to_vec();
    let comparison = Arc::new(Mutex::new(Comparison::new(reference)));
    let seen = Arc::clone(&comparison);
    let log = Arc::new(move |step: usize, activation: Activation<'_>| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).see(step, activation);
    });
    engine.observe(steps, log).map_err(ParityError::Engine)?;
    let mut comparison = comparison.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = std::mem::take(&mut comparison.lines);
    match comparison.failed.take() {
        Some(error) => Err(error),
        None => Ok(Parity { lines, tolerance }),
    }
}

/// A comparison under way.
struct Comparison {
    reference: Reference,
    lines: Vec<Line>,
    places: HashMap<(usize, ActivationId), usize>,
    /// A row of the reference.
    row: Vec<f32>,
    /// Why the rest is not compared.
    failed: Option<ParityError>,
}

impl Comparison {
    fn new(reference: Reference) -> Self {
        Self { reference, lines: Vec::new(), places: HashMap::new(), row: Vec::new(), failed: None }
    }

    /// Compares the next rows of an activation.
    fn see(&mut self, step: usize, activation: Activation<'_>) {
        if self.failed.is_none() {
            self.failed = self.compare(step, activation).err();
        }
    }

    fn compare(&mut self, step: usize, activation: Activation<'_>) -> Result<(), ParityError> {
        let Activation { id, values } = activation;
        let lines = &mut self.lines;
        let place = *self.places.entry((step, id)).or_insert_with(|| {
            let top = (id.name == ActivationName::Logits).then(TopChoice::default);
            lines.push(Line { step, id, difference: Difference::default(), top });
            lines.len() - 1
        });
        let line = &mut self.lines[place];
        self.row.resize(values.width(), 0.0);
        for r in 0..values.rows() {
            self.reference.read(step, id, line.difference.rows(), &mut self.row)?;
            if let Some(top) = &mut line.top {
                top.add(values.row(r), &self.row);
            }
            line.difference.add(values.row(r), &self.row);
        }
        Ok(())
    }
}
