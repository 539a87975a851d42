//! Short convolutions, whose last inputs stay in the pages of a sequence.

use redline_kernels::op::conv::Taps;
use redline_kernels::op::kv::{AttentionMask, ConvInputs, KvPages, PAGE_TOKENS, PageShape, Segment};
use redline_kernels::{Exec, Rows, RowsMut};
use redline_reference::conv::convolved;

use crate::values::{Random, everywhere, same};

/// A convolution with its inputs.
struct Case {
    channels: usize,
    taps: usize,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// `[tokens, 3 * channels]`
    bcx: Vec<f32>,
}

impl Case {
    fn new(channels: usize, taps: usize, has_bias: bool, tokens: usize) -> Self {
        let mut random = Random((channels * taps + tokens) as u64);
        let weights = random.values(taps * channels);
        let bias = has_bias.then(|| random.values(channels));
        let bcx = random.values(tokens * 3 * channels);
        Self { channels, taps, weights, bias, bcx }
    }

    /// The canonical order, one value at a time.
    fn expected(&self) -> Vec<f32> {
        self.expected_of(&self.bcx, 0)
    }

    /// The same of some rows, with taps for later rows.
    fn expected_of(&self, bcx: &[f32], after: usize) -> Vec<f32> {
        let rows: Vec<&[f32]> = bcx.chunks(3 * self.channels).collect();
        convolved(&rows, self.channels, &self.weights, self.bias.as_deref(), after).concat()
    }

    fn pages(&self, slots: usize) -> KvPages {
        let inputs = vec![ConvInputs { channels: self.channels, rows: self.taps - 1, slots }; 2];
        let mut pages = KvPages::new(&PageShape { inputs, ..PageShape::default() }, 100);
        for page in 0..12 {
            pages.grow().unwrap();
            pages.poison(page, 0);
        }
        pages
    }

    /// Runs tokens `range` of sequences in one pass, each from the position after those that its pages hold.
    fn run(
        &self,
        exec: Exec<'_>,
        pages: &mut KvPages,
        sequences: &[(&[u32], std::ops::Range<usize>)],
    ) -> Vec<f32> {
        let width = 3 * self.channels;
        let (mut rows, mut segments) = (Vec::new(), Vec::new());
        for (table, range) in sequences {
            let (first_row, start) = (rows.len() / width, range.start);
            let segment = Segment {
                pages: table,
                start,
                first_row,
                rows: range.len(),
                attention: AttentionMask::Causal,
            };
            segments.push(segment);
            rows.extend_from_slice(&self.bcx[range.start * width..range.end * width]);
        }
        let count = rows.len() / width;
        let mut out = vec![f32::NAN; count * self.channels];
        let taps = Taps { weights: &self.weights, bias: self.bias.as_deref(), channels: self.channels };
        let mut to = RowsMut::new(&mut out, count, self.channels, self.channels);
        pages.of_batch(&segments).convolve(exec, 1, taps, Rows::new(&rows, count, width, width), &mut to);
        out
    }
}

/// In pieces of any size, on every tier and number of threads.
#[test]
fn pieces_have_the_bits_of_the_whole() {
    for (channels, taps, has_bias, tokens, slots) in [
        (16, 3, false, 200, 2),
        (70, 4, true, 150, 3),
        (5, 1, true, 70, 1),
        (300, 8, false, 80, 9),
        (33, 2, false, 130, 64),
    ] {
        let case = Case::new(channels, taps, has_bias, tokens);
        let expected = case.expected();
        everywhere(|exec, name| {
            for piece in [1, 2, 3, 16, 63, 64, 65, tokens] {
                let mut pages = case.pages(slots);
                let mut found = Vec::new();
                for start in (0..tokens).step_by(piece) {
                    let range = start..(start + piece).min(tokens);
                    found.extend(case.run(exec, &mut pages, &[(&[3, 7, 1, 5], range)]));
                }
                assert!(same(&found, &expected), "{channels} x {taps} in pieces of {piece} on {name}");
            }
        });
    }
}

