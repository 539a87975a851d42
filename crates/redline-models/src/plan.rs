//! How the linear layers of a pass are run: one variant per site, for passes of up to a certain number of rows.
//!
//! A plan never changes a result: kernels give the same bits in every variant, and ignore variants that a tier does not have.

use redline_kernels::op::activation::Activation;
use redline_kernels::op::linear::{Epilogue, Variant, linear};
use redline_kernels::{Exec, Matrix, Rows, RowsMut};

use crate::model::Model;
use crate::step::{Arena, padded};

/// The position of a linear layer in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// Queries, keys and values.
    Qkv,
    /// The output of attention.
    Output,
    /// The first linear layer of the feed-forward part.
    Up,
    /// The second linear layer of the feed-forward part.
    Down,
    /// The head over the vocabulary.
    Head,
}

impl Site {
    /// The sites in every layer.
    pub const OF_LAYER: &[Site] = &[Self::Qkv, Self::Output, Self::Up, Self::Down];
    /// The head.
    pub const OF_HEAD: &[Site] = &[Self::Head];

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qkv => "qkv",
            Self::Output => "output",
            Self::Up => "up",
            Self::Down => "down",
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

impl Model {
    /// The weights at a site in the given layer, modulo the number of layers; `None` without layers.
    fn matrix_at(&self, site: Site, layer: usize) -> Option<&Matrix> {
        if site == Site::Head {
            return Some(self.head());
        }
        let layers = &self.decoder.layers;
        let layer = layers.get(layer.checked_rem(layers.len())?)?;
        let (first, second) = layer.mlp.layers();
        Some(match site {
            Site::Qkv => layer.attention.qkv.matrix(),
            Site::Output => layer.attention.output.matrix(),
            Site::Up => first.matrix(),
            Site::Down | Site::Head => second.matrix(),
        })
    }

    /// The variants worth measuring at a site for up to `rows` rows, the estimate first.
    pub fn candidates(&self, exec: Exec<'_>, site: Site, rows: usize) -> Vec<Variant> {
        let threads = exec.team.size();
        self.matrix_at(site, 0).map(|m| Variant::candidates(exec.simd, m, rows, threads)).unwrap_or_default()
    }

    /// The plan that needs no measuring.
    pub fn estimated(&self, exec: Exec<'_>, sites: &[Site], rows: usize) -> Plan {
        let of = |&site: &Site| Some((site, Variant::estimate(exec.simd, self.matrix_at(site, 0)?, rows)));
        Plan(sites.iter().filter_map(of).collect())
    }

    /// Runs the linear layer at a site once, over `rows` rows of arbitrary inputs, so that it can be timed. Different layers
    /// have different weights, so these come from the same level of memory as in a pass. `rows` must not exceed the size of the
    /// arena.
    pub fn rehearse(
        &self,
        exec: Exec<'_>,
        arena: &mut Arena,
        site: Site,
        layer: usize,
        rows: usize,
        variant: Variant,
    ) {
        let Some(matrix) = self.matrix_at(site, layer) else { return };
        let (width, outputs) = (padded(matrix.cols()), padded(matrix.rows()));
        let (values, words) = arena.parts();
        let (x, y) = values.split_at_mut(rows * width);
        for (i, value) in x.iter_mut().enumerate() {
            *value = (i % 127) as f32 / 64.0 - 1.0;
        }
        let x = Rows::new(x, rows, matrix.cols(), width);
        let y = &mut RowsMut::new(&mut y[..rows * outputs], rows, matrix.rows(), outputs);
        let epilogue = Epilogue { bias: None, activation: Activation::None };
        linear(exec, matrix, x, y, epilogue, variant, words);
    }
}
