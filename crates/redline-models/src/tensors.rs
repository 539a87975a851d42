//! Streams the values of tensors, from a checkpoint or made up, piece by piece; a whole model is never in memory.

use redline_kernels::{Exec, Format, Matrix};
use redline_weights::{Checkpoint, Gguf};

use crate::ModelError;
use crate::checkpoint::CheckpointTensors;
use crate::formats::Formats;
use crate::gguf::tensors::GgufTensors;
use crate::quantised::QuantisedTensors;
use crate::spec::{DecoderSpec, HEAD, LinearSpec, Names, Orientation, PartSpec};

/// Number of values read at a time: whole rows, at least sixteen.
const PIECE: usize = 1 << 22;

/// A source of values. Names are those of the specification, without the family's prefix.
pub(crate) trait Tensors {
    /// Elements `first..first + out.len()` of a tensor, row-major.
    fn read(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError>;

    /// The tensors, if they store the integers and scales of a matrix in this format.
    fn quantised(&self, _name: &str, _format: Format) -> Option<&dyn QuantisedTensors> {
        None
    }
}

/// Tensors as they were trained, which match the specification exactly.
pub(crate) enum Source<'a> {
    /// Of a Hugging Face directory.
    Checkpoint(CheckpointTensors<'a>),
    /// Of a GGUF file.
    Gguf(GgufTensors<'a>),
}

impl Tensors for Source<'_> {
    fn read(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError> {
        self.read_with(name, first, out, &mut Vec::new())
    }

    fn quantised(&self, name: &str, format: Format) -> Option<&dyn QuantisedTensors> {
        match self {
            Self::Gguf(tensors) if format.is_integer() && tensors.stored_format(name) == format => {
                Some(tensors)
            }
            Self::Checkpoint(tensors) if format == Format::Mxfp4 && tensors.is_quantised(name) => {
                Some(tensors)
            }
            Self::Checkpoint(_) | Self::Gguf(_) => None,
        }
    }
}

impl<'a> Source<'a> {
    /// Checks names, shapes and types of all tensors of a GGUF file; reads no values.
    pub(crate) fn of_gguf(spec: &DecoderSpec, gguf: &'a Gguf) -> Result<Self, ModelError> {
        let (_, dialect) = crate::gguf_config::find(gguf)?;
        Ok(Self::Gguf(GgufTensors::check(spec, gguf, dialect)?))
    }

    /// Checks names and shapes of all tensors of a checkpoint; reads no values.
    pub(crate) fn check(spec: &DecoderSpec, checkpoint: &'a Checkpoint) -> Result<Self, ModelError> {
        Ok(Self::Checkpoint(CheckpointTensors::check(spec, checkpoint)?))
    }

    /// The names in a converted directory.
    pub(crate) fn names(&self, spec: &DecoderSpec) -> Names {
        match self {
            Self::Checkpoint(tensors) => tensors.names(),
            Self::Gguf(_) => spec.names(|_| true),
        }
    }

    /// Elements `first..first + out.len()` of a tensor, row-major, with a buffer that many calls can share.
    pub(crate) fn read_with(
        &self,
        name: &str,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        match self {
            Self::Checkpoint(tensors) => tensors.read_with(name, first, out, buffer),
            Self::Gguf(tensors) => tensors.read_with(name, first, out, buffer),
        }
    }

    /// The name in the files.
    pub(crate) fn name(&self, name: &str) -> String {
        match self {
            Self::Checkpoint(tensors) => tensors.name(name),
            Self::Gguf(tensors) => tensors.name(name),
        }
    }

    /// The formats that the matrices are stored in.
    pub(crate) fn stored_formats(&self, spec: &DecoderSpec) -> Formats {
        match self {
            Self::Checkpoint(tensors) => tensors.stored_formats(spec),
            Self::Gguf(tensors) => Formats::each(spec, |weight| tensors.stored_format(weight)),
        }
    }

    /// Checks the head tensor that some tied checkpoints contain. If it differs from the embedding, it contradicts the
    /// configuration; the reference would use it with a warning.
    pub(crate) fn check_tied(&self, spec: &DecoderSpec) -> Result<(), ModelError> {
        let Self::Checkpoint(tensors) = self else { return Ok(()) };
        let checkpoint = tensors.checkpoint();
        if !(spec.tied && spec.objective.predicts()) || checkpoint.info(HEAD).is_none() {
            return Ok(());
        }
        let embedding = format!("{}.weight", spec.embedding);
        let elements = spec.vocab * spec.hidden;
        let (mut a, mut b) = (vec![0f32; PIECE.min(elements)], vec![0f32; PIECE.min(elements)]);
        for first in (0..elements).step_by(PIECE) {
            let now = PIECE.min(elements - first);
            self.read(HEAD, first, &mut a[..now])?;
            self.read(&embedding, first, &mut b[..now])?;
            if a[..now] != b[..now] {
                let file = checkpoint.origin().display().to_string();
                let fact = format!("`tie_word_embeddings` is true, but `{HEAD}` differs from the embedding");
                return Err(ModelError::Config { fact, file });
            }
        }
        Ok(())
    }
}

/// Some rows of a projection.
pub(crate) struct Piece<'a> {
    /// Index of the first row among the part's outputs.
    pub(crate) first: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    values: &'a [f32],
    orientation: Orientation,
}

impl Piece<'_> {
    /// Packs them as rows `first..` of a matrix.
    pub(crate) fn pack(&self, exec: Exec<'_>, matrix: &mut Matrix, first: usize) {
        match self.orientation {
            Orientation::OutIn => matrix.set_rows(exec, first, self.values),
            Orientation::InOut => matrix.set_rows_transposed(exec, first, self.values),
        }
    }

