//! Pages with the states of sequences, and passes over them.

use std::ops::Range;

use redline_kernels::Exec;
use redline_kernels::op::kv::{
    AttentionMask, KvFormat, KvPages, KvShape, LayerState, PageShape, PassPages, Segment,
};

use crate::values::{everywhere, same};

/// Pages of two layers with such states and of keys and values of another one, so that blocks of states lie in several pages; and the
/// pages of the states `0..count`, empty.
pub(crate) fn with_states(state: LayerState, count: usize) -> (KvPages, Vec<Vec<u32>>) {
    let keys = vec![KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 10 }];
    let shape = PageShape { keys, states: vec![state; 2], ..PageShape::default() };
    let mut pages = KvPages::new(&shape, 1000);
    for page in 0..910 {
        pages.grow().unwrap();
        if page < 900 {
            pages.poison(page, 0);
        }
    }
    // Not in order.
    let of_state = shape.state_pages();
    let states: Vec<Vec<u32>> = (0..count)
        .map(|i| (0..of_state).map(|p| (i * of_state + of_state - 1 - p) as u32).collect())
        .collect();
    states.iter().flatten().for_each(|page| pages.clear(*page));
    (pages, states)
}

/// A pass over these tokens of sequences, each from the position after those of its state.
pub(crate) fn in_one_pass(
    pages: &mut KvPages,
    sequences: &[(&[u32], Range<usize>)],
    run: impl FnOnce(PassPages<'_>),
) {
    let tables: Vec<[u32; 1]> = (0..sequences.len()).map(|i| [900 + i as u32]).collect();
    let mut first_row = 0;
    let segments: Vec<Segment<'_>> = sequences
        .iter()
        .zip(&tables)
        .map(|((_, range), table)| {
            let rows = range.len();
            first_row += rows;
            let attention = AttentionMask::Causal;
            Segment { pages: table, start: 0, first_row: first_row - rows, rows, attention }
        })
        .collect();
    let states: Vec<&[u32]> = sequences.iter().map(|(state, _)| *state).collect();
    run(pages.of_batch_with_states(&segments, &states));
}

/// Runs these tokens of sequences in one pass and returns their outputs.
pub(crate) type RunPass<'a> = dyn Fn(Exec<'_>, &mut KvPages, &[(&[u32], Range<usize>)]) -> Vec<f32> + 'a;

/// Checks that a sequence has these outputs in pieces of any size up to a page, on every tier and number of threads.
pub(crate) fn check_pieces(state: LayerState, tokens: usize, expected: &[f32], run: &RunPass<'_>) {
    everywhere(|exec, name| {
        for piece in [1, 2, 3, 7, tokens] {
            let (mut pages, states) = with_states(state, 1);
            let mut found = Vec::new();
            for start in (0..tokens).step_by(piece) {
                let range = start..(start + piece).min(tokens);
                found.extend(run(exec, &mut pages, &[(&states[0], range)]));
            }
            assert!(same(&found, expected), "{state:?} in pieces of {piece} on {name}");
        }
    });
}

/// Checks that several sequences of 50 tokens in one pass, of which two continue a copied state, have these outputs.
pub(crate) fn check_company(state: LayerState, expected: &[f32], run: &RunPass<'_>) {
    let width = expected.len() / 50;
    everywhere(|exec, name| {
        let (mut pages, states) = with_states(state, 4);
        run(exec, &mut pages, &[(&states[0], 0..20), (&states[1], 0..7)]);
        for (from, to) in states[0].iter().zip(&states[2]) {
            pages.copy_words(*from, *to);
        }
        let sequences: [(&[u32], _); 4] =
            [(&states[2], 20..50), (&states[3], 0..5), (&states[1], 7..8), (&states[0], 20..33)];
        let found = run(exec, &mut pages, &sequences);
        assert!(same(&found, &rows_of(expected, width, &sequences)), "{name}");
    });
}

/// The rows of these tokens of sequences, one after the other.
pub(crate) fn rows_of(x: &[f32], width: usize, sequences: &[(&[u32], Range<usize>)]) -> Vec<f32> {
    sequences.iter().flat_map(|(_, range)| &x[range.start * width..range.end * width]).copied().collect()
}
