//! A dense feed-forward part beside a mixture of experts (Gemma 4).

use super::experts::Experts;
use super::mlp::{DENSE, Mlp};
use super::{BuildStage, Described, Loaded, Map};
use crate::activation::ActivationName as Name;
use crate::step::{Act, Step, padded};

/// `after(mlp(before(x))) + experts_after(experts(experts_before(x)))`, where the router reads `router_norm(x)`.
#[derive(Debug)]
pub struct DenseAndExperts<S: BuildStage> {
    /// Norms before and after the dense part.
    pub norms: [S::Norm; 2],
    /// The dense part.
    pub mlp: Mlp<S>,
    /// The norm that the router reads.
    pub router_norm: S::Norm,
    /// Norms before and after the experts.
    pub experts_norms: [S::Norm; 2],
    /// The experts.
    pub experts: Experts<S>,
}

/// Both parts as an architecture describes them.
pub type DenseAndExpertsSpec = DenseAndExperts<Described>;

impl<S: BuildStage> DenseAndExperts<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(
        &'a self,
        to: &mut M,
    ) -> Result<DenseAndExperts<T>, M::Error> {
        let before = to.norm(&self.norms[0], Name::MlpNorm, "ffn_norm")?;
        let mlp = self.mlp.map(&DENSE, to)?;
        let after = to.norm(&self.norms[1], Name::DenseOutputNorm, "post_ffw_norm_1")?;
        let router_norm = to.norm(&self.router_norm, Name::RouterNorm, "ffn_gate_inp")?;
        let experts_before = to.norm(&self.experts_norms[0], Name::ExpertsNorm, "pre_ffw_norm_2")?;
        let experts = self.experts.map(to)?;
        let experts_after = to.norm(&self.experts_norms[1], Name::ExpertsOutputNorm, "post_ffw_norm_2")?;
        let (norms, experts_norms) = ([before, after], [experts_before, experts_after]);
        Ok(DenseAndExperts { norms, mlp, router_norm, experts_norms, experts })
    }
}

impl DenseAndExperts<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        let router = &self.experts.router;
        let hidden = router.inputs;
        let mut all = vec![(Name::MlpNorm, hidden)];
        all.extend(self.mlp.activations());
        all.extend([
            (Name::DenseOutputNorm, hidden),
            (Name::RouterNorm, hidden),
            (Name::ExpertsNorm, hidden),
            (Name::Router, router.outputs()),
            (Name::ExpertsOutputNorm, hidden),
        ]);
        all
    }

    /// Number of values of the arena that a row needs outside of the experts.
    pub fn values_per_row(&self) -> usize {
        let norms = self.norms.len() + self.experts_norms.len() + 1;
        norms * padded(self.experts.router.inputs) + self.mlp.values_per_row()
    }
}

impl DenseAndExperts<Loaded> {
    /// The block's output, to be added to the residual stream; `x` is that stream.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let h = s.norm(x, &self.norms[0]);
        let h = self.mlp.forward(h, s);
        let output = s.norm(h, &self.norms[1]);
        let routed = s.norm(x, &self.router_norm);
        let h = s.norm(x, &self.experts_norms[0]);
        let h = self.experts.mix(h, routed, s);
        let h = s.norm(h, &self.experts_norms[1]);
        s.add_to(output, h, 1.0);
        output
    }
}
