//! Numbers that are added to logits, by how far a key is from its query.

use redline_simd::LANES;

use crate::{Buffer, OutOfMemory};

/// A number for each head and each distance of a key from its query.
#[derive(Debug)]
pub struct DistanceBias {
    /// `[heads][stride]`: the numbers of keys from the farthest one before the query to the farthest one after it.
    values: Buffer<f32>,
    heads: usize,
    /// Number of tokens of the longest sequence.
    context: usize,
}

impl DistanceBias {
    /// Tabulates `bias(head, distance)` for sequences of up to `context` tokens; a key that comes after its query has a positive distance.
    pub fn new(
        heads: usize,
        context: usize,
        mut bias: impl FnMut(usize, isize) -> f32,
    ) -> Result<Self, OutOfMemory> {
        let mut table = Self { values: Buffer::zeroed(heads * stride(context))?, heads, context };
        let farthest = context as isize - 1;
        for (head, values) in table.values.chunks_exact_mut(stride(context)).enumerate() {
            for (value, distance) in values.iter_mut().zip(-farthest..=farthest) {
                *value = bias(head, distance);
            }
        }
        Ok(table)
    }

    /// Number of query heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Number of tokens of the longest sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The numbers of a head for a query, of the keys from `key` on. After that of the last key of the context come as many as fill a block
    /// of sixteen.
    pub(super) fn of(&self, head: usize, position: usize, key: usize) -> &[f32] {
        let stride = stride(self.context);
        &self.values[head * stride..][..stride][self.context - 1 + key - position..]
    }

    /// Bytes of the table of so many heads and tokens.
    pub fn bytes_of(heads: usize, context: usize) -> usize {
        heads * stride(context) * size_of::<f32>()
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.values.bytes()
    }
}

/// Length of a head's part of the table: blocks of sixteen keys may reach beyond the last key.
fn stride(context: usize) -> usize {
    (2 * context - 1 + LANES).next_multiple_of(LANES)
}
