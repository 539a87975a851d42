//! One pass over a batch, as the blocks see it: the operations that they call, and the memory for activations.
//!
//! That memory, the [`Arena`], is reserved before the first pass. Blocks allocate activations from it as from a stack, and each is a
//! handle, [`Act`]. All activations of a layer are released together. No operation returns an error or allocates memory.

mod layer_inputs;
mod model;
mod recurrence;
mod relative;
mod rows;

use redline_kernels::op::activation::{Gating, gate};
use redline_kernels::op::add::add;
use redline_kernels::op::attention::{AttentionBias, AttentionShape};
use redline_kernels::op::conv::Taps;
use redline_kernels::op::embedding::embedding;
use redline_kernels::op::experts::{Choice, Weighting, add_weighted, choose, gate as gate_rows, gather};
use redline_kernels::op::kv::{PassPages, Segment};
use redline_kernels::op::linear::{
    Epilogue, LayerRows, LoraRows, MAX_LAYERS, Variant, linear, linear_grouped,
};
use redline_kernels::op::norm::rms_norm_heads;
use redline_kernels::op::rope::rope;
use redline_kernels::op::scale::scale;
use redline_kernels::op::softcap::softcap;
use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::{Buffer, Exec, Matrix, OutOfMemory, Rows, RowsMut};

use crate::activation::{Activation, ActivationId, ActivationName};
use crate::adapter_rows::{AdapterRows, AdapterUse, EmbeddingUpdate, loras_of, of_wanted};
use crate::element::dense::DenseLayer;
use crate::element::linear::Linear;
use crate::element::norm::Norm;
use crate::plan::{Plan, Site};
use crate::profile::{Operation, Profile, SpanStart};
use crate::row_digests::RowDigests;
use crate::trace::{Observation, Observations};

use layer_inputs::LayerInputRows;
pub(crate) use model::StepModel;

/// Activations: `[rows, width]` in the arena, rows `stride` values apart.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// Index of the first value in the arena.
    start: usize,
    rows: usize,
    width: usize,
    stride: usize,
}

impl Act {
    /// A view of the columns `first..first + width`.
    pub fn columns(self, first: usize, width: usize) -> Self {
        assert!(first + width <= self.width, "columns {first}..{} of {}", first + width, self.width);
        Self { start: self.start + first, width, ..self }
    }

    /// Its rows, of which `values` are the values of [`Act::range`].
    fn rows_of(self, values: &[f32]) -> Rows<'_> {
        Rows::new(values, self.rows, self.width, self.stride)
    }

    /// Number of rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Number of values in a row.
    pub fn width(self) -> usize {
        self.width
    }

    /// The range in the arena from the first value to the last, without the padding of the last row.
    fn range(self) -> std::ops::Range<usize> {
        self.start..self.start + if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + self.width }
    }
}

/// Width of a row, rounded up so that whole strips (sixteen outputs) can be written.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Maximum number of rows of an expert in a group. With more, it alone has enough work for many threads.
const MAX_GROUPED_ROWS: usize = 16;
/// Maximum number of rows of a group of experts.
pub(crate) const MAX_ROWS: usize = 64;

/// The rows that go to one expert, ascending, or to a group of experts, which follow each other.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRows {
    /// The expert, if it runs alone.
    only: Option<usize>,
    /// Index of the first choice in the arena.
    first: usize,
    /// Index after the last one.
    end: usize,
}

impl ExpertRows {
    /// The expert, if it runs alone; `None` for a group, which may hold a single expert.
    pub fn only_expert(self) -> Option<usize> {
        self.only
    }
}

/// Where the layers of a group find the inputs of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputsOf {
    /// In the row that the choice names.
    Choices,
    /// In a row for each choice.
    Rows,
}

/// Memory for the activations of one pass.
#[derive(Debug)]
pub struct Arena {
    values: Buffer<f32>,
    /// Inputs of a linear layer, packed for the format of its weights, or results of spans of attention.
    words: Buffer<u32>,
    /// Rows and their experts.
    choices: Vec<Choice>,
}

/// The size of an [`Arena`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaSize {
    /// Number of f32 values of activations.
    pub values: usize,
    /// Number of words of packed inputs and of spans' results.
    pub words: usize,
    /// Number of rows that go to experts, one for each expert of a row.
    pub choices: usize,
}

