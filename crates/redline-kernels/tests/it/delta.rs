//! Recurrences, whose states lie in pages of their own.

use redline_kernels::op::activation::{OutputGate, gate_output};
use redline_kernels::op::conv::Taps;
use redline_kernels::op::delta::{DeltaShape, delta_gates};
use redline_kernels::op::heads::split_heads;
use redline_kernels::op::kv::{AttentionMask, KvPages, LayerState, Segment};
use redline_kernels::op::norm::l2_norm_heads;
use redline_kernels::{Exec, Rows, RowsMut};
use redline_reference::conv::convolved_silu;
use redline_reference::delta::{DeltaHeads, l2_norm, outputs, strength_and_decay};
use redline_reference::elementwise::{gelu_new, sigmoid, silu};

use crate::states::{check_company, check_pieces, in_one_pass, rows_of, with_states};
use crate::values::{Random, everywhere, same};

/// A layer with its inputs.
struct Case {
    shape: DeltaShape,
    taps: usize,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// `[tokens, channels]`
    qkv: Vec<f32>,
    /// `[tokens, 2 * value_heads]`
    gates: Vec<f32>,
}

impl Case {
    fn new(sizes: [usize; 5], has_bias: bool, tokens: usize) -> Self {
        let [key_heads, value_heads, key_dim, value_dim, taps] = sizes;
        let shape = DeltaShape { key_heads, value_heads, key_dim, value_dim, is_interleaved: false };
        let channels = 2 * shape.keys() + shape.values();
        let mut random = Random((channels * taps + tokens) as u64);
        let weights = random.values(taps * channels);
        let bias = has_bias.then(|| random.values(channels));
        let qkv = random.values(tokens * channels);
        // Between 0 and 1, as strengths and decays are.
        let gates = random.values(tokens * 2 * value_heads).iter().map(|x| (x + 1.0) / 2.0).collect();
        Self { shape, taps, weights, bias, qkv, gates }
    }

    fn channels(&self) -> usize {
        2 * self.shape.keys() + self.shape.values()
    }

    /// The canonical order, one value at a time.
    fn expected(&self) -> Vec<f32> {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, is_interleaved } = self.shape;
        let heads = DeltaHeads { key_heads, value_heads, key_dim, value_dim, is_interleaved };
        let rows: Vec<&[f32]> = self.qkv.chunks(self.channels()).collect();
        let gates: Vec<&[f32]> = self.gates.chunks(2 * value_heads).collect();
        let rows = convolved_silu(&rows, &self.weights, self.bias.as_deref());
        outputs(heads, &rows, &gates).concat()
    }

    fn state(&self) -> LayerState {
        let DeltaShape { value_heads, key_dim, value_dim, .. } = self.shape;
        let (channels, inputs) = (self.channels(), self.taps - 1);
        LayerState { heads: value_heads, rows: key_dim, columns: value_dim, channels, inputs }
    }

    /// Runs tokens `range` of sequences in one pass, each from the position after those of its state.
    fn run(
        &self,
        exec: Exec<'_>,
        pages: &mut KvPages,
        sequences: &[(&[u32], std::ops::Range<usize>)],
    ) -> Vec<f32> {
        let (width, of_gates) = (self.channels(), 2 * self.shape.value_heads);
        let (mut rows, gates) =
            (rows_of(&self.qkv, width, sequences), rows_of(&self.gates, of_gates, sequences));
        let count = rows.len() / width;
        let mut out = vec![f32::NAN; count * self.shape.values()];
        let taps = Taps { weights: &self.weights, bias: self.bias.as_deref(), channels: width };
        let values = self.shape.values();
        in_one_pass(pages, sequences, |mut pages| {
            pages.convolve_silu(exec, 1, taps, &mut RowsMut::new(&mut rows, count, width, width));
            pages.delta_rule(
                exec,
                (1, self.shape),
                Rows::new(&rows, count, width, width),
                Rows::new(&gates, count, of_gates, of_gates),
                &mut RowsMut::new(&mut out, count, values, values),
            );
        });
        out
    }
}

