//! How the linear layers of a pass are run: one variant per site, for passes of up to a certain number of rows.
//!
//! A plan never changes a result: kernels give the same bits in every variant, and ignore variants that a tier does not have.

use redline_kernels::op::linear::Variant;

/// The position of a linear layer in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// Queries, keys and values.
    Qkv,
    /// The output of attention.
    Output,
    /// The input of a mixer that is not attention; a layer may have both.
    Input,
    /// The output of such a mixer.
    RecurrenceOutput,
    /// The first linear layer of the feed-forward part.
    Up,
    /// The second linear layer of the feed-forward part.
    Down,
    /// The gate of a per-layer input.
    PerLayerGate,
    /// The output of such an input.
    PerLayerProjection,
    /// Weights of experts, in a mixture of experts.
    Router,
    /// The first linear layer of an expert.
    ExpertUp,
    /// The second linear layer of an expert.
    ExpertDown,
    /// The head over the vocabulary.
    Head,
}

impl Site {
    /// The sites that plans and adapters cover in every layer.
    pub const OF_LAYER: &[Site] = &[
        Self::Qkv,
        Self::Output,
        Self::Input,
        Self::RecurrenceOutput,
        Self::Up,
        Self::Down,
        Self::PerLayerGate,
        Self::PerLayerProjection,
    ];
    /// The head.
    pub const OF_HEAD: &[Site] = &[Self::Head];

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qkv => "qkv",
            Self::Output => "output",
            Self::Input => "input",
            Self::RecurrenceOutput => "recurrence_output",
            Self::Up => "up",
            Self::Down => "down",
            Self::PerLayerGate => "per_layer_gate",
            Self::PerLayerProjection => "per_layer_projection",
            Self::Router => "router",
            Self::ExpertUp => "expert_up",
            Self::ExpertDown => "expert_down",
            Self::Head => "head",
        }
    }
}

/// A variant for each site of a pass, or for the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan(Vec<(Site, Variant)>);

impl Plan {
    /// Creates a plan with these choices.
    pub fn new(choices: Vec<(Site, Variant)>) -> Self {
        Self(choices)
    }

    /// The choices.
    pub fn choices(&self) -> &[(Site, Variant)] {
        &self.0
    }

    /// The variant of a site; `None` if the plan does not cover it.
    pub fn of(&self, site: Site) -> Option<Variant> {
        self.0.iter().find(|(known, _)| *known == site).map(|(_, variant)| *variant)
    }
}
