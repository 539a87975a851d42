//! What is added to logits by distances of keys from their queries.

use redline_kernels::RowsMut;
use redline_kernels::op::attention::relative_bias;
use redline_kernels::op::kv::Segment;
use redline_kernels::op::linear::{Epilogue, Variant, linear};

use super::{Act, Step, padded};
use crate::element::distance::Distances;
use crate::profile::Operation;

impl Step<'_> {
    /// What is added to the logits of every row, if the model has relative position embeddings: `[rows, heads * width]`, where the biases
    /// of a head are those of the keys of the row's sequence. `factor` is the scale of logits.
    pub fn relative_bias(&mut self, q: Act, k: Act, heads: usize, factor: f32) -> Option<Act> {
        let (Some(Distances::Relative(relative)), Some(layer)) = (self.model.distances, self.layer) else {
            return None;
        };
        let segments = self.segments;
        let width = padded(segments.iter().map(Segment::keys).max().unwrap_or(0));
        let bias = self.alloc(q.rows, heads * width);
        let timed = self.begin(|| Operation::of("relative", bias.rows, bias.width));
        for (head, [of_queries, of_keys]) in relative.layers[layer].iter().enumerate() {
            let (mark, dim) = (self.mark(), of_queries.cols());
            let [of_queries, of_keys] = [(q, of_queries), (k, of_keys)].map(|(x, matrix)| {
                let (x, y) = (x.columns(head * dim, dim), self.alloc(x.rows, matrix.rows()));
                let (from, mut to) = Self::input_and_output(self.arena.values, x, y);
                let variant = Variant::estimate(self.exec.simd, matrix, x.rows);
                linear(self.exec, matrix, from, &mut to, Epilogue::default(), variant, self.arena.words);
                y
            });
            let to = bias.columns(head * width, width);
            let values = &mut *self.arena.values;
            let ranges = [of_queries.range(), of_keys.range(), to.range()];
            let [from, keys, out] = values.get_disjoint_mut(ranges).expect("activations do not overlap");
            let from = [of_queries.rows_of(from), of_keys.rows_of(keys)];
            let mut out = RowsMut::new(out, to.rows, to.width, to.stride);
            relative_bias(self.exec, &relative.buckets, segments, from, factor, &mut out);
            self.release(mark);
        }
        self.end(timed);
        Some(bias)
    }
}