/// In pieces of any size up to a page, on every tier and number of threads.
#[test]
fn pieces_have_the_bits_of_the_whole() {
    for (sizes, has_bias, tokens) in [
        ([1, 1, 4, 16, 4], false, 60),
        ([2, 4, 16, 16, 4], true, 64),
        ([2, 2, 12, 10, 2], false, 40),
        ([1, 3, 8, 40, 1], true, 30),
        ([2, 4, 64, 128, 4], false, 20),
        // Neighbouring value heads have different heads of keys.
        ([2, 6, 16, 16, 4], false, 33),
    ] {
        let mut case = Case::new(sizes, has_bias, tokens);
        case.shape.is_interleaved = tokens == 33;
        check_pieces(case.state(), tokens, &case.expected(), &|exec, pages, of| case.run(exec, pages, of));
    }
}

#[test]
fn sequences_of_a_pass_keep_apart() {
    let case = Case::new([2, 4, 16, 24, 4], false, 50);
    check_company(case.state(), &case.expected(), &|exec, pages, of| case.run(exec, pages, of));
}

#[test]
#[should_panic(expected = "of a state is written twice")]
fn a_state_has_one_writer() {
    let case = Case::new([1, 1, 4, 16, 4], false, 4);
    let (mut pages, states) = with_states(case.state(), 1);
    everywhere(|exec, _| drop(case.run(exec, &mut pages, &[(&states[0], 0..2), (&states[0], 0..2)])));
}

#[test]
#[should_panic(expected = "0 states of 1 segments")]
fn a_state_is_not_left_out() {
    let case = Case::new([1, 1, 4, 16, 4], false, 4);
    let (mut pages, _) = with_states(case.state(), 1);
    let segment =
        Segment { pages: &[900], start: 0, first_row: 0, rows: 1, attention: AttentionMask::Causal };
    pages.of_batch(&[segment]);
}

#[test]
fn strengths_decays_and_lengths_have_their_order() {
    let mut random = Random(7);
    for heads in [1, 5, 16, 33] {
        let mut rows = random.awkward(3 * 2 * heads);
        rows[0] = 90.0;
        rows[1] = -90.0;
        rows[heads] = 30.0;
        let (decay, bias): (Vec<f32>, Vec<f32>) =
            (0..heads).map(|_| (-8.0 * (random.value() + 1.0), random.value() * 3.0)).unzip();
        let mut expected = rows.clone();
        for row in expected.chunks_mut(2 * heads) {
            for head in 0..heads {
                let (beta, e) = strength_and_decay(row[head], row[heads + head], decay[head], bias[head]);
                (row[head], row[heads + head]) = (beta, e);
            }
        }
        let x = random.awkward(2 * (3 + 2 * heads));
        let gate = random.awkward(x.len());
        let width = 3 + 2 * heads;
        everywhere(|exec, name| {
            let mut found = rows.clone();
            delta_gates(exec, &mut RowsMut::new(&mut found, 3, 2 * heads, 2 * heads), &decay, &bias);
            assert!(same(&found, &expected), "{heads} heads on {name}");

            let mut found = x.clone();
            let mut to = RowsMut::new(&mut found, 2, width, width);
            l2_norm_heads(exec, &mut to, (1, 2, heads), 1e-6, 0.25);
            for (found, x) in found.chunks(width).zip(x.chunks(width)) {
                let head = |x: &[f32], index: usize| x[1 + index * heads..][..heads].to_vec();
                for index in 0..2 {
                    assert!(same(&head(found, index), &l2_norm(&head(x, index), 1e-6, 0.25)), "{name}");
                }
                assert!(same(&found[..1], &x[..1]) && same(&found[width - 2..], &x[width - 2..]), "{name}");
            }

            for (function, of) in [
                (OutputGate::Silu, silu as fn(f32) -> f32),
                (OutputGate::Sigmoid, sigmoid),
                (OutputGate::GeluNew, gelu_new),
            ] {
                let mut found = x.clone();
                let gates = Rows::new(&gate, 2, width, width);
                gate_output(exec, function, gates, &mut RowsMut::new(&mut found, 2, width, width));
                let wanted: Vec<f32> = x.iter().zip(&gate).map(|(x, gate)| x * of(*gate)).collect();
                assert!(same(&found, &wanted), "{function:?} on {name}");
            }
        });
    }
}

#[test]
fn halves_of_heads_are_parted() {
    let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
    everywhere(|exec, name| {
        let mut found = vec![f32::NAN; 24];
        split_heads(exec, Rows::new(&x, 2, 12, 12), 3, &mut RowsMut::new(&mut found, 2, 12, 12));
        let first = [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11];
        let wanted: Vec<f32> =
            first.iter().map(|i| *i as f32).chain(first.iter().map(|i| (i + 12) as f32)).collect();
        assert_eq!(found, wanted, "{name}");
    });
}
