//! Mamba-2, whose states lie in pages of their own.

use std::ops::Range;

use redline_kernels::op::kv::{KvPages, LayerState};
use redline_kernels::op::mamba2::{Mamba2Shape, steps_and_decays};
use redline_kernels::{Exec, Rows, RowsMut};
use redline_reference::mamba2::{Mamba2Heads, outputs, step_and_decay};

use crate::states::{check_company, check_pieces, in_one_pass, rows_of, with_states};
use crate::values::{Random, everywhere, same};

/// A layer with its inputs.
struct Case {
    shape: Mamba2Shape,
    /// `[tokens, channels]`
    xbc: Vec<f32>,
    /// `[tokens, 2 * heads]`
    steps: Vec<f32>,
    /// `[heads]`
    skip: Vec<f32>,
}

impl Case {
    fn new([heads, head_dim, groups, state_dim]: [usize; 4], tokens: usize) -> Self {
        let shape = Mamba2Shape { heads, head_dim, groups, state_dim };
        let mut random = Random((shape.channels() + tokens) as u64);
        let xbc = random.values(tokens * shape.channels());
        // Between 0 and 1, as decays are.
        let steps = random.values(tokens * 2 * heads).iter().map(|x| (x + 1.0) / 2.0).collect();
        Self { shape, xbc, steps, skip: random.values(heads) }
    }

    /// The canonical order, one value at a time.
    fn expected(&self) -> Vec<f32> {
        let Mamba2Shape { heads, head_dim, groups, state_dim } = self.shape;
        let rows: Vec<&[f32]> = self.xbc.chunks(self.shape.channels()).collect();
        let steps: Vec<&[f32]> = self.steps.chunks(2 * heads).collect();
        outputs(Mamba2Heads { heads, head_dim, groups, state_dim }, &rows, &steps, &self.skip).concat()
    }

    fn state(&self) -> LayerState {
        let Mamba2Shape { heads, head_dim, state_dim, .. } = self.shape;
        let channels = self.shape.channels();
        LayerState { heads, rows: state_dim, columns: head_dim, channels, inputs: 3 }
    }

    /// Runs these tokens of sequences in one pass.
    fn run(&self, exec: Exec<'_>, pages: &mut KvPages, sequences: &[(&[u32], Range<usize>)]) -> Vec<f32> {
        let (width, of_steps, values) = (self.shape.channels(), 2 * self.shape.heads, self.shape.values());
        let rows = rows_of(&self.xbc, width, sequences);
        let steps = rows_of(&self.steps, of_steps, sequences);
        let count = rows.len() / width;
        let mut out = vec![f32::NAN; count * values];
        in_one_pass(pages, sequences, |mut pages| {
            pages.mamba2(
                exec,
                (1, self.shape),
                Rows::new(&rows, count, width, width),
                Rows::new(&steps, count, of_steps, of_steps),
                &self.skip,
                &mut RowsMut::new(&mut out, count, values, values),
            );
        });
        out
    }
}

/// In pieces of any size up to a page, on every tier and number of threads.
#[test]
fn pieces_have_the_bits_of_the_whole() {
    for (sizes, tokens) in [
        ([1, 16, 1, 4], 60),
        ([4, 64, 2, 16], 64),
        ([3, 10, 1, 7], 40),
        ([6, 40, 3, 5], 30),
        ([2, 80, 2, 33], 25),
        ([4, 128, 1, 128], 20),
    ] {
        let case = Case::new(sizes, tokens);
        check_pieces(case.state(), tokens, &case.expected(), &|exec, pages, of| case.run(exec, pages, of));
    }
}

#[test]
fn sequences_of_a_pass_keep_apart() {
    let case = Case::new([4, 24, 2, 16], 50);
    check_company(case.state(), &case.expected(), &|exec, pages, of| case.run(exec, pages, of));
}

#[test]
#[should_panic(expected = "3 heads in 2 groups")]
fn groups_divide_heads() {
    let mut case = Case::new([3, 16, 1, 4], 1);
    case.shape.groups = 2;
    case.xbc.resize(case.shape.channels(), 0.0);
    let (mut pages, states) = with_states(case.state(), 1);
    everywhere(|exec, _| drop(case.run(exec, &mut pages, &[(&states[0], 0..1)])));
}

#[test]
fn steps_lie_between_their_limits() {
    let mut random = Random(11);
    for (heads, limits) in [(1, (0.0, f32::INFINITY)), (5, (0.001, 0.5)), (33, (0.0, 1.0))] {
        let (rows, width) = (3, heads + 2);
        let x = random.awkward(rows * width);
        let (decay, bias): (Vec<f32>, Vec<f32>) =
            (0..heads).map(|_| (-8.0 * (random.value() + 1.0), random.value() * 3.0)).unzip();
        let mut expected = Vec::new();
        for row in x.chunks(width) {
            let both = (0..heads).map(|head| step_and_decay(row[1 + head], decay[head], bias[head], limits));
            let (steps, decays): (Vec<f32>, Vec<f32>) = both.unzip();
            expected.extend([steps, decays].concat());
        }
        everywhere(|exec, name| {
            let mut found = vec![f32::NAN; rows * 2 * heads];
            let mut to = RowsMut::new(&mut found, rows, 2 * heads, 2 * heads);
            steps_and_decays(exec, Rows::new(&x[1..], rows, heads, width), (&decay, &bias), limits, &mut to);
            assert!(same(&found, &expected), "{heads} heads on {name}");
        });
    }
}
