//! Adapters in memory, and which rows of a pass use which.

use std::ops::Range;
use std::sync::Arc;

use redline_kernels::op::linear::{Lora, LoraRows};
use redline_kernels::{Buffer, Matrix, OutOfMemory};

use crate::plan::Site;

/// An adapter in memory.
#[derive(Debug)]
pub struct Adapter {
    /// The update of each linear layer, in the order of [`Site::OF_LAYER`].
    pub(crate) layers: Vec<[Option<Lora>; Site::OF_LAYER.len()]>,
    /// The update of the head.
    pub(crate) head: Option<Lora>,
    pub(crate) embedding: Option<EmbeddingUpdate>,
    pub(crate) bytes: u64,
}

/// The update of the token embedding: `gains * (embedding[token] + up * down[token])`.
#[derive(Debug)]
pub(crate) struct EmbeddingUpdate {
    /// `[vocab, rank]`
    pub(crate) down: Matrix,
    /// `[hidden, rank]`
    pub(crate) up: Matrix,
    /// `[hidden]`, of DoRA.
    pub(crate) gains: Option<Buffer<f32>>,
}

/// An adapter that a sequence uses.
#[derive(Clone, Debug)]
pub struct AdapterUse {
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// Factor on its updates.
    pub scale: f32,
}

/// The adapters of a sequence, applied one after the other; empty: the base model alone.
pub type Adapters = Arc<[AdapterUse]>;

/// The largest adapters that passes have memory for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterLimits {
    /// Maximum rank of an adapter.
    pub rank: usize,
    /// Maximum number of adapters of a sequence.
    pub uses: usize,
}

/// The adapters of some consecutive rows.
#[derive(Clone, Debug)]
pub(crate) struct AdapterRows<'a> {
    pub(crate) rows: Range<usize>,
    pub(crate) uses: &'a [AdapterUse],
}

/// The updates of a selection of rows of the head.
#[derive(Debug)]
pub struct HeadUpdates(Vec<(Lora, f32)>);

impl Adapter {
    pub(crate) fn new(
        layers: Vec<[Option<Lora>; Site::OF_LAYER.len()]>,
        head: Option<Lora>,
        embedding: Option<EmbeddingUpdate>,
    ) -> Self {
        let mut adapter = Self { layers, head, embedding, bytes: 0 };
        let tables = adapter.embedding.iter().map(EmbeddingUpdate::bytes);
        adapter.bytes = adapter.loras().map(Lora::bytes).chain(tables).sum::<usize>() as u64;
        adapter
    }

    /// An adapter that changes nothing and counts as this many bytes, for tests that run no model.
    pub fn blank(bytes: u64) -> Self {
        Self { layers: Vec::new(), head: None, embedding: None, bytes }
    }

    /// Resident bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the scale is fixed because the adapter rescales the sums of layers (DoRA).
    pub fn has_gains(&self) -> bool {
        let of_embedding = self.embedding.as_ref().is_some_and(|update| update.gains.is_some());
        of_embedding || self.loras().any(|lora| lora.gains().is_some())
    }

    pub(crate) fn loras(&self) -> impl Iterator<Item = &Lora> {
        self.layers.iter().flatten().flatten().chain(&self.head)
    }

    /// The update of a layer; `None` if it has none.
    pub(crate) fn of(&self, layer: Option<usize>, site: Site) -> Option<&Lora> {
        let Some(layer) = layer else { return self.head.as_ref().filter(|_| site == Site::Head) };
        let index = Site::OF_LAYER.iter().position(|of| *of == site)?;
        self.layers.get(layer)?[index].as_ref()
    }

    pub(crate) fn embedding(&self) -> Option<&EmbeddingUpdate> {
        self.embedding.as_ref()
    }
}

impl EmbeddingUpdate {
    pub(crate) fn bytes(&self) -> usize {
        self.down.bytes() + self.up.bytes() + self.gains.as_ref().map_or(0, Buffer::bytes)
    }
}

impl HeadUpdates {
    /// The updates of the rows `ids` of the head by some adapters; `None` if they leave the head alone.
    pub fn new(uses: &[AdapterUse], ids: &[u32]) -> Result<Option<Self>, OutOfMemory> {
        let mut updates = Vec::new();
        for AdapterUse { adapter, scale } in uses {
            if let Some(head) = &adapter.head {
                updates.push((head.gather(ids)?, *scale));
            }
        }
        Ok((!updates.is_empty()).then_some(Self(updates)))
    }

    /// The updates of `rows` rows.
    pub(crate) fn of_rows(&self, rows: usize) -> Vec<LoraRows<'_>> {
        self.0.iter().map(|(lora, scale)| LoraRows { lora, scale: *scale, first: 0, rows }).collect()
    }
}

/// Appends the updates of a layer for all rows that have one.
pub(crate) fn loras_of<'a>(
    rows: &[AdapterRows<'a>],
    (layer, site): (Option<usize>, Site),
    to: &mut Vec<LoraRows<'a>>,
) {
    to.clear();
    for AdapterRows { rows, uses } in rows {
        for AdapterUse { adapter, scale } in *uses {
            if let Some(lora) = adapter.of(layer, site) {
                to.push(LoraRows { lora, scale: *scale, first: rows.start, rows: rows.len() });
            }
        }
    }
}

/// The adapters of the rows `wanted`, which are counted among all rows, in the order given.
pub(crate) fn of_wanted<'a>(all: &[AdapterRows<'a>], wanted: &[usize]) -> Vec<AdapterRows<'a>> {
    let mut found: Vec<AdapterRows<'a>> = Vec::new();
    for (i, row) in wanted.iter().enumerate() {
        let at = all.partition_point(|part| part.rows.end <= *row);
        let Some(AdapterRows { uses, .. }) = all.get(at).filter(|part| part.rows.start <= *row) else {
            continue;
        };
        match found.last_mut() {
            Some(last) if last.rows.end == i && std::ptr::eq(last.uses, *uses) => last.rows.end += 1,
            _ => found.push(AdapterRows { rows: i..i + 1, uses }),
        }
    }
    found
}
