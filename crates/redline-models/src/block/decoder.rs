//! All layers, with the embedding before them.

use super::Loaded;
use super::embedding::Embedding;
use super::layer::Layer;
use super::layer_inputs::LayerInputs;
use crate::element::norm::Norm;
use crate::step::{Act, Step};

/// Embedding, layers and final norm. The head is applied only to chosen rows, by [`crate::Model::logits`].
#[derive(Debug)]
pub struct Decoder {
    /// Tokens and positions.
    pub embedding: Embedding,
    /// What makes the per-layer inputs.
    pub layer_inputs: Option<LayerInputs>,
    /// The layers.
    pub layers: Vec<Layer<Loaded>>,
    /// The last layer that stores what later rows need.
    pub narrowed_at: usize,
    /// After the last layer, on the rows whose logits or states are wanted.
    pub final_norm: Option<Norm>,
}

impl Decoder {
    /// The residual stream after the last layer, `[wanted rows, hidden]`.
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let mut x = self.embedding.forward(s);
        if let Some(inputs) = &self.layer_inputs {
            let inputs = inputs.forward(x, s);
            s.set_layer_inputs(inputs, self.layers.len());
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let (mark, timed) = (s.mark(), s.begin_layer(index));
            x = layer.forward(x, index == self.narrowed_at, s);
            s.end_layer(timed);
            s.release(mark);
            if x.rows() == 0 {
                break;
            }
        }
        x
    }
}
