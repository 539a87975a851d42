//! A mixture of experts (Shazeer et al. 2017; Fedus et al. 2021).

use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::experts::Weighting;
use redline_kernels::op::linear::{can_group, grouped_scratch_words};

use super::mlp::{GgufMlp, Mlp};
use super::{BuildStage, Described, LinearRole, Loaded, Map};
use crate::activation::ActivationName as Name;
use crate::element::linear::{LinearSpec, StackSpec};
use crate::element::tensor::TensorSpec;
use crate::plan::Site;
use crate::step::{Act, MAX_ROWS, Step, padded};

/// The weighted sum of some experts, of which a router chooses the `top_k` best for every row.
#[derive(Debug)]
pub struct Experts<S: BuildStage> {
    /// One output for each expert: `[experts, hidden]`.
    pub router: S::Linear,
    /// How the router's outputs choose and weigh experts.
    pub weighting: Weighting<S::Values>,
    /// The experts.
    pub experts: Vec<Mlp<S>>,
    /// Whether experts of few rows run in groups; decided when they are loaded ([`can_be_grouped`]).
    pub grouped: bool,
    /// Number of experts that a row goes to.
    pub top_k: usize,
    /// An expert that every row goes to besides.
    pub shared: Option<SharedExpert<S>>,
}

/// A mixture of experts as an architecture describes it.
pub type ExpertsSpec = Experts<Described>;

/// The choice of experts as an architecture describes it.
pub type WeightingSpec = Weighting<TensorSpec>;

/// An expert that every row goes to.
#[derive(Debug)]
pub struct SharedExpert<S: BuildStage> {
    /// One output, whose sigmoid is the expert's weight: `[1, hidden]`; without it, the weight is 1.
    pub gate: Option<S::Linear>,
    /// The expert.
    pub mlp: Mlp<S>,
}

/// A shared expert as an architecture describes it.
pub type SharedExpertSpec = SharedExpert<Described>;

const ROUTER: LinearRole = LinearRole::plain(Site::Router, "ffn_gate_inp");
const EXPERT: GgufMlp =
    GgufMlp::new("ffn_up_exps", &["ffn_gate_exps", "ffn_up_exps"], "ffn_down_exps").of_expert();
const SHARED_GATE: LinearRole = LinearRole::plain(Site::Router, "ffn_gate_inp_shexp");
const SHARED: GgufMlp =
    GgufMlp::new("ffn_up_shexp", &["ffn_gate_shexp", "ffn_up_shexp"], "ffn_down_shexp").of_expert();

impl<S: BuildStage> Experts<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Experts<T>, M::Error> {
        let router = to.linear(&self.router, ROUTER)?;
        let values = match self.weighting {
            Weighting::Softmax { .. } => "ffn_down_exps.scale",
            Weighting::Sigmoid { .. } => "exp_probs_b.bias",
        };
        let weighting = self.weighting.map(|of_experts| to.values(of_experts, values))?;
        let count = self.experts.len();
        let each = self.experts.iter().enumerate();
        let experts: Vec<Mlp<T>> =
            each.map(|(id, mlp)| mlp.map(&EXPERT.stacked(id, count), to)).collect::<Result<_, _>>()?;
        let shared = match &self.shared {
            Some(SharedExpert { gate, mlp }) => {
                let gate = gate.as_ref().map(|gate| to.linear(gate, SHARED_GATE)).transpose()?;
                Some(SharedExpert { gate, mlp: mlp.map(&SHARED, to)? })
            }
            None => None,
        };
        Ok(Experts { router, weighting, grouped: T::can_group(&experts), experts, top_k: self.top_k, shared })
    }

    /// A size of the linear layers of all experts that the router chooses from.
    pub fn routed(&self, size: impl Fn(&S::Linear) -> usize) -> usize {
        self.experts.iter().flat_map(Mlp::linears).map(size).sum()
    }

    /// The part of [`Self::routed`] that a single row does not use.
    pub fn unused(&self, size: impl Fn(&S::Linear) -> usize) -> usize {
        let count = self.experts.len();
        self.routed(size) / count * (count - self.top_k)
    }
}

impl Experts<Described> {
    /// Says that all experts lie in two tensors, `{module}.experts.gate_up_proj`, `[experts, 2 * inner, hidden]`, or without a gate
    /// `up_proj`, and `down_proj`, if `present` knows the first: checkpoints of newer families have them in either form.
    pub(crate) fn stack_if(&mut self, present: impl Fn(&str) -> bool) {
        let Some(module) = self.router.parts[0].name.strip_suffix(".gate") else { return };
        let tensors = ["gate_up_proj", "up_proj", "down_proj"].map(|part| format!("{module}.experts.{part}"));
        if let Some(up) = tensors[..2].iter().find(|name| present(name)) {
            self.stack([up, &tensors[2]]);
        }
    }

