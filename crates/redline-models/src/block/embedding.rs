//! Token embedding, with learned positions where a family has them.

use redline_kernels::Matrix;

use crate::step::{Act, Step};

/// `embedding[token] (+ positions[position])`.
#[derive(Debug)]
pub struct Embedding {
    /// `[vocab, hidden]`; also the head where it is tied.
    pub tokens: Matrix,
    /// `[context, hidden]`
    pub positions: Option<Matrix>,
}

impl Embedding {
    /// `[rows, hidden]`
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let (tokens, positions) = (s.tokens(), s.positions());
        let x = s.alloc(tokens.len(), self.tokens.cols());
        let mut rows = s.write(x);
        for (r, &token) in tokens.iter().enumerate() {
            self.tokens.row(token as usize, rows.row(r));
        }
        if let Some(table) = &self.positions {
            let p = s.alloc(tokens.len(), table.cols());
            let mut rows = s.write(p);
            for (r, &position) in positions.iter().enumerate() {
                table.row(position as usize, rows.row(r));
            }
            s.add(x, p);
        }
        x
    }
}
