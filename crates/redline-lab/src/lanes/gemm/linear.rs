//! What the measurements of linear layers share: shapes and formats, and weights of noise, several times, so that they come from
//! memory as in a model of many layers.

use redline_kernels::{Exec, Format, Matrix};
use redline_models::random::{STEP, mix};
use redline_models::spec::DecoderSpec;
use redline_models::synth::{SHAPES, Shape};

use super::Flags;
use crate::bench::{Flag, LaneError, Result};

/// Outputs per strip; output rows are padded to whole strips.
pub(crate) const STRIP: usize = 16;
/// Rows of weights generated at a time.
const CHUNK: usize = 256;

/// The numbers of outputs and inputs of the layers that the flags ask for.
pub(super) fn shapes(flags: &Flags) -> Result<Vec<(usize, usize)>> {
    match flags.shape {
        None => Ok(vec![(flags.outputs, flags.inputs)]),
        Some(shape) => Ok(layers(&shape.spec().map_err(|e| LaneError::Usage(e.to_string()))?)),
    }
}

/// Parses the name of a model's shape.
pub(super) fn shape(flag: &Flag, text: &str) -> Result<&'static Shape> {
    let names: Vec<(&str, &Shape)> = SHAPES.iter().map(|shape| (shape.name, shape)).collect();
    flag.choice(text, &names)
}

/// Outputs and inputs of the linear layers of a decoder, without duplicates.
fn layers(spec: &DecoderSpec) -> Vec<(usize, usize)> {
    let mut shapes = Vec::new();
    for layer in &spec.layers {
        for (_, linear) in layer.linears() {
            let shape = (linear.outputs(), linear.inputs);
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    shapes
}

/// Parses a format, with or without a group: `w8`, `w4g32`.
pub(super) fn format(text: &str) -> Result<Format> {
    let text = text.trim();
    let groups = |&format: &Format| format.groups().iter().filter_map(move |&group| format.with_group(group));
    let grouped = |format: &Format| Some((text.strip_prefix(format.name())?.strip_prefix('g')?, *format));
    let with_group = || {
        let (group, format) = Format::ALL.iter().find_map(grouped)?;
        format.is_integer().then(|| format.with_group(group.parse().ok()?)).flatten()
    };
    Format::parse(text).or_else(with_group).ok_or_else(|| {
        let mut names: Vec<String> = Format::ALL.iter().map(ToString::to_string).collect();
        names.extend(Format::ALL.iter().flat_map(groups).map(|f| f.to_string()).filter(|n| n.contains('g')));
        LaneError::Usage(format!("`--formats` has `{text}`, but one of {} is needed", names.join(", ")))
    })
}

/// An endless sequence of numbers, uniform in `[-spread, spread)`: SplitMix64's finaliser over a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub(crate) seed: u64,
    pub(crate) spread: f32,
}

impl Noise {
    /// Generates the values from `first` on.
    pub(crate) fn fill(self, first: usize, out: &mut [f32]) {
        for (i, value) in out.iter_mut().enumerate() {
            let z = STEP.wrapping_mul((first + i) as u64 + 1).wrapping_add(self.seed << 32);
            *value = ((mix(z) >> 40) as f32 / 8_388_608.0 - 1.0) * self.spread;
        }
    }

    /// A matrix `[n, k]` of these values, row by row.
    pub(crate) fn matrix(self, exec: Exec<'_>, format: Format, (n, k): (usize, usize)) -> Result<Matrix> {
        let mut matrix = Matrix::zeroed(format, n, k)?;
        let mut values = vec![0f32; CHUNK.min(n) * k];
        for first in (0..n).step_by(CHUNK) {
            let values = &mut values[..CHUNK.min(n - first) * k];
            self.fill(first * k, values);
            matrix.set_rows(exec, first, values);
        }
        Ok(matrix)
    }
}

/// A matrix and enough copies of it to fill `bytes`, each in its own memory.
pub(crate) fn copies(matrix: Matrix, bytes: usize) -> Result<Vec<Matrix>> {
    let mut matrices = vec![matrix];
    while matrices.len() * matrices[0].bytes() < bytes {
        matrices.push(copy(&matrices[0])?);
    }
    Ok(matrices)
}

/// Copies a matrix into its own memory.
pub(crate) fn copy(matrix: &Matrix) -> Result<Matrix> {
    let mut copied = Matrix::zeroed(matrix.format(), matrix.rows(), matrix.cols())?;
    let strips = 0..matrix.strips();
    for ((_, to), (_, from)) in copied.planes_mut(strips.clone()).zip(matrix.planes(strips)) {
        to.copy_from_slice(from);
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_and_without_groups() {
        let all = Format::ALL.iter().flat_map(|f| {
            let groups = f.groups().iter().filter_map(|&g| f.with_group(g));
            groups.chain([*f]).collect::<Vec<_>>()
        });
        for one in all {
            assert_eq!(format(&one.to_string()).unwrap(), one);
        }
        assert_eq!(format("w8g128").unwrap(), format("w8").unwrap());
        for bad in ["", "w8g", "w8g7", "w4g0", "f32g0", "w5", "w8g128 x", "g128"] {
            let LaneError::Usage(fact) = format(bad).unwrap_err() else { panic!("{bad}") };
            assert!(fact.contains("w8g0") && fact.contains("w4g32") && fact.contains("bf16"), "{fact}");
        }
    }

    #[test]
    fn layers_of_a_shape() {
        let shapes = |given: &[(&'static str, &str)]| shapes(&Flags::with(given)?);
        // 32 query heads and 8 KV heads of 64 over 2048; gate and up of 8192 each.
        let expected = [(3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)];
        assert_eq!(shapes(&[("shape", "llama-3.2-1b")]).unwrap(), expected);
        assert_eq!(shapes(&[("n", "3"), ("k", "5")]).unwrap(), [(3, 5)]);
        let Err(LaneError::Usage(fact)) = shapes(&[("shape", "gpt")]) else { panic!("accepted") };
        assert!(fact.contains("gpt2") && fact.contains("llama-3.2-1b"), "{fact}");
    }
}
