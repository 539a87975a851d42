//! A mixture of experts (Shazeer et al. 2017; Fedus et al. 2021).

use redline_kernels::op::linear::can_group;

use super::linear::Linear;
use super::mlp::Mlp;
use crate::activation::ActivationName as Name;
use crate::step::{Act, Step};

/// The weighted sum of some experts, of which a router chooses the `top_k` best for every row.
#[derive(Debug)]
pub struct Experts {
    /// `[experts, hidden]`
    pub router: Linear,
    /// The experts.
    pub experts: Vec<Mlp>,
    /// Whether experts of few rows run in groups ([`can_be_grouped`]).
    pub grouped: bool,
    /// Number of experts of a row.
    pub top_k: usize,
    /// Whether the weights of a row's experts are divided by their sum.
    pub normalise: bool,
    /// An expert of every row besides.
    pub shared: Option<SharedExpert>,
}

/// An expert of every row.
#[derive(Debug)]
pub struct SharedExpert {
    /// `[1, hidden]`; the sigmoid of its output is the expert's weight.
    pub gate: Linear,
    /// The expert.
    pub mlp: Mlp,
}

impl Experts {
    /// `sum of weight * expert(x)` over the experts of each row by ascending id, then the shared expert. Every expert runs on all of its
    /// rows: alone if they are many, otherwise beside others, so that threads have enough to share.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let logits = s.linear(x, &self.router);
        s.show(Name::Router, logits);
        s.choose(logits, self.top_k, self.normalise);
        let output = s.zeros(x.rows(), x.width());
        let choices = x.rows() * self.top_k;
        let mut next = s.next_experts(None, choices, self.grouped);
        while let Some(rows) = next {
            let mark = s.mark();
            let y = match rows.only_expert() {
                Some(expert) => {
                    let h = s.rows_of(x, rows);
                    self.experts[expert].apply(h, s)
                }
                None => Mlp::apply_grouped(&self.experts, x, rows, s),
            };
            s.add_weighted(output, y, rows);
            s.release(mark);
            next = s.next_experts(next, choices, self.grouped);
        }
        if let Some(SharedExpert { gate, mlp }) = &self.shared {
            let mark = s.mark();
            let weights = s.linear(x, gate);
            let rows = s.gate_rows(weights);
            let y = mlp.apply(x, s);
            s.add_weighted(output, y, rows);
            s.release(mark);
        }
        s.show(Name::MlpOutput, output);
        output
    }

    /// The linear layers, in the order of the forward pass.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        let shared = self
            .shared
            .iter()
            .flat_map(|SharedExpert { gate, mlp }| std::iter::once(gate).chain(mlp.linears()));
        std::iter::once(&self.router).chain(self.experts.iter().flat_map(Mlp::linears)).chain(shared)
    }

    /// A size of the linear layers of all experts that the router chooses from.
    pub fn routed(&self, size: impl Fn(&Linear) -> usize) -> usize {
        self.experts.iter().flat_map(Mlp::linears).map(size).sum()
    }

    /// The part of [`Self::routed`] that a single row does not use.
    pub fn unused(&self, size: impl Fn(&Linear) -> usize) -> usize {
        let count = self.experts.len();
        self.routed(size) / count * (count - self.top_k)
    }
}

/// Whether experts can run in groups: if all have the same shapes, and each layer is one matrix of integers without outlier columns.
pub fn can_be_grouped(experts: &[Mlp]) -> bool {
    let shapes = |mlp: &Mlp| Some([mlp.up.only_matrix()?.shape(), mlp.down.only_matrix()?.shape()]);
    let first = experts.first().and_then(shapes);
    first.is_some_and(|shapes| shapes.into_iter().all(can_group))
        && experts.iter().all(|mlp| shapes(mlp) == first)
}
