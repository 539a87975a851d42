//! A case: the last rows of some sequences attend to all tokens of theirs.

use redline_kernels::op::attention::{AttentionShape, scratch_words, thread_bytes};
use redline_kernels::op::kv::{AttentionMask, KvFormat, KvShape, PAGE_TOKENS, PageShape, Segment};

use crate::roofline::{Work, keys_seen};

/// The shape of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// Tokens of each sequence, the query rows included.
    pub(super) context: usize,
    /// Query rows of each sequence, which are its last tokens.
    pub(super) rows: usize,
    /// Sequences, each with keys and values of its own.
    pub(super) batch: usize,
    pub(super) kv_heads: usize,
    /// Query heads per KV head.
    pub(super) group: usize,
    pub(super) head_dim: usize,
}

impl Case {
    pub(super) fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Values of a query row.
    pub(super) fn width(&self) -> usize {
        self.heads() * self.head_dim
    }

    /// Query rows of all sequences: the tokens of tokens per second.
    pub(super) fn tokens(&self) -> usize {
        self.batch * self.rows
    }

    /// Pages of a sequence.
    pub(super) fn pages(&self) -> usize {
        self.context.div_ceil(PAGE_TOKENS)
    }

    pub(super) fn kv_shape(&self, format: KvFormat) -> KvShape {
        KvShape { format, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Logits are divided by the root of the dimension.
    pub(super) fn attention(&self) -> AttentionShape<'static> {
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        AttentionShape { heads: self.heads(), scale, window: None, softcap: None, bias: None, sinks: None }
    }

    /// Rows `first..first + rows` of a sequence's query rows, as a segment of a batch that has them from row `at` on.
    pub(super) fn segment<'a>(&self, pages: &'a [u32], first: usize, rows: usize, at: usize) -> Segment<'a> {
        let start = self.context - self.rows + first;
        Segment { pages, start, first_row: at, rows, attention: AttentionMask::Causal }
    }

    /// Bytes of the keys and values of all sequences.
    pub(super) fn kv_bytes(&self, format: KvFormat) -> f64 {
        let of_token = PageShape::from(&[self.kv_shape(format)][..]).bytes() as f64 / PAGE_TOKENS as f64;
        of_token * self.context as f64 * self.batch as f64
    }

    /// The minimum work of a call: keys and values are read once, and every row multiplies every key and every value that it sees.
    /// Queries and outputs are not counted, because they may stay in caches.
    pub(super) fn work(&self, format: KvFormat) -> Work {
        let keys = self.batch as f64 * keys_seen(self.context - self.rows, self.rows);
        let attention = 4.0 * self.width() as f64 * keys;
        Work { bytes: self.kv_bytes(format), operations: 0.0, attention }
    }

    /// Bytes that attention needs besides its arguments: the results of spans that are divided among threads, and what each thread
    /// holds of a block.
    pub(super) fn scratch_bytes(&self, format: KvFormat, threads: usize) -> usize {
        scratch_words(self.head_dim) * size_of::<u32>() + threads * thread_bytes(self.kv_shape(format))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const CASE: Case =
        Case { context: 300, rows: 5, batch: 2, kv_heads: 2, group: 3, head_dim: 32 };

    #[test]
    fn work_is_keys_and_values_once_and_products_of_what_a_row_sees() {
        // A token of w8 has 32 bytes of keys, 32 of values and two scales of four bytes for each of two heads.
        let bytes = 2.0 * 300.0 * 2.0 * (64.0 + 8.0);
        // Rows see 296 to 300 keys; each of six heads does 32 multiply-adds for a key and as many for a value.
        let keys = 2.0 * (296.0 + 297.0 + 298.0 + 299.0 + 300.0);
        let work = Work { bytes, operations: 0.0, attention: keys * 6.0 * 32.0 * 2.0 * 2.0 };
        assert_eq!(CASE.work(KvFormat::W8), work);
        assert_eq!(CASE.work(KvFormat::F16).bytes, 2.0 * 300.0 * 2.0 * 128.0);
        assert_eq!((CASE.tokens(), CASE.width(), CASE.pages()), (10, 192, 5));
    }

    #[test]
    fn scratch_grows_with_threads_by_what_a_thread_holds() {
        for &format in KvFormat::ALL {
            let of = |threads| CASE.scratch_bytes(format, threads);
            assert_eq!(of(3) - of(1), 2 * thread_bytes(CASE.kv_shape(format)));
            assert_eq!(of(1), 4 * scratch_words(32) + thread_bytes(CASE.kv_shape(format)));
        }
        assert!(CASE.scratch_bytes(KvFormat::W8, 1) < CASE.scratch_bytes(KvFormat::F16, 1));
    }

    #[test]
    fn query_rows_are_the_last_tokens() {
        let segment = CASE.segment(&[7], 2, 3, 4);
        assert_eq!((segment.start, segment.rows, segment.first_row), (297, 3, 4));
        assert_eq!(segment.keys(), 300);
    }
}
