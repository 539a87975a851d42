//! The feed-forward part.

use redline_kernels::op::activation::Gating;

use super::linear::Linear;
use crate::activation::ActivationName as Name;
use crate::step::{Act, ExpertRows, InputsOf, Step};

/// `down(f(up(x)))`, or with a gate such as `down(f(gate(x)) * up(x))` (Shazeer 2020).
#[derive(Debug)]
pub struct Mlp {
    /// What becomes of gate and up; `None`: there is no gate, and f belongs to `up`.
    pub gate: Option<Gating>,
    /// `[inner, hidden]`; with a gate, `[inner | inner, hidden]`.
    pub up: Linear,
    /// `[hidden, inner]`
    pub down: Linear,
}

impl Mlp {
    /// The block's output, to be added to the residual stream.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let mut h = s.linear(x, &self.up);
        if let Some(gating) = self.gate {
            let inner = self.down.inputs();
            s.show(Name::Gate, h.columns(0, inner));
            s.show(Name::Up, h.columns(inner, inner));
            h = s.gate(gating, h);
        }
        s.show(Name::MlpHidden, h);
        let output = s.linear(h, &self.down);
        s.show(Name::MlpOutput, output);
        output
    }

    /// As [`Self::forward`], but nothing is reported to the observers of the pass.
    pub fn apply(&self, x: Act, s: &mut Step<'_>) -> Act {
        let mut h = s.linear(x, &self.up);
        if let Some(gating) = self.gate {
            h = s.gate(gating, h);
        }
        s.linear(h, &self.down)
    }

    /// What a group of experts returns: a row for each choice. The experts have the same shapes.
    pub fn apply_grouped(experts: &[Self], x: Act, rows: ExpertRows, s: &mut Step<'_>) -> Act {
        let mut h = s.linear_grouped(x, rows, InputsOf::Choices, |expert| &experts[expert].up);
        if let Some(gating) = experts.first().and_then(|expert| expert.gate) {
            h = s.gate(gating, h);
        }
        s.linear_grouped(h, rows, InputsOf::Rows, |expert| &experts[expert].down)
    }

    /// The linear layers, in the order of the forward pass.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        [&self.up, &self.down].into_iter()
    }
}
