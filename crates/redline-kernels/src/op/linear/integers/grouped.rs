//! Grouped linear layers (a grouped GEMM): several of one shape, each on rows of its own, such as experts of a mixture. As separate
//! layers, each would be too small for many threads, and all threads would wait at its end.

use redline_simd::{LANES, Simd};

use super::tile::tile_rows;
use super::{Job, dot_layout, from_cache_line, part};
use crate::matrix::MatrixShape;
use crate::op::activation::ActivationFunction;
use crate::op::experts::Choice;
use crate::op::linear::{self, Epilogue, Outputs, Variant};
use crate::op::quantise::{Groups, InputLayout, Inputs};
use crate::threads::Disjoint;
use crate::{Exec, Matrix, Rows, RowsMut};

/// Maximum number of layers in a group.
pub const MAX_LAYERS: usize = 32;
/// Number of rows from which on their quantisation is shared out.
const SHARED_ROWS: usize = 8;

/// One of several layers, and how many rows it has.
#[derive(Clone, Copy, Debug)]
pub struct LayerRows<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// Added to every row; has at least as many values as the strips have outputs.
    pub bias: Option<&'a [f32]>,
    /// Number of rows, at least one.
    pub rows: usize,
}

/// Whether [`linear_grouped`] runs layers of this shape.
pub fn can_group(shape: MatrixShape) -> bool {
    shape.format.is_integer() && shape.outliers == 0
}

/// Number of scratch words that [`linear_grouped`] needs for layers of this shape with `rows` rows in all.
pub fn grouped_scratch_words(shape: MatrixShape, rows: usize) -> usize {
    dot_layout(shape, rows, 1).words() + rows.min(MAX_LAYERS) * LANES
}

/// `y[r] = activation(W x[r] + b)`, where the first rows belong to the first layer, the next to the second, and so on. With `choices`,
/// one for each row, the input of row r is not `x[r]` but `x[choices[r].row]`. Every row has the bits that [`linear`](linear::linear)
/// gives it.
///
/// There are 1 to [`MAX_LAYERS`] layers, all of one shape, for which [`can_group`] is true. Rows of `y` are written up to the next
/// multiple of 16 outputs. `scratch` holds at least [`grouped_scratch_words`] words.
pub fn linear_grouped(
    exec: Exec<'_>,
    layers: &[LayerRows<'_>],
    x: Rows<'_>,
    choices: Option<&[Choice]>,
    y: &mut RowsMut<'_>,
    activation: ActivationFunction,
    scratch: &mut [u32],
) {
    let first = layers[0].matrix;
    check(layers, x, choices, y);
    assert!(
        scratch.len() >= grouped_scratch_words(first.shape(), y.rows),
        "scratch of {} words for {} rows",
        scratch.len(),
        y.rows
    );
    let mut inputs = [Inputs::All(x); MAX_LAYERS];
    let mut places = [0; MAX_LAYERS];
    let (mut row, mut end) = (0, 0usize);
    for (i, layer) in layers.iter().enumerate() {
        inputs[i] = match choices {
            Some(choices) => Inputs::Chosen(x, &choices[row..row + layer.rows]),
            None => Inputs::All(x.some(row..row + layer.rows)),
        };
        // The same inputs as those of the layer before: with a single row in the pass, all experts have it.
        places[i] =
            if i > 0 && inputs[i].same(inputs[i - 1]) { places[i - 1] } else { end.next_multiple_of(LANES) };
        end = end.max(places[i] + layout(exec.simd, layer).words());
        row += layer.rows;
    }
    let words = &mut from_cache_line(scratch)[..end];
    quantise_each(exec, layers, &inputs, &places, words);
    let words = &*words;
    let outputs = Disjoint::new(y.data);
    let mut row = 0;
    let jobs: [Option<Job<'_>>; MAX_LAYERS] = std::array::from_fn(|i| {
        let layer = layers.get(i)?;
        let layout = layout(exec.simd, layer);
        let epilogue = Epilogue { loras: &[], bias: layer.bias, activation };
        let of_layer = Disjoint::at(outputs.get().wrapping_add(row * y.stride));
        row += layer.rows;
        let outputs = Outputs { y: of_layer, stride: y.stride, epilogue };
        Some(Job::new(exec.simd, layer.matrix, layout, &words[places[i]..], outputs))
    });
    let strips = first.strips();
    let distribution = Variant::Dot.distribution(first, y.rows.div_ceil(layers.len()));
    exec.team.split_strips(layers.len() * strips, 1, distribution, |items| {
        let mut item = items.start;
        while item < items.end {
            let (layer, strip) = (item / strips, item % strips);
            let end = items.end.min((layer + 1) * strips);
            if let Some(job) = jobs[layer] {
                part(job, strip..strip + end - item);
            }
            item = end;
        }
    });
}

fn layout(simd: Simd, layer: &LayerRows<'_>) -> InputLayout {
    dot_layout(layer.matrix.shape(), layer.rows, tile_rows(simd, layer.matrix.format()))
}

/// Quantises the inputs of every layer, unless they are those of the layer before.
fn quantise_each(
    exec: Exec<'_>,
    layers: &[LayerRows<'_>],
    inputs: &[Inputs<'_>],
    places: &[usize],
    words: &mut [u32],
) {
    let distinct = || (0..layers.len()).filter(|&i| i == 0 || places[i] != places[i - 1]);
    let units_of = |layout: InputLayout| layout.tiles() * layout.groups();
    let rows: usize = distinct().map(|i| layers[i].rows).sum();
    let units: usize = distinct().map(|i| units_of(layout(exec.simd, &layers[i]))).sum();
    let out = Disjoint::new(words);
    let least = if rows >= SHARED_ROWS { 2 } else { usize::MAX };
    exec.team.split(units, 1, least, |own| {
        let mut first = 0;
        for i in distinct() {
            let layout = layout(exec.simd, &layers[i]);
            let end = first + units_of(layout);
            let some = own.start.max(first)..own.end.min(end);
            if !some.is_empty() {
                let out = Disjoint::at(out.get().wrapping_add(places[i]));
                let units = some.start - first..some.end - first;
                let (format, x) = (layers[i].matrix.format(), inputs[i]);
                exec.simd.run(Groups { layout, format, x, skip: &[], out, units });
            }
            first = end;
        }
    });
}

/// Panics if the arguments of [`linear_grouped`] do not belong together.
fn check(layers: &[LayerRows<'_>], x: Rows<'_>, choices: Option<&[Choice]>, y: &RowsMut<'_>) {
    assert!(layers.len() <= MAX_LAYERS, "{} layers", layers.len());
    let shape = layers[0].matrix.shape();
    assert!(can_group(shape), "integers without outliers, not {}", shape.format);
    for layer in layers {
        assert_eq!(layer.matrix.shape(), shape, "shapes of layers");
        assert!(layer.rows > 0, "a layer without rows");
        linear::check(layer.matrix, x, y, layer.bias);
    }
    assert_eq!(layers.iter().map(|layer| layer.rows).sum::<usize>(), y.rows, "rows");
    match choices {
        None => assert_eq!(x.rows, y.rows, "rows"),
        Some(choices) => {
            assert_eq!(choices.len(), y.rows, "choices");
            assert!(choices.iter().all(|choice| (choice.row as usize) < x.rows), "rows below {}", x.rows);
        }
    }
}
