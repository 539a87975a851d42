//! Layers on single states or pooled ones: heads of classifiers, and the dense layers of embedding models.

use redline_kernels::op::linear::{Epilogue, Variant, linear, scratch_words};
use redline_kernels::{Exec, Rows, RowsMut};
use redline_settings::Pooling;

use crate::element::dense::DenseLayer;
use crate::step::padded;

/// What a model without a head makes of a text: a number for each class.
#[derive(Debug)]
pub struct Classifier {
    /// How the states of a text become the input of the first layer.
    pub pooling: Pooling,
    /// The id that the last token of [`Pooling::Last`] does not have.
    pub padding: Option<u32>,
    /// Names of the classes, in the order of the outputs.
    pub labels: Vec<String>,
    /// The layers.
    pub layers: DenseLayers,
}

/// Layers, one after the other; may be none.
#[derive(Debug, Default)]
pub struct DenseLayers(Vec<DenseLayer>);

impl DenseLayers {
    /// Layers of which each takes the outputs of the one before it.
    pub fn new(layers: Vec<DenseLayer>) -> Self {
        Self(layers)
    }

    /// Adds a layer, which takes the outputs of the last one.
    pub fn push(&mut self, layer: DenseLayer) {
        self.0.push(layer);
    }

    /// Number of values that they make of `inputs` values.
    pub fn outputs(&self, inputs: usize) -> usize {
        self.0.last().map_or(inputs, |layer| layer.weights.rows())
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(DenseLayer::bytes).sum()
    }

    /// The outputs for one vector.
    pub fn apply(&self, exec: Exec<'_>, x: &[f32]) -> Vec<f32> {
        self.apply_rows(exec, Rows::new(x, 1, x.len(), x.len())).concat()
    }

    /// The outputs for each row. They have the same bits however many rows there are.
    pub fn apply_rows(&self, exec: Exec<'_>, x: Rows<'_>) -> Vec<Vec<f32>> {
        let rows = x.rows();
        let mut x: Vec<f32> = (0..rows).flat_map(|r| x.row(r)).copied().collect();
        for DenseLayer { weights, bias, activation, norm } in &self.0 {
            let (inputs, outputs) = (weights.cols(), weights.rows());
            let stride = padded(outputs);
            let mut y = vec![0f32; rows * stride];
            let variant = Variant::estimate(exec.simd, weights, rows);
            let epilogue = Epilogue { bias: bias.as_deref(), activation: *activation, ..Epilogue::default() };
            let mut scratch = vec![0u32; scratch_words(weights.shape(), rows)];
            let from = Rows::new(&x, rows, inputs, x.len() / rows.max(1));
            let mut to = RowsMut::new(&mut y, rows, outputs, stride);
            linear(exec, weights, from, &mut to, epilogue, variant, &mut scratch);
            if let Some(norm) = norm {
                norm.apply_in_place(exec, &mut to);
            }
            x = y;
        }
        let (width, stride) = (self.outputs(x.len() / rows.max(1)), x.len() / rows.max(1));
        x.chunks_exact(stride.max(1)).map(|row| row[..width].to_vec()).collect()
    }
}