    /// Says that the projections of all experts lie in two tensors: `[experts, inner, hidden]` or with a gate `[experts, 2 * inner,
    /// hidden]`, and `[experts, hidden, inner]`.
    pub(crate) fn stack(&mut self, tensors: [&str; 2]) {
        let count = self.experts.len();
        for (id, expert) in self.experts.iter_mut().enumerate() {
            for (linear, tensor) in [&mut expert.up, &mut expert.down].into_iter().zip(tensors) {
                let (all, mut first) = (linear.outputs(), 0);
                for part in linear.parts.iter_mut().filter(|part| part.stack.is_none()) {
                    let stack = StackSpec::of_rows(tensor.to_owned(), format!("{tensor}_bias"), (first, all));
                    part.stack = Some(StackSpec { expert: Some((id, count)), ..stack });
                    first += part.outputs;
                }
            }
        }
    }

    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        vec![(Name::Router, self.router.outputs()), (Name::MlpOutput, self.router.inputs)]
    }
}

impl Experts<Loaded> {
    /// The block's output, to be added to the residual stream.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let output = self.mix(x, x, s);
        s.show(Name::MlpOutput, output);
        output
    }

    /// `sum of weight * expert(x)` over the experts of each row by ascending id, then the shared expert; the router reads `routed`. Every
    /// expert runs on all of its rows: alone if they are many, otherwise beside others, so that threads have enough to share.
    pub fn mix(&self, x: Act, routed: Act, s: &mut Step<'_>) -> Act {
        let logits = s.linear(routed, &self.router);
        s.show(Name::Router, logits);
        s.choose(logits, self.top_k, self.weighting.borrowed());
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
            let rows = gate.as_ref().map(|gate| {
                let weights = s.linear(x, gate);
                s.gate_rows(weights)
            });
            let y = mlp.apply(x, s);
            match rows {
                Some(rows) => s.add_weighted(output, y, rows),
                None => s.add_to(output, y, 1.0),
            }
            s.release(mark);
        }
        output
    }
}

/// Whether experts can run in groups: if all have the same shapes, and each layer is one matrix of integers without outlier columns.
pub fn can_be_grouped(experts: &[Mlp<Loaded>]) -> bool {
    let shapes = |mlp: &Mlp<Loaded>| Some([mlp.up.only_matrix()?.shape(), mlp.down.only_matrix()?.shape()]);
    let first = experts.first().and_then(shapes);
    first.is_some_and(|shapes| shapes.into_iter().all(can_group))
        && experts.iter().all(|mlp| shapes(mlp) == first)
}

/// Memory of a mixture of experts in a pass.
#[derive(Clone, Debug)]
pub(crate) struct ExpertsMemory {
    /// The shapes that matrices have, each once.
    pub(crate) shapes: Vec<MatrixShape>,
    /// Whether experts may run in groups.
    can_group: bool,
    /// For each row, number of values of the router's outputs and of the sum.
    kept: usize,
    /// For each row of an expert that runs alone, or of the shared one, number of values of activations. One may have all rows.
    alone: usize,
    /// For each choice in a group, whose inputs are not copied, number of values of activations.
    grouped: usize,
    /// Number of experts of a row.
    pub(crate) top_k: usize,
}

impl ExpertsMemory {
    pub(crate) fn new(spec: &ExpertsSpec, shapes_of: impl Fn(&LinearSpec) -> Vec<MatrixShape>) -> Self {
        let of_experts: Vec<MatrixShape> =
            spec.experts.iter().flat_map(Mlp::linears).flat_map(&shapes_of).collect();
        let can_group = of_experts.iter().copied().all(can_group);
        let shared = spec.shared.iter().flat_map(|shared| shared.gate.iter().chain(shared.mlp.linears()));
        let others = shared.chain([&spec.router]).flat_map(&shapes_of);
        let mut shapes = Vec::new();
        for shape in of_experts.into_iter().chain(others) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        let hidden = padded(spec.router.inputs);
        let grouped = spec.experts.iter().map(Mlp::values_per_row).max().unwrap_or(0);
        // The rows of an expert that runs alone are copied, those of the shared expert are all.
        let shared = spec.shared.as_ref();
        let shared = shared.map(|shared| {
            shared.gate.as_ref().map_or(0, |gate| padded(gate.outputs())) + shared.mlp.values_per_row()
        });
        let alone = shared.into_iter().chain([hidden + grouped]).max().unwrap_or(0);
        let kept = padded(spec.router.outputs()) + hidden;
        Self { shapes, can_group, kept, alone, grouped, top_k: spec.top_k }
    }

    /// Maximum number of choices in a group of experts, in a pass of `rows` rows.
    fn most_grouped(&self, rows: usize) -> usize {
        if self.can_group { rows.saturating_mul(self.top_k).min(MAX_ROWS) } else { 0 }
    }

    /// Number of values of activations in a pass of `rows` rows.
    pub(crate) fn values(&self, rows: usize) -> usize {
        rows * self.kept + (rows * self.alone).max(self.most_grouped(rows) * self.grouped)
    }

    /// Number of words of packed inputs of a group, in a pass of `rows` rows.
    pub(crate) fn words(&self, rows: usize) -> usize {
        let choices = self.most_grouped(rows);
        let shapes = self.shapes.iter().filter(|shape| can_group(**shape));
        shapes.map(|shape| grouped_scratch_words(*shape, choices)).max().unwrap_or(0)
    }
}
