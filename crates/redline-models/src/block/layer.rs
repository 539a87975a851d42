//! One layer: a mixer and a feed-forward part, each between its norms, or only one of both.

use super::attention::Attention;
use super::ffn::Ffn;
use super::layer_end::LayerEnd;
use super::mixer::Mixer;
use super::{BlockElement, BuildStage, Described, Loaded, Map, elements};
use crate::activation::ActivationName as Name;
use crate::element::norm::NormSpec;
use crate::plan::Site;
use crate::step::{Act, Step};

/// One layer: `x + mixer_scale * mixer(x)`, then `x + mlp_scale * mlp(x)`, each between its norms, or both at once ([`Residual`]); then
/// what follows.
#[derive(Debug)]
pub struct Layer<S: BuildStage> {
    /// The part in which a row reads earlier rows.
    pub mixer: Mixer<S>,
    /// Its norms.
    pub mixer_norms: Norms<S>,
    /// The feed-forward part.
    pub mlp: Ffn<S>,
    /// Its norms.
    pub mlp_norms: Norms<S>,
    /// How their outputs are added to the residual stream.
    pub residual: Residual,
    /// What follows, in families that have it.
    pub end: Option<LayerEnd<S>>,
}

/// How the outputs of the parts of a layer are added to the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Residual {
    /// Factor on the output of the mixer; 1 in most families.
    pub mixer_scale: f32,
    /// Factor on the output of the feed-forward part; 1 in most families.
    pub mlp_scale: f32,
    /// Whether the feed-forward part reads what the mixer reads, with its norm, and not the stream after the mixer: `(x + mixer(h)) +
    /// mlp(h)` with `h = norm(x)` (GPT-J, Cohere). The feed-forward part then has no norm before it.
    pub is_parallel: bool,
}

impl Default for Residual {
    fn default() -> Self {
        Self { mixer_scale: 1.0, mlp_scale: 1.0, is_parallel: false }
    }
}

/// A layer as an architecture describes it.
pub type LayerSpec = Layer<Described>;

/// The norms of a mixer or of a feed-forward part f: `sum(x + after(f(before(x))))`.
#[derive(Debug)]
pub struct Norms<S: BuildStage> {
    /// Of the input.
    pub before: Option<S::Norm>,
    /// Of the output, before it is added to the residual stream.
    pub after: Option<S::Norm>,
    /// Of the residual stream, after the addition.
    pub sum: Option<S::Norm>,
}

/// Norms as an architecture describes them.
pub type NormsSpec = Norms<Described>;

impl<S: BuildStage> Default for Norms<S> {
    fn default() -> Self {
        Self { before: None, after: None, sum: None }
    }
}

