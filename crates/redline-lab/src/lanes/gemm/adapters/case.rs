//! A case: rows of inputs to a linear layer, each with one of some adapters.

use std::ops::Range;

use redline_kernels::Format;
use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::linear::Lora;

use crate::lanes::gemm::linear::STRIP;
use crate::roofline::Work;

/// The shape of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) format: Format,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// Rows of inputs, which are tokens.
    pub(super) rows: usize,
    pub(super) rank: usize,
    /// Different adapters in the batch, at most one for each row.
    pub(super) adapters: usize,
}

impl Case {
    /// The rank in whole strips.
    pub(super) fn padded_rank(&self) -> usize {
        self.rank.next_multiple_of(STRIP)
    }

    /// The outputs of a row in whole strips.
    pub(super) fn stride(&self) -> usize {
        self.outputs.next_multiple_of(STRIP)
    }

    /// The rows of each adapter: consecutive, and as many as those of every other, or one less.
    pub(super) fn segments(&self) -> impl Iterator<Item = Range<usize>> {
        let Self { rows, adapters, .. } = *self;
        (0..adapters).map(move |i| i * rows / adapters..(i + 1) * rows / adapters)
    }

    /// The adapter of a row.
    pub(super) fn adapter_of(&self, row: usize) -> usize {
        ((row + 1) * self.adapters - 1) / self.rows
    }

    /// Bytes of the layer's weights.
    pub(super) fn base_bytes(&self) -> f64 {
        bytes(self.format, self.outputs, self.inputs)
    }

    /// Bytes of all adapters of the batch.
    pub(super) fn adapter_bytes(&self) -> f64 {
        let (down, up) = Lora::formats(self.format);
        self.adapters as f64 * (bytes(down, self.rank, self.inputs) + bytes(up, self.outputs, self.rank))
    }

    /// The bytes of the adapters in percent of those of the layer: the tax, if both are read once and nothing else takes time.
    pub(super) fn floor_pct(&self) -> f64 {
        100.0 * self.adapter_bytes() / self.base_bytes()
    }

    /// The minimum work of a call with adapters. Inputs and outputs are not counted, because they may stay in caches.
    pub(super) fn work(&self) -> Work {
        let [n, k, rank] = [self.outputs, self.inputs, self.rank].map(|count| count as f64);
        Work {
            bytes: self.base_bytes() + self.adapter_bytes(),
            operations: 2.0 * self.rows as f64 * (n * k + rank * (n + k)),
            attention: 0.0,
        }
    }

    /// The case as a place in a message.
    pub(super) fn place(&self) -> String {
        let Self { format, outputs, inputs, rows, rank, adapters } = self;
        format!("{format} {outputs} x {inputs}, {rows} rows, rank {rank}, {adapters} adapters")
    }
}

fn bytes(format: Format, rows: usize, cols: usize) -> f64 {
    MatrixShape { format, rows, cols, outliers: 0 }.bytes() as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two adapters: two rows of the first, three of the second.
    pub(crate) const CASE: Case =
        Case { format: Format::F32, outputs: 40, inputs: 96, rows: 5, rank: 6, adapters: 2 };

    #[test]
    fn rows_are_shared_out_among_the_adapters() {
        assert_eq!(CASE.segments().collect::<Vec<_>>(), [0..2, 2..5]);
        for (rows, adapters) in [(5, 1), (8, 8), (13, 4), (7, 5), (512, 8)] {
            let case = Case { rows, adapters, ..CASE };
            let segments: Vec<_> = case.segments().collect();
            assert_eq!((segments.len(), segments[0].start, segments[adapters - 1].end), (adapters, 0, rows));
            for (i, segment) in segments.into_iter().enumerate() {
                assert!(!segment.is_empty());
                segment.for_each(|row| assert_eq!(case.adapter_of(row), i, "{case:?} {row}"));
            }
        }
    }

    #[test]
    fn the_floor_is_adapters_over_the_layer() {
        // Strips of sixteen: 48 rows of 96 f32; down has 16 rows of 96, up 48 rows of 6.
        let (base, adapter) = (48.0 * 96.0 * 4.0, (16.0 * 96.0 + 48.0 * 6.0) * 4.0);
        assert_eq!((CASE.base_bytes(), CASE.adapter_bytes()), (base, 2.0 * adapter));
        assert_eq!(CASE.floor_pct(), 200.0 * adapter / base);
        let expected = Work {
            bytes: base + 2.0 * adapter,
            operations: 2.0 * 5.0 * (40.0 * 96.0 + 6.0 * (40.0 + 96.0)),
            attention: 0.0,
        };
        assert_eq!(CASE.work(), expected);
        // Adapters of int4 weights are int8: twice the share of those of int8 weights. In memory, the second matrix has 32 columns.
        let floor = |name| {
            let format = Format::parse(name).unwrap();
            Case { format, outputs: 4096, inputs: 4096, rank: 16, adapters: 1, rows: 1 }.floor_pct()
        };
        let ratio = floor("w4") / floor("w8");
        assert!((1.85..2.0).contains(&ratio) && (1.2..1.3).contains(&floor("w8")), "{ratio} {}", floor("w8"));
    }
}
