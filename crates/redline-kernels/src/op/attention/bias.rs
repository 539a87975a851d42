//! Numbers that are added to logits.

use redline_simd::LANES;

use crate::op::kv::{Segment, rows_of};
use crate::{Buffer, OutOfMemory, Plain, Rows};

/// What is added to the logits of a layer.
#[derive(Clone, Copy, Debug)]
pub enum AttentionBias<'a> {
    /// A number for each head and distance.
    ByDistance(&'a DistanceBias),
    /// A number for each row, head and key, `[rows, heads * width]`: a head has one for each key of the row's sequence, and any others
    /// until a whole block of sixteen.
    PerRow(Rows<'a>),
}

impl<'a> AttentionBias<'a> {
    /// The biases of one of `heads` heads for a row of the batch, which is at a position of its sequence: of the keys from `key` on.
    pub(super) fn of(
        self,
        (head, heads): (usize, usize),
        (row, position): (usize, usize),
        key: usize,
    ) -> &'a [f32] {
        match self {
            Self::ByDistance(table) => table.of(head, position, key),
            Self::PerRow(rows) => {
                let width = rows.width / heads;
                &rows.row(row)[head * width..][..width][key..]
            }
        }
    }

    /// Panics unless there are numbers for `heads` heads, and for all rows and keys of the segments.
    pub(super) fn check(self, heads: usize, segments: &[Segment<'_>]) {
        let (rows, keys) = (rows_of(segments), segments.iter().map(Segment::keys).max().unwrap_or(0));
        match self {
            Self::ByDistance(table) => {
                let ends = segments.iter().map(|segment| segment.start + segment.rows);
                let keys = ends.fold(keys, usize::max);
                assert!(table.heads == heads, "biases of {} heads for {heads}", table.heads);
                assert!(keys <= table.context, "{keys} keys, but biases of {}", table.context);
            }
            Self::PerRow(biases) => {
                let least = heads * keys.next_multiple_of(LANES);
                assert!(biases.width.is_multiple_of(heads), "biases of {heads} heads in {}", biases.width);
                assert!(biases.width >= least, "{} biases in a row, not {least}", biases.width);
                assert!(biases.rows >= rows, "biases of {} rows for {rows}", biases.rows);
            }
        }
    }
}

/// A number for each head and each distance of a key from its query.
pub type DistanceBias = DistanceTable<f32>;

/// A value for each head and each distance of a key from its query.
#[derive(Debug)]
pub struct DistanceTable<T: Plain> {
    /// `[heads][stride]`: those of keys from the farthest one before the query to the farthest one after it.
    values: Buffer<T>,
    heads: usize,
    /// Number of tokens of the longest sequence.
    context: usize,
}

impl<T: Plain> DistanceTable<T> {
    /// Tabulates `of(head, distance)` for sequences of up to `context` tokens; a key that comes after its query has a positive distance.
    pub fn new(
        heads: usize,
        context: usize,
        mut of: impl FnMut(usize, isize) -> T,
    ) -> Result<Self, OutOfMemory> {
        let mut table = Self { values: Buffer::zeroed(heads * stride(context))?, heads, context };
        let farthest = context as isize - 1;
        for (head, values) in table.values.chunks_exact_mut(stride(context)).enumerate() {
            for (value, distance) in values.iter_mut().zip(-farthest..=farthest) {
                *value = of(head, distance);
            }
        }
        Ok(table)
    }

    /// Those of a head for a query, of the keys from `key` on. After that of the last key of the context come as many as fill a block
    /// of sixteen.
    pub(super) fn of(&self, head: usize, position: usize, key: usize) -> &[T] {
        let stride = stride(self.context);
        &self.values[head * stride..][..stride][self.context - 1 + key - position..]
    }

    /// Number of tokens of the longest sequence.
    pub(super) fn context(&self) -> usize {
        self.context
    }

    /// Bytes of the table of so many heads and tokens.
    pub fn bytes_of(heads: usize, context: usize) -> usize {
        heads * stride(context) * size_of::<T>()
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
