//! The feed-forward part.

use redline_kernels::op::activation::{ActivationFunction, Gating};

use super::{BuildStage, Described, GgufNames, LinearRole, Loaded, Map};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, ExpertRows, InputsOf, Step, padded};

/// `down(f(up(x)))`, or with a gate such as `down(f(gate(x)) * up(x))` (Shazeer 2020).
#[derive(Debug)]
pub struct Mlp<S: BuildStage> {
    /// f of the first form.
    pub activation: ActivationFunction,
    /// What becomes of gate and up, if there is a gate.
    pub gate: Option<Gating>,
    /// To the inner width: `[inner, hidden]`; with a gate, gate and up side by side, `[inner | inner, hidden]`.
    pub up: S::Linear,
    /// Back: `[hidden, inner]`.
    pub down: S::Linear,
}

/// A feed-forward part as an architecture describes it.
pub type MlpSpec = Mlp<Described>;

/// The positions of both linear layers, and their tensors in GGUF files.
pub(super) struct GgufMlp {
    sites: [Site; 2],
    up: GgufNames,
    down: GgufNames,
}

/// Those of a feed-forward part that is no mixture of experts.
pub(super) const DENSE: GgufMlp = GgufMlp::new("ffn_up", &["ffn_gate", "ffn_up"], "ffn_down");

impl GgufMlp {
    pub(super) const fn new(up: &'static str, gate_up: &'static [&'static str], down: &'static str) -> Self {
        let down = GgufNames { whole: down, parts: &[], rotated: None, stacked: None };
        Self { sites: [Site::Up, Site::Down], up: GgufNames { whole: up, parts: gate_up, ..down }, down }
    }

    /// Those of an expert.
    pub(super) const fn of_expert(self) -> Self {
        Self { sites: [Site::ExpertUp, Site::ExpertDown], ..self }
    }

    /// Those of one of several experts.
    pub(super) fn stacked(self, expert: usize, count: usize) -> Self {
        let of = |tensors| GgufNames { stacked: Some((expert, count)), ..tensors };
        Self { up: of(self.up), down: of(self.down), ..self }
    }
}

impl<S: BuildStage> Mlp<S> {
    /// The same block of another stage.
    pub(super) fn map<'a, T: BuildStage, M: Map<'a, S, T>>(
        &'a self,
        gguf: &GgufMlp,
        to: &mut M,
    ) -> Result<Mlp<T>, M::Error> {
        let &Self { activation, gate, .. } = self;
        let up = LinearRole { site: gguf.sites[0], activation, gguf: gguf.up };
        let down = LinearRole { site: gguf.sites[1], activation: ActivationFunction::None, gguf: gguf.down };
        Ok(Mlp { activation, gate, up: to.linear(&self.up, up)?, down: to.linear(&self.down, down)? })
    }

    /// The linear layers, in the order of the forward pass.
    pub fn linears(&self) -> [&S::Linear; 2] {
        [&self.up, &self.down]
    }
}

impl Mlp<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        let inner = self.down.inputs;
        let gated = [(Name::Gate, inner), (Name::Up, inner)];
        let mut all = if self.gate.is_some() { gated.to_vec() } else { Vec::new() };
        all.extend([(Name::MlpHidden, inner), (Name::MlpOutput, self.down.outputs())]);
        all
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        padded(self.up.outputs()) + padded(self.down.inputs) + padded(self.down.outputs())
    }
}

impl Mlp<Loaded> {
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
}