impl ArenaSize {
    /// Total size in bytes.
    pub fn bytes(self) -> u64 {
        4 * (self.values as u64 + self.words as u64) + (size_of::<Choice>() * self.choices) as u64
    }
}

impl Arena {
    /// Allocates the memory.
    pub fn new(size: ArenaSize) -> Result<Self, OutOfMemory> {
        let mut choices = Vec::new();
        let bytes = size_of::<Choice>() * size.choices;
        choices.try_reserve_exact(size.choices).map_err(|_| OutOfMemory { bytes })?;
        choices.resize(size.choices, Choice::default());
        Ok(Self { values: Buffer::zeroed(size.values)?, words: Buffer::zeroed(size.words)?, choices })
    }

    /// Overwrites everything with values that change any result that depends on them. This reveals a pass that reads what an
    /// earlier pass left.
    pub fn poison(&mut self) {
        self.values.fill(f32::NAN);
        // Two bf16 NaNs; as integers, large values.
        self.words.fill(0x7fc0_7fc0);
        self.choices.fill(Choice { expert: u32::MAX, row: u32::MAX, weight: f32::NAN });
    }

    /// All of it.
    pub(crate) fn whole(&mut self) -> ArenaPart<'_> {
        let Self { values, words, choices } = self;
        ArenaPart { values, words, choices }
    }
}

/// A part of an [`Arena`].
#[derive(Debug)]
pub(crate) struct ArenaPart<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) words: &'a mut [u32],
    choices: &'a mut [Choice],
}

impl ArenaPart<'_> {
    /// The same part, for a shorter time.
    pub(crate) fn reborrow(&mut self) -> ArenaPart<'_> {
        let Self { values, words, choices } = self;
        ArenaPart { values, words, choices }
    }

    /// Cuts off a part of this size, and leaves the rest; `None` if there is not enough memory.
    pub(crate) fn take(&mut self, size: ArenaSize) -> Option<Self> {
        /// Values and words of a cache line.
        const LINE: usize = 16;
        let values = self.values.split_off_mut(..size.values.next_multiple_of(LINE))?;
        let words = self.words.split_off_mut(..size.words.next_multiple_of(LINE))?;
        let choices = self.choices.split_off_mut(..size.choices)?;
        Some(Self { values, words, choices })
    }
}

/// Observers of a pass. They change no result. Without observers, each operation costs one additional branch.
#[derive(Default)]
pub struct Watchers<'a> {
    /// Records statistics of the residual stream.
    pub observations: Option<&'a mut Observations>,
    /// Receives every named activation when it is computed.
    pub activations: Option<&'a (dyn Fn(Activation<'_>) + 'a)>,
    /// Records the start and end of layers and operations.
    pub profile: Option<&'a mut Profile>,
    /// Takes digests of rows of the residual stream, of which no further rows need to be run.
    pub digests: Option<&'a RowDigests>,
}

impl Watchers<'_> {
    /// Whether the batch that they watch must run as a whole.
    pub(crate) fn watch_whole(&self) -> bool {
        let Self { observations, activations, profile, digests: _ } = self;
        observations.is_some() || activations.is_some() || profile.is_some()
    }
}

/// One pass over a batch or a micro-batch: its tokens, its keys and values, and the memory for its activations.
pub struct Step<'a> {
    exec: Exec<'a>,
    arena: ArenaPart<'a>,
    /// Number of values of the arena that are allocated.
    used: usize,
    tokens: &'a [u32],
    positions: &'a [u32],
    places: &'a [u32],
    types: &'a [u32],
    /// Segments whose queries attend: those that are stored, or after the last of them only the wanted rows ([`Step::narrow`]).
    segments: &'a [Segment<'a>],
    wanted: Wanted<'a>,
    /// Adapters of the rows that layers run on: those of the whole batch, or in the end of the wanted rows.
    adapters: &'a [AdapterRows<'a>],
    /// Updates of the current layer.
    loras: Vec<LoraRows<'a>>,
    kv: PassPages<'a>,
    model: StepModel<'a>,
    plan: Option<&'a Plan>,
    /// The current layer.
    layer: Option<usize>,
    layer_inputs: Option<LayerInputRows>,
    watchers: Watchers<'a>,
}

/// The start of a layer or operation; `None` without a profile.
#[derive(Clone, Copy)]
pub(crate) struct Timed(Option<SpanStart>);

