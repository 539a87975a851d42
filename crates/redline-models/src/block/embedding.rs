//! Token embedding, with a factor or learned positions in some families.

use redline_kernels::Matrix;

use crate::activation::ActivationName as Name;
use crate::step::{Act, Step};

/// `scale * embedding[token] (+ positions[position])`.
#[derive(Debug)]
pub struct Embedding {
    /// `[vocab, hidden]`; also the head if it is tied.
    pub tokens: Matrix,
    /// Factor on the embedding of tokens, with the updates of adapters.
    pub scale: f32,
    /// `[context, hidden]`
    pub positions: Option<Matrix>,
}

impl Embedding {
    /// `[rows, hidden]`
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let x = s.embedding(&self.tokens, s.tokens());
        s.update_embedding(x);
        s.scale(x, self.scale);
        match &self.positions {
            None => s.show(Name::Embedding, x),
            Some(table) => {
                let mark = s.mark();
                let p = s.embedding(table, s.positions());
                s.add(x, p, 1.0, Name::Embedding);
                s.release(mark);
            }
        }
        x
    }
}
