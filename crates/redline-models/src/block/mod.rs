//! The building blocks of models. A block's file holds all that is to be known of it: what it is made of, its tensors' names in GGUF
//! files, its activations, its memory, its operations, and its forward pass, which reads as the paper.
//!
//! A block of a layer has two [`BuildStage`]s. An architecture writes it [`Described`], with names and shapes; it runs when it is
//! [`Loaded`], with weights.
//! A block's `map` goes over its elements, in the order of the forward pass, and makes the same block of another stage. Loading, checking,
//! converting and adapting to a GGUF file are such maps; [`elements`] lists what they go over.

pub mod attention;
pub mod decoder;
pub mod delta_net;
pub mod dense;
pub mod dense_and_experts;
pub mod embedding;
pub mod experts;
pub mod ffn;
pub mod layer;
pub mod layer_end;
pub mod layer_inputs;
pub mod mamba2;
pub mod mixer;
pub mod mlp;
pub mod parallel;
pub mod short_conv;

use std::convert::Infallible;
use std::fmt::Debug;

use redline_kernels::Buffer;
use redline_kernels::op::activation::ActivationFunction;

use crate::activation::ActivationName;
use crate::element::linear::{Linear, LinearSpec};
use crate::element::norm::{Norm, NormSpec};
use crate::element::tensor::TensorSpec;
use crate::plan::Site;
use crate::step::Act;
use layer::Layer;
use mlp::Mlp;

/// The types of a block's elements at one stage.
pub trait BuildStage: Sized {
    /// A linear layer.
    type Linear: Debug;
    /// A normalisation.
    type Norm: Debug;
    /// Values that are f32 in every format.
    type Values: Debug;

    /// Whether experts of few rows run in groups.
    fn can_group(_experts: &[Mlp<Self>]) -> bool {
        false
    }
}

/// Names and shapes.
#[derive(Clone, Copy, Debug)]
pub enum Described {}

impl BuildStage for Described {
    type Linear = LinearSpec;
    type Norm = NormSpec;
    type Values = TensorSpec;
}

/// Weights in memory.
#[derive(Debug)]
pub enum Loaded {}

impl BuildStage for Loaded {
    type Linear = Linear;
    type Norm = Norm;
    type Values = Buffer<f32>;

    fn can_group(experts: &[Mlp<Self>]) -> bool {
        experts::can_be_grouped(experts)
    }
}

/// No result, for maps that only visit elements.
#[derive(Debug)]
pub enum Visited {}

impl BuildStage for Visited {
    type Linear = ();
    type Norm = ();
    type Values = ();
}

/// Makes the elements of a block of stage `T` from those of stage `S`.
pub trait Map<'a, S: BuildStage, T: BuildStage> {
    /// Why an element cannot be made.
    type Error;

    /// Makes a linear layer.
    fn linear(&mut self, linear: &'a S::Linear, role: LinearRole) -> Result<T::Linear, Self::Error>;
    /// Makes a normalisation. `gguf` is its name in GGUF files, after that of the layer.
    fn norm(
        &mut self,
        norm: &'a S::Norm,
        name: ActivationName,
        gguf: &'static str,
    ) -> Result<T::Norm, Self::Error>;
    /// Makes values. `gguf` is the name of their tensor in GGUF files, after that of the layer.
    fn values(&mut self, values: &'a S::Values, gguf: &'static str) -> Result<T::Values, Self::Error>;
}

/// What a linear layer is in its block.
#[derive(Clone, Copy, Debug)]
pub struct LinearRole {
    /// Its position.
    pub site: Site,
    /// Applied to its outputs.
    pub activation: ActivationFunction,
    /// Its tensors in GGUF files.
    pub gguf: GgufNames,
}

impl LinearRole {
    /// A linear layer of one projection, without an activation.
    pub const fn plain(site: Site, gguf: &'static str) -> Self {
        let gguf = GgufNames { whole: gguf, parts: &[], rotated: None, stacked: None };
        Self { site, activation: ActivationFunction::None, gguf }
    }
}

/// The tensors of a linear layer in GGUF files. Names stand after that of the layer.
#[derive(Clone, Copy, Debug)]
pub struct GgufNames {
    /// The name if there is one projection.
    pub whole: &'static str,
    /// The names if there are several.
    pub parts: &'static [&'static str],
    /// Number of values of a head, if the outputs of all of `parts` but the last are rotated.
    pub rotated: Option<usize>,
    /// The index of the expert, and the number of experts that one tensor stacks.
    pub stacked: Option<(usize, usize)>,
}

/// What [`mixer::Mixer::begin`] returns and [`mixer::Mixer::finish`] needs. The second activation has columns only in
/// [`parallel::Parallel`], and in [`attention::Attention`] whose rows add numbers of their own to logits.
pub type Begun = [Act; 2];

/// Operations of a mixer: multiplications with an addition each.
#[derive(Clone, Copy, Debug)]
pub struct MixerOperations {
    /// Of the linear layers that run for every row, because later rows need what they return. The others run only for the rows that
    /// later layers need.
    pub of_every_row: usize,
    /// Of a recurrence, for every row.
    pub recurrence: usize,
    /// For each pair of a row and a key that it sees.
    pub per_key: usize,
}

/// An element of a block.
#[derive(Debug)]
pub enum BlockElement<'a, S: BuildStage> {
    /// A linear layer.
    Linear(&'a S::Linear, LinearRole),
    /// A normalisation, and its name in GGUF files.
    Norm(&'a S::Norm, &'static str),
    /// Values, and the name of their tensor in GGUF files.
    Values(&'a S::Values, &'static str),
}

/// The elements of a layer, in the order of the forward pass.
pub fn elements<S: BuildStage>(layer: &Layer<S>) -> Vec<BlockElement<'_, S>> {
    let mut all = Elements(Vec::new());
    let Ok(_) = layer.map(&mut all);
    all.0
}

/// Records elements.
struct Elements<'a, S: BuildStage>(Vec<BlockElement<'a, S>>);

impl<'a, S: BuildStage> Map<'a, S, Visited> for Elements<'a, S> {
    type Error = Infallible;

    fn linear(&mut self, linear: &'a S::Linear, role: LinearRole) -> Result<(), Infallible> {
        self.0.push(BlockElement::Linear(linear, role));
        Ok(())
    }

    fn norm(&mut self, norm: &'a S::Norm, _: ActivationName, gguf: &'static str) -> Result<(), Infallible> {
        self.0.push(BlockElement::Norm(norm, gguf));
        Ok(())
    }

    fn values(&mut self, values: &'a S::Values, gguf: &'static str) -> Result<(), Infallible> {
        self.0.push(BlockElement::Values(values, gguf));
        Ok(())
    }
}
