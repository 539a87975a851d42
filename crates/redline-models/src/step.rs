//! One pass over a batch: what blocks see of the world.
//!
//! [`Act`] is a handle into the [`Arena`], memory that was set aside before; blocks allocate from it like from a stack
//! and give back whole layers. Nothing here can fail and nothing allocates.

use redline_kernels::op::activation::silu_gate;
use redline_kernels::op::add::add;
use redline_kernels::op::attention::{AttentionShape, attention};
use redline_kernels::op::embedding::embedding;
use redline_kernels::op::kv::{CheckedSegments, KvPages, Segment};
use redline_kernels::op::linear::{Epilogue, Variant, linear};
use redline_kernels::op::norm::rms_norm_heads;
use redline_kernels::op::rope::{RopeTable, rope};
use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::{Buffer, Exec, Matrix, OutOfMemory, Rows, RowsMut};

use crate::activation::{Activation, ActivationId, ActivationName};
use crate::block::linear::Linear;
use crate::block::norm::Norm;
use crate::plan::{Plan, Site};
use crate::profile::{Begun, Operation, Profile};
use crate::trace::{Observation, Observations};

/// Activations: `[rows, width]` in the arena, rows `stride` values apart.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    at: usize,
    rows: usize,
    width: usize,
    stride: usize,
}

impl Act {
    /// Columns `first..first + width` of the same rows.
    pub fn columns(self, first: usize, width: usize) -> Self {
        assert!(first + width <= self.width, "columns {first}..{} of {}", first + width, self.width);
        Self { at: self.at + first, width, ..self }
    }

    /// Rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// The values' place in the arena.
    fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + self.width }
    }
}

/// Values of a row, rounded up so that whole strips of outputs can be written.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Memory for the activations of one pass.
#[derive(Debug)]
pub struct Arena {
    values: Buffer<f32>,
    /// Inputs of linear layers in the format of their weights.
    words: Buffer<u32>,
}

/// How much an [`Arena`] must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaSize {
    /// f32 values of activations.
    pub values: usize,
    /// Words of packed inputs.
    pub words: usize,
}

impl ArenaSize {
    /// Bytes of both.
    pub fn bytes(self) -> u64 {
        4 * (self.values as u64 + self.words as u64)
    }
}

impl Arena {
    /// Sets memory aside.
    pub fn new(size: ArenaSize) -> Result<Self, OutOfMemory> {
        Ok(Self { values: Buffer::zeroed(size.values)?, words: Buffer::zeroed(size.words)? })
    }

    /// Overwrites everything with values that would show in any result that depended on them. No pass may depend on what an
    /// earlier one left.
    pub fn poison(&mut self) {
        self.values.fill(f32::NAN);
        // Two bf16 NaN; as integers, large ones.
        self.words.fill(0x7fc0_7fc0);
    }

    /// The values and the words.
    pub(crate) fn parts(&mut self) -> (&mut [f32], &mut [u32]) {
        (&mut self.values, &mut self.words)
    }
}

/// Who looks at a pass. What is computed, and in what order, does not change; without anybody it costs a branch per operation.
#[derive(Default)]
pub struct Watchers<'a> {
    /// Takes down what the residual stream looks like.
    pub observations: Option<&'a mut Observations>,
    /// Shown every named activation when it is computed.
    pub activations: Option<&'a (dyn Fn(Activation<'_>) + 'a)>,
    /// Takes down when layers and operations began and ended.
    pub profile: Option<&'a mut Profile>,
}

/// One pass: the batch, where its keys and values go, and the memory for its activations.
pub struct Step<'a> {
    exec: Exec<'a>,
    arena: &'a mut Arena,
    used: usize,
    tokens: &'a [u32],
    positions: &'a [u32],
    /// What is stored.
    stored: CheckedSegments<'a>,
    /// What attends: the same segments, or parts of them in the last layer ([`Step::narrow`]).
    segments: &'a [Segment<'a>],
    wanted: Wanted<'a>,
    kv: &'a mut KvPages,
    rope: Option<&'a RopeTable>,
    plan: Option<&'a Plan>,
    /// The layer that runs.
    layer: Option<usize>,
    watchers: Watchers<'a>,
}