    /// Raises `max` to the largest magnitude of each column.
    pub(crate) fn raise(&self, max: &mut [f32]) {
        match self.orientation {
            Orientation::OutIn => {
                for row in self.values.chunks_exact(max.len()) {
                    max.iter_mut().zip(row).for_each(|(max, value)| *max = max.max(value.abs()));
                }
            }
            Orientation::InOut => {
                for (max, column) in max.iter_mut().zip(self.values.chunks_exact(self.rows)) {
                    *max = max.max(magnitude(column));
                }
            }
        }
    }

    /// The values, in the order of the checkpoint.
    pub(crate) fn values(&self) -> &[f32] {
        self.values
    }
}

/// Refuses a weight that the format cannot hold.
pub(crate) fn check_magnitude(values: &[f32], name: &str, format: Format) -> Result<(), ModelError> {
    let (magnitude, largest) = (magnitude(values), format.largest());
    if magnitude > largest {
        return Err(ModelError::TooLarge {
            name: name.to_owned(),
            magnitude,
            format: format.to_string(),
            largest,
        });
    }
    Ok(())
}

/// The largest magnitude of finite values.
pub(crate) fn magnitude(values: &[f32]) -> f32 {
    // Several maxima at once, so that they fit a vector.
    let (chunks, rest) = values.as_chunks::<16>();
    let mut max = [0f32; 16];
    for chunk in chunks {
        for (max, value) in max.iter_mut().zip(chunk) {
            let magnitude = value.abs();
            *max = if magnitude > *max { magnitude } else { *max };
        }
    }
    rest.iter().chain(&max).fold(0.0, |max, value| value.abs().max(max))
}

/// Number of rows of a projection that are read at a time: whole strips.
pub(crate) fn piece_rows(linear: &LinearSpec, part: &PartSpec) -> usize {
    (PIECE / linear.inputs.max(1)).max(16).next_multiple_of(16).min(part.outputs)
}

