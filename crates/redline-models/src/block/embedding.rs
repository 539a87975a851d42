//! Embedding of tokens; in some families with a factor, with learned positions, token types or a norm.

use redline_kernels::Matrix;

use crate::activation::ActivationName as Name;
use crate::element::dense::DenseLayer;
use crate::element::norm::Norm;
use crate::step::{Act, Step};

/// `projection(norm(scale * tokens[token] (+ types[type]) (+ positions[position])))`; all tables have the same width, which without a
/// projection is `hidden`.
#[derive(Debug)]
pub struct Embedding {
    /// `[vocab, width]`; also the head if it is tied.
    pub tokens: Matrix,
    /// Factor on the embedding of tokens, with the updates of adapters.
    pub scale: f32,
    /// `[types, width]`
    pub types: Option<Matrix>,
    /// `[context, width]`, and a row for the padding token, if others do not count it.
    pub positions: Option<Matrix>,
    /// Of the sum.
    pub norm: Option<Norm>,
    /// `[hidden, width]`, if they differ.
    pub projection: Option<DenseLayer>,
}

impl Embedding {
    /// `[rows, hidden]`
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let x = s.embedding(&self.tokens, s.tokens());
        s.update_embedding(x);
        s.scale(x, self.scale);
        for (table, ids) in [(&self.types, s.types()), (&self.positions, s.places())] {
            if let Some(table) = table {
                let mark = s.mark();
                let rows = s.embedding(table, ids);
                s.add_to(x, rows, 1.0);
                s.release(mark);
            }
        }
        if let Some(norm) = &self.norm {
            s.norm_in_place(x, norm);
        }
        let embedding = self.projection.as_ref().map_or(x, |layer| s.dense(x, layer));
        if self.norm.is_none() || self.projection.is_some() {
            s.show(Name::Embedding, embedding);
        }
        embedding
    }

    /// The tables beside that of the tokens.
    pub fn tables(&self) -> impl Iterator<Item = &Matrix> {
        self.types.iter().chain(&self.positions)
    }
}