/// Whole sequences, some shorter than the taps, with taps for later rows.
#[test]
fn whole_sequences_see_later_rows() {
    for (channels, taps, has_bias) in [(16, 3, false), (70, 5, true), (300, 2, false), (5, 8, true)] {
        // Rows of each, and keys: those that fill up the last text are inputs like others.
        let (lengths, seen) = ([40, 1, 2, 33], [40, 1, 2, 20]);
        let (tokens, width) = (lengths.iter().sum(), 3 * channels);
        let case = Case::new(channels, taps, has_bias, tokens);
        let weights = Taps { weights: &case.weights, bias: case.bias.as_deref(), channels };
        let mut segments = Vec::new();
        let mut first_row = 0;
        for ((rows, seen), pages) in lengths.into_iter().zip(seen).zip(&[[0], [1], [2], [3]]) {
            let attention = AttentionMask::Bidirectional(seen);
            segments.push(Segment { pages, start: 0, first_row, rows, attention });
            first_row += rows;
        }
        for after in 0..taps {
            let of = |it: &Segment<'_>| {
                case.expected_of(&case.bcx[it.first_row * width..][..it.rows * width], after)
            };
            let expected: Vec<f32> = segments.iter().flat_map(of).collect();
            everywhere(|exec, name| {
                let mut pages = case.pages(taps);
                let mut out = vec![f32::NAN; tokens * channels];
                let mut to = RowsMut::new(&mut out, tokens, channels, channels);
                let from = Rows::new(&case.bcx, tokens, width, width);
                pages.of_batch(&segments).convolve_whole(exec, after, weights, from, &mut to);
                assert!(same(&out, &expected), "{channels} x {taps}, {after} for later rows, on {name}");
            });
        }
    }
}

/// Several sequences in one pass: one begins, one continues alone, one continues a page that another one also continues.
#[test]
fn sequences_of_a_pass_keep_apart() {
    let case = Case::new(48, 3, false, 140);
    let expected = case.expected();
    everywhere(|exec, name| {
        let mut pages = case.pages(2);
        case.run(exec, &mut pages, &[(&[0, 1], 0..100), (&[6], 0..10)]);
        // Page 0 is full, and page 2 takes the place of page 1.
        let sequences: [(&[u32], _); 4] =
            [(&[4], 0..33), (&[0, 2, 8], PAGE_TOKENS..140), (&[6, 9], 10..80), (&[0, 1], 100..101)];
        let found = case.run(exec, &mut pages, &sequences);
        let rows = |range: &std::ops::Range<usize>| expected[range.start * 48..range.end * 48].to_vec();
        let wanted: Vec<f32> = sequences.iter().flat_map(|(_, range)| rows(range)).collect();
        assert!(same(&found, &wanted), "{name}");
    });
}

/// A copied page, and tokens that were taken back.
#[test]
fn a_page_can_be_continued_where_its_shape_says() {
    let (taps, slots, tokens) = (4, 7, 130);
    let case = Case::new(20, taps, false, tokens);
    let expected = case.expected();
    let shape = ConvInputs { channels: 20, rows: taps - 1, slots };
    everywhere(|exec, name| {
        for written in [1, 2, 50, 63, 64, 66, 67, 70, 128] {
            for tokens in 0..=written {
                let possible = shape.can_continue(tokens, written);
                let is_end = tokens % PAGE_TOKENS == 0 || written - tokens <= slots - shape.rows;
                assert!(possible || !is_end, "{tokens} of {written}");
                if !possible || tokens == 130 {
                    continue;
                }
                let mut pages = case.pages(slots);
                case.run(exec, &mut pages, &[(&[0, 1, 2], 0..written)]);
                let (page, used) = (tokens / PAGE_TOKENS, tokens % PAGE_TOKENS);
                let mut table = [0, 1, 2];
                if used > 0 {
                    pages.copy(page as u32, 5, used);
                    pages.poison(5, used);
                }
                table[page] = 5;
                let found = case.run(exec, &mut pages, &[(&table, tokens..130)]);
                assert!(same(&found, &expected[tokens * 20..]), "{tokens} of {written} on {name}");
            }
        }
    });
}

/// Exported bytes hold the inputs.
#[test]
fn a_page_that_was_exported_is_continued() {
    let case = Case::new(17, 3, true, 100);
    let expected = case.expected();
    everywhere(|exec, name| {
        let (mut from, mut to, mut bytes) = (case.pages(2), case.pages(2), Vec::new());
        case.run(exec, &mut from, &[(&[4], 0..PAGE_TOKENS)]);
        from.export(4, &mut bytes);
        to.import(2, &bytes);
        let found = case.run(exec, &mut to, &[(&[2, 3], PAGE_TOKENS..100)]);
        assert!(same(&found, &expected[PAGE_TOKENS * 17..]), "{name}");
    });
}

#[test]
#[should_panic(expected = "2 slots for 3 inputs")]
fn fewer_slots_than_inputs_are_refused() {
    let inputs = vec![ConvInputs { channels: 4, rows: 3, slots: 2 }];
    KvPages::new(&PageShape { inputs, ..PageShape::default() }, 1);
}
