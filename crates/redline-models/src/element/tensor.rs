//! Tensors as checkpoints hold them.

/// A tensor as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name without the family's prefix.
    pub name: String,
    /// Shape, in the file too unless that holds it as a part of another tensor.
    pub shape: Vec<usize>,
    /// Its role, for generating random values.
    pub role: Role,
    /// The tensor of a checkpoint that it is a part of.
    pub stored: Option<StoredSpec>,
}

/// The tensor of a checkpoint that another one is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSpec {
    /// Name without the family's prefix.
    pub name: String,
    /// The part.
    pub slice: Slice,
    /// How the values are stored.
    pub stored_as: StoredAs,
}

/// How a checkpoint stores values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// As floats.
    Floats,
    /// As four-bit floats in blocks with scales, in two tensors ([`redline_weights::Checkpoint::require_blocks`]).
    Mxfp4,
}

/// The part of a tensor in a file that is a tensor of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The index of the part, and the number of those that are stacked in a first dimension of their own.
    pub stacked: Option<(usize, usize)>,
    /// The first row of the part, and the number of rows of all parts that follow each other.
    pub rows: Option<(usize, usize)>,
    /// The outputs of several parts alternate: the index of this one, and their number.
    pub alternating: (usize, usize),
    /// The dimension of the outputs, without that of the stack.
    pub axis: usize,
}

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A matrix or an embedding.
    Weight,
    /// A norm's scale, or another factor near one.
    Scale,
    /// A norm's scale less one.
    ScaleLessOne,
    /// Added to something.
    Bias,
    /// The taps of a convolution, `[channels, 1, taps]`; in memory `[taps, channels]`.
    Taps,
    /// The logarithm of what a state decays by, `[heads]`; in memory -exp of it.
    LogDecay,
    /// What a state decays by, `[heads]`, negative.
    Decay,
}

impl TensorSpec {
    /// A tensor of the checkpoint, whole.
    pub fn new(name: String, shape: impl Into<Vec<usize>>, role: Role) -> Self {
        Self { name, shape: shape.into(), role, stored: None }
    }
}

impl Slice {
    /// The shape of the tensor in the file.
    pub fn shape(&self, part: &[usize]) -> Vec<usize> {
        let mut shape = part.to_vec();
        if let Some(outputs) = shape.get_mut(self.axis) {
            *outputs *= self.alternating.1;
        }
        if let (Some(rows), Some((_, all))) = (shape.first_mut(), self.rows) {
            *rows = all;
        }
        if let Some((_, count)) = self.stacked {
            shape.insert(0, count);
        }
        shape
    }
}
