//! A linear layer: weights in their format, bias, activation. Formats and adapters live below this line.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Matrix};

use super::tensor::{Role, Slice, StoredAs, StoredSpec, TensorSpec};
use crate::plan::Site;

/// How a linear layer's weight is oriented in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// `[out, in]` (`nn.Linear`).
    OutIn,
    /// `[in, out]` (GPT-2's `Conv1D`).
    InOut,
}

/// One or more projections of the same input, side by side.
#[derive(Clone, Debug)]
pub struct LinearSpec {
    /// Number of inputs.
    pub inputs: usize,
    /// Orientation of every part.
    pub orientation: Orientation,
    /// The parts, in the order of their outputs.
    pub parts: Vec<PartSpec>,
}

/// One projection: `{name}.weight` and, if it has one, `{name}.bias`.
#[derive(Clone, Debug)]
pub struct PartSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of outputs.
    pub outputs: usize,
    /// Whether `{name}.bias` exists.
    pub bias: bool,
    /// The tensors of a checkpoint that hold it; `None`: those of its name.
    pub stack: Option<StackSpec>,
}

/// Tensors of a checkpoint that stack the projections of all experts, or join several projections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSpec {
    /// Name of the tensor of weights: `[experts, outputs, inputs]`, or `[experts, inputs, outputs]`; without experts, the others.
    pub weight: String,
    /// Name of the tensor of biases: `[experts, outputs]`.
    pub bias: String,
    /// The expert, and the number of experts.
    pub expert: Option<(usize, usize)>,
    /// The first output of this projection, and the number of outputs of all that follow each other.
    pub rows: Option<(usize, usize)>,
    /// The outputs of several projections alternate: the index of this one, and their number.
    pub alternating: (usize, usize),
    /// How the weights are stored.
    pub stored_as: StoredAs,
}

impl LinearSpec {
    /// One projection without bias, `nn.Linear`.
    pub fn plain(name: String, inputs: usize, outputs: usize) -> Self {
        Self::of(Orientation::OutIn, inputs, [(name, outputs, false)])
    }

    /// Several projections `(name, outputs, bias)` of the same input.
    pub fn of(
        orientation: Orientation,
        inputs: usize,
        parts: impl IntoIterator<Item = (String, usize, bool)>,
    ) -> Self {
        let part = |(name, outputs, bias)| PartSpec { name, outputs, bias, stack: None };
        Self { inputs, orientation, parts: parts.into_iter().map(part).collect() }
    }

    /// Projections of equal `(inputs, outputs)` without biases that one tensor of a checkpoint holds: `{tensor}.weight`, in which that of
    /// each name has an index.
    pub fn joined<const PARTS: usize>(
        (inputs, outputs): (usize, usize),
        tensor: &str,
        parts: [(String, usize); PARTS],
    ) -> Self {
        let part =
            |(name, index)| PartSpec::of_rows(name, tensor, outputs, (index * outputs, PARTS * outputs));
        Self { inputs, orientation: Orientation::OutIn, parts: parts.into_iter().map(part).collect() }
    }

    /// Total number of outputs.
    pub fn outputs(&self) -> usize {
        self.parts.iter().map(|p| p.outputs).sum()
    }

    /// Number of weights.
    pub fn size(&self) -> usize {
        self.outputs() * self.inputs
    }

    /// Whether any part has a bias.
    pub fn has_bias(&self) -> bool {
        self.parts.iter().any(|p| p.bias)
    }

    /// The tensors of all parts.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (shape, axis) = match self.orientation {
                Orientation::OutIn => ([part.outputs, self.inputs], 0),
                Orientation::InOut => ([self.inputs, part.outputs], 1),
            };
            let stack = part.stack.as_ref();
            let stored = stack.map(|stack| stack.stored(&stack.weight, axis, stack.stored_as));
            all.push(TensorSpec { stored, ..TensorSpec::new(part.weight(), shape, Role::Weight) });
            if part.bias {
                let stored = stack.map(|stack| stack.stored(&stack.bias, 0, StoredAs::Floats));
                let bias = TensorSpec::new(part.bias_name(), [part.outputs], Role::Bias);
                all.push(TensorSpec { stored, ..bias });
            }
        }
        all
    }
}

impl PartSpec {
    /// A projection without bias whose weights are some rows of a tensor: the first one, and the number of all.
    pub fn of_rows(name: String, tensor: &str, outputs: usize, rows: (usize, usize)) -> Self {
        let stack = StackSpec::of_rows(format!("{tensor}.weight"), format!("{tensor}.bias"), rows);
        Self { name, outputs, bias: false, stack: Some(stack) }
    }

    /// Name of the weight's tensor.
    pub fn weight(&self) -> String {
        format!("{}.weight", self.name)
    }

    /// Name of the bias's tensor.
    pub fn bias_name(&self) -> String {
        format!("{}.bias", self.name)
    }
}

impl StackSpec {
    /// Floats in some rows of these tensors: the first one, and the number of all.
    pub fn of_rows(weight: String, bias: String, rows: (usize, usize)) -> Self {
        let (alternating, stored_as) = ((0, 1), StoredAs::Floats);
        Self { weight, bias, expert: None, rows: Some(rows), alternating, stored_as }
    }

    fn stored(&self, name: &str, axis: usize, stored_as: StoredAs) -> StoredSpec {
        let Self { expert: stacked, rows, alternating, .. } = *self;
        let slice = Slice { stacked, rows, alternating, axis };
        StoredSpec { name: name.to_owned(), slice, stored_as }
    }
}

/// `activation(x W^T + b)`, W `[outputs, inputs]`.
#[derive(Debug)]
pub struct Linear {
    /// Stacked by rows: one, or one for each run of projections that have a format of their own. All but the last have whole strips.
    matrices: Vec<Matrix>,
    /// Padded with zeros to whole strips.
    bias: Option<Buffer<f32>>,
    activation: ActivationFunction,
    site: Site,
}

impl Linear {
    /// At least one matrix. The bias, if any, has as many values as the matrices have rows, rounded up to a multiple of 16.
    pub fn new(
        matrices: Vec<Matrix>,
        bias: Option<Buffer<f32>>,
        activation: ActivationFunction,
        site: Site,
    ) -> Self {
        Self { matrices, bias, activation, site }
    }

    /// Its position in the layer, as named in plans.
    pub fn site(&self) -> Site {
        self.site
    }

    /// The weights, stacked by rows.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }

    /// The weights, if all have one format.
    pub fn only_matrix(&self) -> Option<&Matrix> {
        match &self.matrices[..] {
            [matrix] => Some(matrix),
            _ => None,
        }
    }

    /// Length of k.
    pub fn inputs(&self) -> usize {
        self.matrices.first().map_or(0, Matrix::cols)
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.matrices.iter().map(Matrix::rows).sum()
    }

    pub(crate) fn bias(&self) -> Option<&[f32]> {
        self.bias.as_deref()
    }

    pub(crate) fn activation(&self) -> ActivationFunction {
        self.activation
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.matrices.iter().map(Matrix::bytes).sum::<usize>() + self.bias.as_ref().map_or(0, Buffer::bytes)
    }
}