/// Passes the rows of one projection to `take`, in pieces and in order, or all at once if inputs come first.
pub(crate) fn pieces(
    tensors: &impl Tensors,
    linear: &LinearSpec,
    part: &PartSpec,
    mut take: impl FnMut(&Piece<'_>) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let name = part.weight();
    let rows = match linear.orientation {
        Orientation::OutIn => piece_rows(linear, part),
        Orientation::InOut => part.outputs,
    };
    let mut values = vec![0f32; rows * linear.inputs];
    for first in (0..part.outputs).step_by(rows.max(1)) {
        let rows = rows.min(part.outputs - first);
        let values = &mut values[..rows * linear.inputs];
        tensors.read(&name, first * linear.inputs, values)?;
        take(&Piece { first, rows, values, orientation: linear.orientation })?;
    }
    Ok(())
}

/// Number of outlier columns of a layer's input.
pub(crate) fn outlier_count(linear: &LinearSpec, fraction: f64) -> usize {
    (fraction * linear.inputs as f64).round() as usize
}

/// The outlier columns of a layer's input: the share `fraction` with the largest magnitudes over all its projections,
/// ascending.
pub(crate) fn outlier_columns(
    tensors: &impl Tensors,
    linear: &LinearSpec,
    fraction: f64,
) -> Result<Vec<u32>, ModelError> {
    let count = outlier_count(linear, fraction);
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut max = vec![0f32; linear.inputs];
    for part in &linear.parts {
        pieces(tensors, linear, part, |piece| {
            piece.raise(&mut max);
            Ok(())
        })?;
    }
    let mut order: Vec<u32> = (0..linear.inputs as u32).collect();
    order.sort_by(|&a, &b| max[b as usize].total_cmp(&max[a as usize]).then(a.cmp(&b)));
    order.truncate(count);
    order.sort_unstable();
    Ok(order)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::spec::PartSpec;

    /// Projections of three outputs and eight inputs, in which one column is large.
    struct Columns(&'static [(&'static str, usize)], Orientation);

    impl Tensors for Columns {
        fn read(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError> {
            let (_, large) = self.0.iter().find(|(part, _)| name == format!("{part}.weight")).unwrap();
            for (at, value) in (first..).zip(out) {
                let column = match self.1 {
                    Orientation::OutIn => at % 8,
                    Orientation::InOut => at / 3,
                };
                *value = if column == *large { -4.0 } else { 0.5 };
            }
            Ok(())
        }
    }

    #[test]
    fn columns_are_kept_apart_for_the_largest_weight_of_any_projection() {
        for orientation in [Orientation::OutIn, Orientation::InOut] {
            let columns = Columns(&[("q", 6), ("k", 1), ("v", 3)], orientation);
            let part = |name: &str| PartSpec { name: name.into(), outputs: 3, bias: false, stack: None };
            let parts = ["q", "k", "v"].map(part).to_vec();
            let linear = LinearSpec { inputs: 8, orientation, parts };
            let kept = |fraction| outlier_columns(&columns, &linear, fraction).unwrap();
            assert_eq!(kept(3.0 / 8.0), [1, 3, 6], "{orientation:?}");
            assert_eq!(kept(4.0 / 8.0), [0, 1, 3, 6], "{orientation:?}: of equals the first");
            assert_eq!(kept(0.0), [0; 0]);
        }
    }

    /// Zeros; records the ranges that are read.
    #[derive(Default)]
    struct Recorded(RefCell<Vec<(usize, usize)>>);

    impl Tensors for Recorded {
        fn read(&self, _: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError> {
            self.0.borrow_mut().push((first, out.len()));
            Ok(())
        }
    }

    #[test]
    fn a_large_projection_comes_in_pieces_of_whole_strips() {
        // First rows and numbers of rows of the pieces, and the ranges read.
        let cut = |inputs: usize, outputs: usize, orientation: Orientation| {
            let tensors = Recorded::default();
            let part = PartSpec { name: "q".into(), outputs, bias: false, stack: None };
            let linear = LinearSpec { inputs, orientation, parts: vec![part.clone()] };
            let mut taken = Vec::new();
            let passed = pieces(&tensors, &linear, &part, |piece| {
                taken.push((piece.first, piece.rows));
                Ok(())
            });
            passed.unwrap();
            (taken, tensors.0.into_inner())
        };
        // 2^22 values are 20 of these rows, or 13, so two strips are read at a time, or one.
        let (taken, read) = cut(200_000, 70, Orientation::OutIn);
        assert_eq!(taken, [(0, 32), (32, 32), (64, 6)]);
        assert_eq!(read, [(0, 6_400_000), (6_400_000, 6_400_000), (12_800_000, 1_200_000)]);
        let (taken, read) = cut(300_000, 17, Orientation::OutIn);
        assert_eq!(taken, [(0, 16), (16, 1)]);
        assert_eq!(read, [(0, 4_800_000), (4_800_000, 300_000)]);
        // Stored inputs first, no part of it is a range.
        assert_eq!(cut(200_000, 70, Orientation::InOut), (vec![(0, 70)], vec![(0, 14_000_000)]));
    }
}