/// Something that may be timed.
#[derive(Clone, Copy)]
pub(crate) struct Timed(Option<Begun>);

/// The rows whose last residual somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Ascending.
    pub rows: &'a [usize],
    /// What they see, in the order of the rows; first rows count among the wanted.
    pub segments: &'a [Segment<'a>],
}

/// What a [`Step`] is made of.
pub struct StepInput<'a> {
    /// Token ids, one per row.
    pub tokens: &'a [u32],
    /// Position of each row in its sequence.
    pub positions: &'a [u32],
    /// Which rows belong to which sequence; every row to exactly one.
    pub segments: CheckedSegments<'a>,
    /// The rows that are needed after the last layer.
    pub wanted: Wanted<'a>,
    /// Keys and values.
    pub kv: &'a mut KvPages,
    /// How linear layers are run; `None`, or none for a site: as estimated.
    pub plan: Option<&'a Plan>,
    /// Who looks.
    pub watchers: Watchers<'a>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(
        exec: Exec<'a>,
        arena: &'a mut Arena,
        rope: Option<&'a RopeTable>,
        input: StepInput<'a>,
    ) -> Self {
        let StepInput { tokens, positions, segments, wanted, kv, plan, watchers } = input;
        assert_eq!(tokens.len(), positions.len(), "a position for every token");
        Self {
            exec,
            arena,
            used: 0,
            tokens,
            positions,
            stored: segments,
            segments: segments.get(),
            wanted,
            kv,
            rope,
            plan,
            layer: None,
            watchers,
        }
    }

    /// Token ids of the batch.
    pub fn tokens(&self) -> &'a [u32] {
        self.tokens
    }

    /// Positions of the batch.
    pub fn positions(&self) -> &'a [u32] {
        self.positions
    }

    /// Memory for `rows` rows of `width` values; contents are whatever was there.
    pub fn alloc(&mut self, rows: usize, width: usize) -> Act {
        let act = Act { at: self.used, rows, width, stride: padded(width) };
        self.used += rows * act.stride;
        assert!(self.used <= self.arena.values.len(), "the arena holds {} values", self.arena.values.len());
        act
    }

    /// The present height of the stack, to [`Step::release`] to.
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Gives back everything allocated since `mark`.
    pub fn release(&mut self, mark: usize) {
        self.used = mark;
    }

    /// The values of `x`.
    pub fn read(&self, x: Act) -> Rows<'_> {
        Rows::new(&self.arena.values[x.range()], x.rows, x.width, x.stride)
    }

    /// The values of `x`, to write.
    pub fn write(&mut self, x: Act) -> RowsMut<'_> {
        RowsMut::new(&mut self.arena.values[x.range()], x.rows, x.width, x.stride)
    }

    /// Values of `from` to read and of `to` to write, which do not overlap; `to` with its padding.
    fn both(values: &mut Buffer<f32>, from: Act, to: Act) -> (Rows<'_>, RowsMut<'_>) {
        let whole = to.at..to.at + to.rows * to.stride;
        let [a, b] = values.get_disjoint_mut([from.range(), whole]).expect("activations do not overlap");
        (Rows::new(a, from.rows, from.width, from.stride), RowsMut::new(b, to.rows, to.width, to.stride))
    }

    /// A layer begins.
    pub(crate) fn begin_layer(&mut self, layer: usize) -> Timed {
        self.layer = Some(layer);
        Timed(self.watchers.profile.as_mut().map(|profile| profile.begin(Some(layer), None)))
    }

    /// The layer is done.
    pub(crate) fn end_layer(&mut self, timed: Timed) {
        self.end(timed);
        self.layer = None;
    }

    /// An operation begins.
    fn begin(&mut self, operation: impl FnOnce() -> Operation) -> Timed {
        let layer = self.layer;
        Timed(self.watchers.profile.as_mut().map(|profile| profile.begin(layer, Some(operation()))))
    }

    /// What began is done.
    fn end(&mut self, timed: Timed) {
        if let (Some(profile), Some(begun)) = (&mut self.watchers.profile, timed.0) {
            profile.end(begun);
        }
    }

    /// Row `ids[r]` of a table for every row r.
    pub fn embedding(&mut self, table: &Matrix, ids: &[u32]) -> Act {
        let exec = self.exec;
        let y = self.alloc(ids.len(), table.cols());
        let timed = self.begin(|| Operation::of("embedding", ids.len(), table.cols()));
        embedding(exec, table, ids, &mut self.write(y));
        self.end(timed);
        y
    }

    /// `layer(x)`.
    pub fn linear(&mut self, x: Act, layer: &Linear) -> Act {
        let epilogue = Epilogue { bias: layer.bias(), activation: layer.activation() };
        // A plan is about passes of so many rows, not about those of them that are wanted.
        let plan = self.plan.filter(|_| x.rows == self.tokens.len());
        let variant = plan.and_then(|plan| plan.of(layer.site()));
        self.product(x, layer.matrix(), layer.site(), epilogue, variant)
    }

    /// `x W^T` for the head, or some rows of it.
    pub fn matmul(&mut self, x: Act, matrix: &Matrix, variant: Option<Variant>) -> Act {
        self.product(x, matrix, Site::Head, Epilogue::default(), variant)
    }

    /// A linear layer, in this variant or as estimated.
    fn product(
        &mut self,
        x: Act,
        matrix: &Matrix,
        site: Site,
        epilogue: Epilogue<'_>,
        variant: Option<Variant>,
    ) -> Act {
        let y = self.alloc(x.rows, matrix.rows());
        let variant = variant.unwrap_or_else(|| Variant::estimate(self.exec.simd, matrix, x.rows));
        let timed = self.begin(|| Operation::linear(site, x.rows, matrix, variant));
        let (from, mut to) = Self::both(&mut self.arena.values, x, y);
        linear(self.exec, matrix, from, &mut to, epilogue, variant, &mut self.arena.words);
        self.end(timed);
        y
    }

    /// `norm(x)`.
    pub fn norm(&mut self, x: Act, norm: &Norm) -> Act {
        let y = self.alloc(x.rows, x.width);
        let timed = self.begin(|| Operation::of("norm", x.rows, x.width));
        let (from, mut to) = Self::both(&mut self.arena.values, x, y);
        norm.apply(self.exec, from, &mut to);
        self.end(timed);
        y
    }

    /// RMSNorm of each of `heads` heads, in place.
    pub fn norm_heads(&mut self, x: Act, heads: usize, weight: &[f32], eps: f32) {
        let exec = self.exec;
        let timed = self.begin(|| Operation::of("norm_heads", x.rows, x.width));
        rms_norm_heads(exec, &mut self.write(x), 0, heads, weight, eps);
        self.end(timed);
    }

    /// `x += a`; returns `x`.
    pub fn add(&mut self, x: Act, a: Act) -> Act {
        let timed = self.begin(|| Operation::of("add", x.rows, x.width));
        let (from, mut to) = Self::both(&mut self.arena.values, a, x);
        add(self.exec, &mut to, from);
        self.end(timed);
        x
    }

    /// `silu(gate) * up` of gate and up side by side.
    pub fn silu_gate(&mut self, gate_up: Act) -> Act {
        let y = self.alloc(gate_up.rows, gate_up.width / 2);
        let timed = self.begin(|| Operation::of("silu_gate", y.rows, y.width));
        let (from, mut to) = Self::both(&mut self.arena.values, gate_up, y);
        silu_gate(self.exec, from, &mut to);
        self.end(timed);
        y
    }

    /// Whether this model rotates queries and keys.
    pub fn rotates(&self) -> bool {
        self.rope.is_some()
    }

    /// Rotates `heads` heads in place; nothing for architectures without rotation.
    pub fn rope(&mut self, x: Act, heads: usize) {
        let (exec, positions) = (self.exec, self.positions);
        if let Some(table) = self.rope {
            assert_eq!(x.width, heads * table.head_dim(), "one rotation for heads of every layer");
            let timed = self.begin(|| Operation::of("rope", x.rows, x.width));
            rope(exec, table, positions, &mut self.write(x), 0, heads);
            self.end(timed);
        }
    }

    /// Stores the batch's keys and values of one layer.
    pub fn store(&mut self, layer: usize, k: Act, v: Act) {
        let timed = self.begin(|| Operation::of("kv_store", k.rows, k.width + v.width));
        let values = &self.arena.values;
        let rows = |x: Act| Rows::new(&values[x.range()], x.rows, x.width, x.stride);
        self.kv.store(self.exec, layer, self.stored, rows(k), rows(v));
        self.end(timed);
    }

    /// Attention of the queries over what is stored.
    pub fn attention(&mut self, layer: usize, shape: AttentionShape, q: Act) -> Act {
        let y = self.alloc(q.rows, q.width);
        let segments = self.segments;
        let timed = self.begin(|| {
            let keys = segments.iter().map(|segment| segment.start + segment.rows).max();
            Operation { k: keys, ..Operation::of("attention", q.rows, q.width) }
        });
        let (from, mut to) = Self::both(&mut self.arena.values, q, y);
        attention(self.exec, shape, self.kv, layer, segments, from, &mut to);
        self.end(timed);
        y
    }

    /// `ln(sum e^x)` of every row, into the first of `sums`.
    pub fn log_sum_exp(&mut self, x: Act, sums: &mut [f64]) {
        let timed = self.begin(|| Operation::of("log_sum_exp", x.rows, x.width));
        log_sum_exp(self.exec, self.read(x), sums);
        self.end(timed);
    }

    /// Hands the values of `x` to whoever wanted them.
    pub fn hand_over(&mut self, x: Act, read: impl FnOnce(Exec<'_>, Rows<'_>)) {
        let timed = self.begin(|| Operation::of("read", x.rows, x.width));
        read(self.exec, self.read(x));
        self.end(timed);
    }

    /// Shows an activation to those who look at this pass.
    pub fn show(&mut self, name: ActivationName, x: Act) {
        let Watchers { observations, activations, .. } = &mut self.watchers;
        if observations.is_none() && activations.is_none() {
            return;
        }
        let layer = self.layer;
        let values = Rows::new(&self.arena.values[x.range()], x.rows, x.width, x.stride);
        if let Some(observations) = observations
            && matches!(name, ActivationName::Embedding | ActivationName::Residual)
        {
            observations.push(Observation::of(layer, values, x.rows));
        }
        if let Some(see) = activations {
            see(Activation { id: ActivationId { layer, name }, values });
        }
    }

    /// From here on only the rows that are wanted: residual stream and queries of those, in place.
    pub fn narrow(&mut self, x: Act, q: Act) -> (Act, Act) {
        let Wanted { rows, segments } = self.wanted;
        if rows.len() == x.rows {
            return (x, q);
        }
        let timed = self.begin(|| Operation::of("gather", rows.len(), x.width + q.width));
        for act in [x, q] {
            for (i, &row) in rows.iter().enumerate() {
                let from = act.at + row * act.stride;
                self.arena.values.copy_within(from..from + act.width, act.at + i * act.stride);
            }
        }
        self.end(timed);
        self.segments = segments;
        (Act { rows: rows.len(), ..x }, Act { rows: rows.len(), ..q })
    }

    /// The rows `rows` of `x`, in that order.
    pub fn gather(&mut self, x: Act, rows: &[usize]) -> Act {
        let y = self.alloc(rows.len(), x.width);
        let timed = self.begin(|| Operation::of("gather", rows.len(), x.width));
        let (from, mut to) = Self::both(&mut self.arena.values, x, y);
        for (i, &r) in rows.iter().enumerate() {
            to.row(i).copy_from_slice(from.row(r));
        }
        self.end(timed);
        y
    }
}