/// The rows that are needed after the last layer.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Their indices in the batch, ascending.
    pub rows: &'a [usize],
    /// Their positions in their sequences.
    pub positions: &'a [u32],
    /// Their segments, in the same order. `first_row` of a segment is an index of `rows`.
    pub segments: &'a [Segment<'a>],
    /// Their adapters.
    pub(crate) adapters: &'a [AdapterRows<'a>],
}

/// The input of a [`Step`].
pub struct StepInput<'a> {
    /// Token ids, one per row.
    pub tokens: &'a [u32],
    /// Position of each row in its sequence.
    pub positions: &'a [u32],
    /// For each row of the batch, its row in the table of learned positions.
    pub places: &'a [u32],
    /// Token type of each row.
    pub types: &'a [u32],
    /// The rows that are needed after the last layer.
    pub wanted: Wanted<'a>,
    /// The adapters of rows that have some, in the order of the rows.
    pub(crate) adapters: &'a [AdapterRows<'a>],
    /// The segments of the batch, of which every row belongs to exactly one, and their keys and values.
    pub kv: PassPages<'a>,
    /// The plan for linear layers; a layer that it does not cover runs in the estimated variant.
    pub plan: Option<&'a Plan>,
    /// Observers of the pass.
    pub watchers: Watchers<'a>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(
        exec: Exec<'a>,
        arena: ArenaPart<'a>,
        model: StepModel<'a>,
        input: StepInput<'a>,
    ) -> Self {
        let StepInput { tokens, positions, places, types, wanted, adapters, kv, plan, watchers } = input;
        assert_eq!(tokens.len(), positions.len(), "a position for every token");
        Self {
            exec,
            arena,
            used: 0,
            tokens,
            positions,
            places,
            types,
            segments: kv.segments(),
            wanted,
            adapters,
            loras: Vec::with_capacity(adapters.iter().map(|part| part.uses.len()).sum()),
            kv,
            model,
            plan,
            layer: None,
            layer_inputs: None,
            watchers,
        }
    }

    /// Token ids of the batch, one per row.
    pub fn tokens(&self) -> &'a [u32] {
        self.tokens
    }

    /// For each row of the batch, its row in the table of learned positions.
    pub fn places(&self) -> &'a [u32] {
        self.places
    }

    /// Token type of each row of the batch.
    pub fn types(&self) -> &'a [u32] {
        self.types
    }

    /// Allocates `rows` rows of `width` values with unspecified contents.
    pub fn alloc(&mut self, rows: usize, width: usize) -> Act {
        let act = Act { start: self.used, rows, width, stride: padded(width) };
        self.used += rows * act.stride;
        assert!(self.used <= self.arena.values.len(), "the arena holds {} values", self.arena.values.len());
        act
    }

    /// The current height of the stack, for [`Step::release`].
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Releases everything allocated since `mark`.
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

    /// Borrows `from` for reading, and `to` with its padding for writing. They must not overlap.
    fn input_and_output(values: &mut [f32], from: Act, to: Act) -> (Rows<'_>, RowsMut<'_>) {
        // Linear layers write whole strips.
        let last = to.rows.saturating_sub(1) * to.stride + padded(to.width);
        let whole = to.start..to.start + last;
        let [a, b] = values.get_disjoint_mut([from.range(), whole]).expect("activations do not overlap");
        (Rows::new(a, from.rows, from.width, from.stride), RowsMut::new(b, to.rows, to.width, to.stride))
    }

    /// Begins a layer.
    pub(crate) fn begin_layer(&mut self, layer: usize) -> Timed {
        self.layer = Some(layer);
        Timed(self.watchers.profile.as_mut().map(|profile| profile.begin(Some(layer), None)))
    }

    /// Ends a layer.
    pub(crate) fn end_layer(&mut self, timed: Timed) {
        self.end(timed);
        self.layer = None;
    }

    /// Begins an operation.
    fn begin(&mut self, operation: impl FnOnce() -> Operation) -> Timed {
        let layer = self.layer;
        Timed(self.watchers.profile.as_mut().map(|profile| profile.begin(layer, Some(operation()))))
    }

    /// Ends an operation.
    fn end(&mut self, timed: Timed) {
        if let (Some(profile), Some(start)) = (&mut self.watchers.profile, timed.0) {
            profile.end(start);
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

    /// The outputs of a linear layer: `x W^T`, with its bias and activation.
    pub fn linear(&mut self, x: Act, layer: &Linear) -> Act {
        // A plan applies to the rows of the whole pass, not to the wanted rows.
        let plan = self.plan.filter(|_| x.rows == self.tokens.len());
        let variant = plan.and_then(|plan| plan.of(layer.site()));
        let mut loras = std::mem::take(&mut self.loras);
        loras_of(self.adapters, (self.layer, layer.site()), &mut loras);
        let y = self.alloc(x.rows, layer.outputs());
        let mut first = 0;
        for matrix in layer.matrices() {
            let bias = layer.bias().map(|bias| &bias[first..]);
            let epilogue = Epilogue { loras: &loras, bias, activation: layer.activation() };
            let part = Act { start: y.start + first, width: matrix.rows(), ..y };
            self.run_linear((x, part), matrix, layer.site(), epilogue, variant);
            first += matrix.rows();
        }
        self.loras = loras;
        y
    }

    /// `x W^T` with updates, where `matrix` is the head or some of its rows.
    pub(crate) fn head(
        &mut self,
        x: Act,
        matrix: &Matrix,
        variant: Option<Variant>,
        epilogue: Epilogue<'_>,
    ) -> Act {
        let y = self.alloc(x.rows, matrix.rows());
        self.run_linear((x, y), matrix, Site::Head, epilogue, variant);
        y
    }

    /// The outputs of a layer outside the decoder.
    pub(crate) fn dense(&mut self, x: Act, layer: &DenseLayer) -> Act {
        let DenseLayer { weights, bias, activation, norm } = layer;
        let epilogue = Epilogue { bias: bias.as_deref(), activation: *activation, ..Epilogue::default() };
        let y = self.head(x, weights, None, epilogue);
        norm.as_ref().map_or(y, |norm| self.norm_in_place(y, norm))
    }

    /// The adapters of some of the rows that the last layer left, in the order given.
    pub(crate) fn adapters_of(&self, rows: &[usize]) -> Vec<AdapterRows<'a>> {
        of_wanted(self.adapters, rows)
    }

    /// Adds the updates of adapters to the embedding of the batch.
    pub fn update_embedding(&mut self, x: Act) {
        for AdapterRows { rows, uses } in self.adapters {
            let x = Act { start: x.start + rows.start * x.stride, rows: rows.len(), ..x };
            for AdapterUse { adapter, scale } in *uses {
                let Some(EmbeddingUpdate { down, up, gains }) = adapter.embedding() else { continue };
                let mark = self.mark();
                let t = self.embedding(down, &self.tokens[rows.clone()]);
                if *scale != 1.0 {
                    let mut t = self.write(t);
                    (0..rows.len()).for_each(|r| t.row(r).iter_mut().for_each(|t| *t *= scale));
                }
                let update = self.head(t, up, None, Epilogue::default());
                let (from, mut to) = Self::input_and_output(self.arena.values, update, x);
                add(self.exec, &mut to, from, 1.0);
                for (r, gains) in (0..rows.len()).filter_map(|r| Some((r, gains.as_ref()?))) {
                    to.row(r).iter_mut().zip(gains.iter()).for_each(|(x, gain)| *x *= gain);
                }
                self.release(mark);
            }
        }
    }

    /// A linear layer from `x` to `y`, in the given variant or in the estimated one.
    fn run_linear(
        &mut self,
        (x, y): (Act, Act),
        matrix: &Matrix,
        site: Site,
        epilogue: Epilogue<'_>,
        variant: Option<Variant>,
    ) {
        let variant = variant.unwrap_or_else(|| Variant::estimate(self.exec.simd, matrix, x.rows));
        let timed = self.begin(|| Operation::linear(site, x.rows, matrix, variant));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        linear(self.exec, matrix, from, &mut to, epilogue, variant, self.arena.words);
        self.end(timed);
    }

    /// The norm of each row.
    pub fn norm(&mut self, x: Act, norm: &Norm) -> Act {
        let y = self.alloc(x.rows, x.width);
        let timed = self.begin(|| Operation::of("norm", x.rows, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        norm.apply(self.exec, from, &mut to);
        self.end(timed);
        self.show(norm.name, y);
        y
    }

    /// RMSNorm of each part of a row that is as wide as the norm, in place: of each head, or of all together.
    pub fn norm_heads(&mut self, x: Act, norm: &Norm) {
        let (exec, heads) = (self.exec, x.width / norm.width());
        assert_eq!(x.width, heads * norm.width(), "whole heads");
        let timed = self.begin(|| Operation::of("norm_heads", x.rows, x.width));
        rms_norm_heads(exec, &mut self.write(x), 0, heads, &norm.weight, norm.eps);
        self.end(timed);
        self.show(norm.name, x);
    }

    /// The norm of each row, in place. Returns `x`.
    pub fn norm_in_place(&mut self, x: Act, norm: &Norm) -> Act {
        let exec = self.exec;
        let timed = self.begin(|| Operation::of("norm", x.rows, x.width));
        norm.apply_in_place(exec, &mut self.write(x));
        self.end(timed);
        self.show(norm.name, x);
        x
    }

    /// `x += factor * a`. Returns `x`, which is reported to the observers as `name`.
    pub fn add(&mut self, x: Act, a: Act, factor: f32, name: ActivationName) -> Act {
        self.add_to(x, a, factor);
        self.show(name, x);
        x
    }

    /// `x += factor * a`.
    pub fn add_to(&mut self, x: Act, a: Act, factor: f32) {
        let timed = self.begin(|| Operation::of("add", x.rows, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, a, x);
        add(self.exec, &mut to, from, factor);
        self.end(timed);
    }

    /// `x *= factor`; does nothing if that is 1.
    pub fn scale(&mut self, x: Act, factor: f32) {
        if factor != 1.0 {
            let exec = self.exec;
            let timed = self.begin(|| Operation::of("scale", x.rows, x.width));
            scale(exec, &mut self.write(x), |_| factor);
            self.end(timed);
        }
    }

    /// `cap * tanh(x / cap)`, in place.
    pub fn softcap(&mut self, x: Act, cap: f32) {
        let exec = self.exec;
        let timed = self.begin(|| Operation::of("softcap", x.rows, x.width));
        softcap(exec, &mut self.write(x), cap);
        self.end(timed);
    }

    /// What `gating` says of gate and up, where a row of `gate_up` is a row of gate followed by a row of up.
    pub fn gate(&mut self, gating: Gating, gate_up: Act) -> Act {
        let y = self.alloc(gate_up.rows, gate_up.width / 2);
        let timed = self.begin(|| Operation::of("gate", y.rows, y.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, gate_up, y);
        gate(self.exec, gating, from, &mut to);
        self.end(timed);
        y
    }

    /// Chooses the `top_k` experts of every row from `logits`, `[rows, experts]`, which are overwritten.
    pub fn choose(&mut self, logits: Act, top_k: usize, weighting: Weighting<&[f32]>) {
        let (exec, rows) = (self.exec, logits.rows);
        let timed = self.begin(|| Operation::of("experts", rows, logits.width));
        let ArenaPart { values, choices, .. } = &mut self.arena;
        let mut logits = RowsMut::new(&mut values[logits.range()], rows, logits.width, logits.stride);
        let choices = &mut choices[..rows * top_k];
        choose(exec, &mut logits, top_k, weighting, choices);
        choices.sort_unstable_by_key(|choice| (choice.expert, choice.row));
        self.end(timed);
    }

    /// The rows of the next experts after `before`, or of the first ones, among `choices` choices: of one expert, or with `grouped` of
    /// several that follow each other and have few rows each.
    pub fn next_experts(
        &self,
        before: Option<ExpertRows>,
        choices: usize,
        grouped: bool,
    ) -> Option<ExpertRows> {
        let first = before.map_or(0, |rows| rows.end);
        let mut experts = self.arena.choices[first..choices].chunk_by(|a, b| a.expert == b.expert);
        let of_first = experts.next()?;
        let alone =
            ExpertRows { only: Some(of_first[0].expert as usize), first, end: first + of_first.len() };
        // A device has its part of every layer, not some of the layers.
        if !grouped || of_first.len() > MAX_GROUPED_ROWS || self.exec.team.devices() > 1 {
            return Some(alone);
        }
        let mut rows = of_first.len();
        for of_next in experts.take(MAX_LAYERS - 1) {
            if of_next.len() > MAX_GROUPED_ROWS || rows + of_next.len() > MAX_ROWS {
                break;
            }
            rows += of_next.len();
        }
        Some(ExpertRows { only: None, first, end: first + rows })
    }

    /// The outputs of the layers of a group of experts, computed together: a row for each choice. The layers have one shape.
    pub fn linear_grouped<'l>(
        &mut self,
        x: Act,
        rows: ExpertRows,
        inputs: InputsOf,
        layer: impl Fn(usize) -> &'l Linear,
    ) -> Act {
        let count = rows.end - rows.first;
        let first = layer(self.arena.choices[rows.first].expert as usize);
        let (matrix, activation) = (&first.matrices()[0], first.activation());
        let y = self.alloc(count, first.outputs());
        let timed = self.begin(|| Operation {
            name: "linear_grouped",
            ..Operation::linear(first.site(), count, matrix, Variant::Dot)
        });
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        let choices = &self.arena.choices[rows.first..rows.end];
        let mut layers = [LayerRows { matrix, bias: None, rows: 0 }; MAX_LAYERS];
        let mut experts = 0;
        for rows in choices.chunk_by(|a, b| a.expert == b.expert) {
            let layer = layer(rows[0].expert as usize);
            layers[experts] =
                LayerRows { matrix: &layer.matrices()[0], bias: layer.bias(), rows: rows.len() };
            experts += 1;
        }
        let choices = (inputs == InputsOf::Choices).then_some(choices);
        let words = &mut *self.arena.words;
        linear_grouped(self.exec, &layers[..experts], from, choices, &mut to, activation, words);
        self.end(timed);
        y
    }

    /// Sends every row to one expert, with the sigmoid of its value in `x`, `[rows, 1]`, as weight.
    pub fn gate_rows(&mut self, x: Act) -> ExpertRows {
        let timed = self.begin(|| Operation::of("experts", x.rows, 1));
        let ArenaPart { values, choices, .. } = &mut self.arena;
        gate_rows(self.exec, Rows::new(&values[x.range()], x.rows, x.width, x.stride), choices);
        self.end(timed);
        ExpertRows { only: Some(0), first: 0, end: x.rows }
    }

    /// The rows of an expert: `x` itself if these are all, otherwise a copy.
    pub fn rows_of(&mut self, x: Act, rows: ExpertRows) -> Act {
        let count = rows.end - rows.first;
        if count == x.rows {
            return x;
        }
        let y = self.alloc(count, x.width);
        let timed = self.begin(|| Operation::of("gather", count, x.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
        gather(self.exec, &self.arena.choices[rows.first..rows.end], from, &mut to);
        self.end(timed);
        y
    }

    /// `out[row] += weight * y` for the rows of an expert.
    pub fn add_weighted(&mut self, out: Act, y: Act, rows: ExpertRows) {
        let timed = self.begin(|| Operation::of("add", y.rows, y.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, y, out);
        add_weighted(self.exec, &self.arena.choices[rows.first..rows.end], from, &mut to);
        self.end(timed);
    }

    /// Allocates `rows` rows of `width` zeros.
    pub fn zeros(&mut self, rows: usize, width: usize) -> Act {
        let x = self.alloc(rows, width);
        let mut values = self.write(x);
        (0..rows).for_each(|r| values.row(r).fill(0.0));
        x
    }

    /// Rotates `heads` heads in place, by a rotation of the model.
    pub fn rope(&mut self, rotation: usize, x: Act, heads: usize) {
        let (exec, positions, table) = (self.exec, self.positions, &self.model.rotations[rotation].table);
        assert_eq!(x.width, heads * table.head_dim(), "heads as wide as those of the rotation");
        let timed = self.begin(|| Operation::of("rope", x.rows, x.width));
        rope(exec, table, positions, &mut self.write(x), 0, heads);
        self.end(timed);
    }

    /// Multiplies queries by what a rotation lets them grow, in place.
    pub fn grow(&mut self, rotation: usize, q: Act) {
        let (exec, positions) = (self.exec, self.positions);
        if let Some(growth) = self.model.rotations[rotation].growth {
            let timed = self.begin(|| Operation::of("scale", q.rows, q.width));
            scale(exec, &mut self.write(q), |r| growth.factor(positions[r]));
            self.end(timed);
        }
    }

    /// The index of the current layer's part of a page among those of its kind.
    fn cache_slot(&self) -> usize {
        self.layer.map_or(0, |layer| self.model.cache_slots[layer])
    }

    /// Convolves rows of gates and inputs, and stores the inputs of the current layer that later rows need, unless `after` taps, more
    /// than none, are for later rows.
    pub fn convolve(&mut self, bcx: Act, taps: Taps<'_>, after: usize) -> Act {
        let y = self.alloc(bcx.rows, taps.channels);
        let (exec, slot) = (self.exec, self.cache_slot());
        let timed = self.begin(|| Operation::of("conv", y.rows, y.width));
        let (from, mut to) = Self::input_and_output(self.arena.values, bcx, y);
        if after > 0 {
            self.kv.convolve_whole(exec, after, taps, from, &mut to);
        } else {
            self.kv.convolve(exec, slot, taps, from, &mut to);
        }
        self.end(timed);
        y
    }

    /// Stores the batch's keys and values of the current layer.
    pub fn store(&mut self, k: Act, v: Act) {
        let timed = self.begin(|| Operation::of("kv_store", k.rows, k.width + v.width));
        let values = &self.arena.values;
        let rows = |x: Act| x.rows_of(&values[x.range()]);
        self.kv.store(self.exec, self.cache_slot(), rows(k), rows(v));
        self.end(timed);
    }

    /// Attention of the queries over the stored keys and values of the current layer. The bias of `shape` is set here: that of every row if
    /// there is one, otherwise that of the model.
    pub fn attention(&mut self, shape: AttentionShape<'_>, q: Act, bias: Option<Act>) -> Act {
        let y = self.alloc(q.rows, q.width);
        let (segments, slot) = (self.segments, self.cache_slot());
        let timed = self.begin(|| {
            let most = segments.iter().map(|segment| segment.start + segment.rows).max();
            Operation { k: most, ..Operation::of("attention", q.rows, q.width) }
        });
        let of_rows = bias.map_or(0..0, Act::range);
        let values = &mut *self.arena.values;
        let [from, biases, out] =
            values.get_disjoint_mut([q.range(), of_rows, y.range()]).expect("activations do not overlap");
        let bias = match bias {
            Some(bias) => Some(AttentionBias::PerRow(bias.rows_of(biases))),
            None => self.model.distance_bias(),
        };
        let mut to = RowsMut::new(out, y.rows, y.width, y.stride);
        let shape = AttentionShape { bias, ..shape };
        self.kv.attention(self.exec, (slot, shape), segments, q.rows_of(from), &mut to, self.arena.words);
        self.end(timed);
        y
    }

    /// Writes `ln(sum e^x)` of each row to the first elements of `sums`.
    pub fn log_sum_exp(&mut self, x: Act, sums: &mut [f64]) {
        let timed = self.begin(|| Operation::of("log_sum_exp", x.rows, x.width));
        log_sum_exp(self.exec, self.read(x), sums);
        self.end(timed);
    }

    /// Calls `read` with the values of `x`, and records its time as an operation.
    pub fn hand_over(&mut self, x: Act, read: impl FnOnce(Exec<'_>, Rows<'_>)) {
        let timed = self.begin(|| Operation::of("read", x.rows, x.width));
        read(self.exec, self.read(x));
        self.end(timed);
    }

    /// Reports an activation to the observers of this pass.
    pub fn show(&mut self, name: ActivationName, x: Act) {
        let Watchers { observations, activations, digests, profile: _ } = &mut self.watchers;
        if observations.is_none() && activations.is_none() && digests.is_none() {
            return;
        }
        let layer = self.layer;
        let values = Rows::new(&self.arena.values[x.range()], x.rows, x.width, x.stride);
        if let (Some(digests), Some(layer), ActivationName::Residual) = (digests, layer, name) {
            let only = (x.rows != self.tokens.len()).then_some(self.wanted.rows);
            digests.observe(self.exec.team, layer, values, only);
        }
        if let Some(observations) = observations
            && matches!(name, ActivationName::Embedding | ActivationName::Residual)
        {
            observations.push(Observation::of(layer, values, x.rows));
        }
        if let Some(receive) = activations {
            receive(Activation { id: ActivationId { layer, name }, values });
        }
    }

    /// The residual stream of the wanted rows, `[wanted rows, width]`, that micro-batches have left at the start of the arena.
    pub(crate) fn results_of_micro_batches(&mut self, width: usize) -> Act {
        (self.segments, self.adapters) = (self.wanted.segments, self.wanted.adapters);
        self.alloc(self.wanted.rows.len(), width)
    }
}