/// The names of the norms of a mixer or of a feed-forward part: as activations, and in GGUF files.
struct NormNames {
    before: (Name, &'static str),
    after: (Name, &'static str),
    /// The residual stream before the norm of the sum, if there is one.
    unnormed: Name,
    sum: (Name, &'static str),
}

const MIXER: NormNames = NormNames {
    before: (Name::AttentionNorm, "attn_norm"),
    after: (Name::AttentionOutputNorm, "post_attention_norm"),
    unnormed: Name::AttentionSum,
    sum: (Name::ResidualMid, "attn_output_norm"),
};
/// Those of a mixer that ends the layer.
const ONLY_MIXER: NormNames = NormNames { sum: (Name::Residual, MIXER.sum.1), ..MIXER };

/// Those of a feed-forward part that ends the layer.
const MLP: NormNames = NormNames {
    before: (Name::MlpNorm, "ffn_norm"),
    after: (Name::MlpOutputNorm, "post_ffw_norm"),
    unnormed: Name::MlpSum,
    sum: (Name::Residual, "layer_output_norm"),
};

/// Those of one that something follows.
const INNER_MLP: NormNames = NormNames { sum: (Name::MlpSum, MLP.sum.1), ..MLP };

impl<S: BuildStage> Norms<S> {
    /// A norm of the input only.
    pub fn before(norm: S::Norm) -> Self {
        Self { before: Some(norm), ..Self::default() }
    }

    /// Number of norms whose results have memory of their own; those of sums are computed in place.
    fn results(&self) -> usize {
        self.before.iter().chain(&self.after).count()
    }

    /// The norms and the block between them at another stage.
    fn map<'a, T: BuildStage, M: Map<'a, S, T>, B>(
        &'a self,
        around: &NormNames,
        to: &mut M,
        block: impl FnOnce(&mut M) -> Result<B, M::Error>,
    ) -> Result<(B, Norms<T>), M::Error> {
        let map = |norm: &'a Option<S::Norm>, (name, gguf): (Name, &'static str), to: &mut M| {
            norm.as_ref().map(|norm| to.norm(norm, name, gguf)).transpose()
        };
        let before = map(&self.before, around.before, to)?;
        let block = block(to)?;
        let (after, sum) = (map(&self.after, around.after, to)?, map(&self.sum, around.sum, to)?);
        Ok((block, Norms { before, after, sum }))
    }
}

impl<S: BuildStage> Layer<S> {
    /// The same layer of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Layer<T>, M::Error> {
        let (mixer, mixer_norms) = self.mixer_norms.map(&MIXER, to, |to| self.mixer.map(to))?;
        let (mlp, mlp_norms) = self.mlp_norms.map(&MLP, to, |to| self.mlp.map(to))?;
        let end = self.end.as_ref().map(|end| end.map(to)).transpose()?;
        Ok(Layer { mixer, mixer_norms, mlp, mlp_norms, residual: self.residual, end })
    }

    /// The linear layers with their sites, in the order of the forward pass. Those of all experts have the same sites.
    pub fn linears(&self) -> impl Iterator<Item = (Site, &S::Linear)> {
        elements(self).into_iter().filter_map(|element| match element {
            BlockElement::Linear(linear, role) => Some((role.site, linear)),
            _ => None,
        })
    }

    /// The first linear layer at a site, which may be that of an expert; `None` if the layer has none there.
    pub fn first(&self, site: Site) -> Option<&S::Linear> {
        self.linears().find(|(of, _)| *of == site).map(|(_, linear)| linear)
    }

    /// The linear layers that adapters can change: those outside of mixtures of experts.
    pub fn adaptable(&self) -> impl Iterator<Item = (Site, &S::Linear)> {
        self.linears().filter(|(site, _)| Site::OF_LAYER.contains(site))
    }

    /// The linear layer at a site that adapters can change; `None` if the layer has none there.
    pub fn linear(&self, site: Site) -> Option<&S::Linear> {
        self.adaptable().find(|(of, _)| *of == site).map(|(_, linear)| linear)
    }

    /// The linear layer at a site that the layer has.
    pub(crate) fn at(&self, site: Site) -> &S::Linear {
        self.linear(site).expect("a site of the layer")
    }

    /// The norms, those of heads included.
    pub fn norms(&self) -> impl Iterator<Item = &S::Norm> {
        elements(self).into_iter().filter_map(|element| match element {
            BlockElement::Norm(norm, _) => Some(norm),
            _ => None,
        })
    }

    fn around_mixer(&self) -> NormNames {
        if let Ffn::None = self.mlp { ONLY_MIXER } else { MIXER }
    }

    fn around_mlp(&self) -> NormNames {
        if self.end.is_some() { INNER_MLP } else { MLP }
    }

    /// Attention, if the layer has it.
    pub fn attention(&self) -> Option<&Attention<S>> {
        self.mixer.attention()
    }
}

impl Layer<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        let hidden = self.linears().last().map_or(0, |(_, linear)| linear.outputs());
        let mut all = Vec::new();
        for (norms, around, block) in [
            (&self.mixer_norms, self.around_mixer(), self.mixer.activations()),
            (&self.mlp_norms, self.around_mlp(), self.mlp.activations()),
        ] {
            if block.is_empty() {
                continue;
            }
            let norm = |norm: &Option<NormSpec>, name| norm.as_ref().map(|_| (name, hidden));
            all.extend(norm(&norms.before, around.before.0));
            all.extend(block);
            all.extend(norm(&norms.after, around.after.0));
            all.extend(norm(&norms.sum, around.unnormed));
            all.push((around.sum.0, hidden));
        }
        if let Some(end) = &self.end {
            all.extend(end.activations());
            all.push((Name::Residual, hidden));
        }
        all
    }

    /// Number of values of the arena that a row needs outside a mixture of experts.
    pub(crate) fn values_per_row(&self, hidden: usize) -> usize {
        let norms = (self.mixer_norms.results() + self.mlp_norms.results()) * hidden;
        let end = self.end.as_ref().map_or(0, LayerEnd::values_per_row);
        norms + self.mixer.values_per_row() + self.mlp.values_per_row() + end
    }
}

impl Norms<Loaded> {
    /// The input as the block reads it.
    fn before_block(&self, x: Act, s: &mut Step<'_>) -> Act {
        self.before.as_ref().map_or(x, |norm| s.norm(x, norm))
    }

    /// The residual stream with the output of the block, if there is one.
    fn add(&self, x: Act, a: Option<Act>, scale: f32, around: &NormNames, s: &mut Step<'_>) -> Act {
        let Some(a) = a else { return x };
        let a = self.after.as_ref().map_or(a, |norm| s.norm(a, norm));
        match &self.sum {
            None => s.add(x, a, scale, around.sum.0),
            Some(norm) => {
                let x = s.add(x, a, scale, around.unnormed);
                s.norm_in_place(x, norm)
            }
        }
    }
}

impl Layer<Loaded> {
    /// `x + mixer(x)`, then `x + mlp(x)`, each with its norms. The last layer whose mixer stores anything continues only with the wanted
    /// rows, because later rows need of the others only what it has stored.
    pub fn forward(&self, x: Act, narrows: bool, s: &mut Step<'_>) -> Act {
        let Residual { mixer_scale, mlp_scale, is_parallel } = self.residual;
        let h = self.mixer_norms.before_block(x, s);
        let begun = self.mixer.begin(h, s);
        let [x, h, first, second] = match (narrows, is_parallel) {
            (false, _) => [x, h, begun[0], begun[1]],
            (true, true) => s.narrow([x, h, begun[0], begun[1]]),
            (true, false) => {
                let [x, first, second] = s.narrow([x, begun[0], begun[1]]);
                [x, x, first, second]
            }
        };
        if x.rows() == 0 {
            return x;
        }
        let mixed = self.mixer.finish([first, second], s);
        let x = self.mixer_norms.add(x, mixed, mixer_scale, &self.around_mixer(), s);
        let h = if is_parallel { h } else { self.mlp_norms.before_block(x, s) };
        let output = self.mlp.forward(h, s);
        let x = self.mlp_norms.add(x, output, mlp_scale, &self.around_mlp(), s);
        self.end.as_ref().map_or(x, |end| end.forward(x, s))
    }
}
