//! All layers, with the embedding before them.

use super::Loaded;
use super::embedding::Embedding;
use super::layer::Layer;
use crate::element::norm::Norm;
use crate::step::{Act, Step};

/// Embedding, layers and final norm. The head is applied only to chosen rows, by [`crate::Model::logits`].
#[derive(Debug)]
pub struct Decoder {
    /// Tokens and positions.
    pub embedding: Embedding,
    /// The layers.
    pub layers: Vec<Layer<Loaded>>,
    /// After the last layer, on the rows whose logits or states are wanted.
    pub final_norm: Option<Norm>,
}

impl Decoder {
    /// The residual stream after the last layer, `[wanted rows, hidden]`.
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let mut x = self.embedding.forward(s);
        for (index, layer) in self.layers.iter().enumerate() {
            let (mark, timed) = (s.mark(), s.begin_layer(index));
            x = layer.forward(x, index + 1 == self.layers.len(), s);
            s.end_layer(timed);
            s.release(mark);
        }
        x
    }
}
