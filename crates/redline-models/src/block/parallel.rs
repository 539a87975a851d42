//! Attention and Mamba-2 side by side: both read the same rows, and their outputs are added (Falcon-H1, 2025).

use super::attention::Attention;
use super::mamba2::Mamba2;
use super::{Begun, BuildStage, Described, Loaded, Map, MixerOperations};
use crate::activation::ActivationName;
use crate::step::{Act, Step};

/// `attention_scale * attention(x) + recurrence_scale * recurrence(x)`
#[derive(Debug)]
pub struct Parallel<S: BuildStage> {
    /// Attention.
    pub attention: Attention<S>,
    /// Factor on its output.
    pub attention_scale: f32,
    /// Mamba-2.
    pub recurrence: Mamba2<S>,
    /// Factor on its output.
    pub recurrence_scale: f32,
}

/// Both as an architecture describes them.
pub type ParallelSpec = Parallel<Described>;

impl<S: BuildStage> Parallel<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Parallel<T>, M::Error> {
        Ok(Parallel {
            attention: self.attention.map(to)?,
            attention_scale: self.attention_scale,
            recurrence: self.recurrence.map(to)?,
            recurrence_scale: self.recurrence_scale,
        })
    }
}

impl Parallel<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(ActivationName, usize)> {
        let (mut begun, mut recurs) = (self.attention.activations(), self.recurrence.activations());
        let (attended, projected) = (begun.split_off(begun.len() - 2), recurs.split_off(recurs.len() - 1));
        [begun, recurs, attended, projected].concat()
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        self.attention.values_per_row() + self.recurrence.values_per_row()
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        let (attention, recurrence) = (self.attention.operations(), self.recurrence.operations());
        MixerOperations {
            of_every_row: attention.of_every_row + recurrence.of_every_row,
            recurrence: recurrence.recurrence,
            per_key: attention.per_key,
        }
    }
}

impl Parallel<Loaded> {
    /// The part of every row of both.
    pub fn begin(&self, x: Act, s: &mut Step<'_>) -> Begun {
        let [queries, bias] = self.attention.store(x, s);
        assert_eq!(bias.width(), 0, "rows without a bias of their own");
        [queries, self.recurrence.recur(x, s)]
    }

    /// The sum of both outputs.
    pub fn finish(&self, [queries, y]: Begun, s: &mut Step<'_>) -> Act {
        let attended = self.attention.attend([queries, queries.columns(0, 0)], s);
        let sum = self.recurrence.project(y, s);
        s.scale(sum, self.recurrence_scale);
        s.add_to(sum, attended, self.attention_scale);
        sum
    }
}
