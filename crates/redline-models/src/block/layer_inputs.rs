//! Per-layer inputs (Gemma 4).

use redline_kernels::Matrix;

use crate::element::dense::DenseLayer;
use crate::element::norm::Norm;
use crate::step::{Act, Step};

/// `(norm(factor * projection(x)) + factor * table[token]) / sqrt(2)`, where x is the embedding; of all layers side by side.
#[derive(Debug)]
pub struct LayerInputs {
    /// `[vocab, layers * width]`
    pub table: Matrix,
    /// Factor on it.
    pub table_scale: f32,
    /// `[layers * width, hidden]`
    pub projection: DenseLayer,
    /// Factor on what it makes of the embedding.
    pub projection_scale: f32,
    /// Of the projected input of each layer.
    pub norm: Norm,
}

impl LayerInputs {
    /// `[rows, layers * width]`
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let inputs = s.dense(x, &self.projection);
        s.scale(inputs, self.projection_scale);
        s.norm_heads(inputs, &self.norm);
        let mark = s.mark();
        let of_tokens = s.embedding(&self.table, s.tokens());
        s.add_to(inputs, of_tokens, self.table_scale);
        s.release(mark);
        s.scale(inputs, std::f32::consts::FRAC_1_SQRT_2);
        inputs
    }
}
