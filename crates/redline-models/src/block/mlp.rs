//! The feed-forward part.

use super::linear::Linear;
use crate::activation::ActivationName as Name;
use crate::step::{Act, Step};

/// Two linear layers with a nonlinearity between them.
#[derive(Debug)]
pub enum Mlp {
    /// `down(activation(up(x)))`; the activation belongs to `up`.
    Gelu {
        /// `[inner, hidden]`
        up: Linear,
        /// `[hidden, inner]`
        down: Linear,
    },
    /// `down(silu(gate(x)) * up(x))` (Shazeer 2020).
    SwiGlu {
        /// `[inner | inner, hidden]`
        gate_up: Linear,
        /// `[hidden, inner]`
        down: Linear,
    },
}

impl Mlp {
    /// The block's output, to be added to the residual stream.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let (h, down) = match self {
            Self::Gelu { up, down } => (s.linear(x, up), down),
            Self::SwiGlu { gate_up, down } => {
                let both = s.linear(x, gate_up);
                let inner = down.matrix().cols();
                s.show(Name::Gate, both.columns(0, inner));
                s.show(Name::Up, both.columns(inner, inner));
                (s.silu_gate(both), down)
            }
        };
        s.show(Name::MlpHidden, h);
        let output = s.linear(h, down);
        s.show(Name::MlpOutput, output);
        output
    }

    /// Both layers.
    pub fn layers(&self) -> (&Linear, &Linear) {
        match self {
            Self::Gelu { up, down } => (up, down),
            Self::SwiGlu { gate_up, down } => (gate_up, down),
        }
    }
}
