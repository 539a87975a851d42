//! Attention compared with a literal implementation of its canonical order: spans of 256 keys, merged ascending.

use std::ops::Range;

use redline_kernels::op::attention::{
    AttentionBias, AttentionShape, DistanceBias, DistanceTable, SPAN, attention, relative_bias,
    scratch_words, thread_bytes,
};
use redline_kernels::op::kv::{
    AttentionMask, KvFormat, KvPages, KvShape, MAX_HEAD_DIM, PAGE_TOKENS, PageShape, Segment,
};
use redline_kernels::{Exec, Rows, RowsMut, Simd, Team};
use redline_reference::attention::{self as reference, AttentionHead, Stored};

use crate::values::{Random, everywhere, same};

#[derive(Clone, Copy)]
struct Case {
    format: KvFormat,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    tokens: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    bias: Option<&'static DistanceBias>,
    sinks: Option<&'static [f32]>,
}

/// A head that sees all keys, and no numbers but the products.
const PLAIN: Case = Case {
    format: KvFormat::F32,
    heads: 1,
    kv_heads: 1,
    head_dim: 16,
    tokens: 1,
    window: None,
    softcap: None,
    bias: None,
    sinks: None,
};

/// What a head adds to the logit of a key that comes so many tokens after the query; far ones outweigh the products.
fn added(head: usize, distance: isize) -> f32 {
    let far = (distance as f32 / 40.0).powi(2);
    (distance as f32 * 0.37 + head as f32).sin() * 1.5 - far * (1.0 + head as f32 / 3.0)
}

/// The numbers of heads for texts of up to `context` tokens.
fn biases(heads: usize, context: usize) -> &'static DistanceBias {
    Box::leak(Box::new(DistanceBias::new(heads, context, added).unwrap()))
}

struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// Keys and values of each head and token, as they are stored.
    stored: [Vec<Vec<Stored>>; 2],
}

impl Case {
    fn data(&self, seed: u64) -> Data {
        let mut random = Random(seed);
        let mut values = |heads: usize| random.values(self.tokens * heads * self.head_dim);
        let (q, k, v) = (values(self.heads), values(self.kv_heads), values(self.kv_heads));
        self.stored(q, k, v)
    }

    fn stored(&self, q: Vec<f32>, k: Vec<f32>, v: Vec<f32>) -> Data {
        let of_head = |x: &[f32], head: usize| -> Vec<Stored> {
            let heads = x.chunks(self.head_dim).skip(head).step_by(self.kv_heads);
            heads.map(|x| self.format().store(x)).collect()
        };
        let stored = [&k, &v].map(|x| (0..self.kv_heads).map(|head| of_head(x, head)).collect());
        Data { q, k, v, stored }
    }

    fn format(&self) -> reference::KvStorage {
        reference::KvStorage::named(self.format.name())
    }

    fn shape(&self) -> AttentionShape<'static> {
        let Self { heads, window, softcap, bias, sinks, .. } = *self;
        let bias = bias.map(AttentionBias::ByDistance);
        AttentionShape { heads, scale: 0.3, window, softcap, bias, sinks }
    }

    fn kv_shape(&self) -> KvShape {
        KvShape { format: self.format, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// The keys that a row sees if it sees none after its own.
    fn before(&self, position: usize) -> Range<usize> {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))..position + 1
    }

    /// The keys that a row sees of the first `keys`, on both sides.
    fn around(&self, position: usize, keys: usize) -> Range<usize> {
        let is_seen = |key: &usize| self.window.is_none_or(|w| key.abs_diff(position) < w);
        let seen: Vec<usize> = (0..keys).filter(is_seen).collect();
        seen[0]..seen[seen.len() - 1] + 1
    }

    /// Reference for one query row and head over the keys that it sees.
    fn reference(&self, data: &Data, position: usize, head: usize, seen: Range<usize>) -> Vec<f32> {
        let (d, kv_head) = (self.head_dim, head / (self.heads / self.kv_heads));
        let q = &data.q[(position * self.heads + head) * d..][..d];
        let sink = self.sinks.map(|sinks| sinks[head]);
        let bias: Vec<f32> =
            (0..self.tokens).map(|key| added(head, key as isize - position as isize)).collect();
        let bias = self.bias.map(|_| &bias[..]);
        let (format, softcap) = (self.format(), self.softcap);
        let attention = AttentionHead { format, scale: 0.3, softcap, bias, sink };
        attention.row(q, &data.stored[0][kv_head], &data.stored[1][kv_head], seen)
    }

    /// All rows, in pieces of `piece` tokens, over pages in a scrambled order.
    fn run(&self, exec: Exec<'_>, data: &Data, piece: usize) -> Vec<f32> {
        // The previous layer has another shape.
        let before = KvShape { format: KvFormat::F32, kv_heads: self.kv_heads + 1, head_dim: 24 };
        let mut kv = KvPages::new(&PageShape::from(&[before, self.kv_shape()][..]), usize::MAX);
        let count = self.tokens.div_ceil(PAGE_TOKENS);
        let mut pages: Vec<u32> = (0..count).map(|_| kv.grow().unwrap()).collect();
        pages.reverse();
        let (q_width, kv_width) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut out = vec![f32::NAN; self.tokens * q_width];
        for start in (0..self.tokens).step_by(piece) {
            let rows = piece.min(self.tokens - start);
            let segments =
                [Segment { pages: &pages, start, first_row: 0, rows, attention: AttentionMask::Causal }];
            let part = |x, width: usize| Rows::new(&(x as &Vec<f32>)[start * width..], rows, width, width);
            kv.of_batch(&segments).store(exec, 1, part(&data.k, kv_width), part(&data.v, kv_width));
            let mut to = RowsMut::new(&mut out[start * q_width..], rows, q_width, q_width);
            // Different amounts: too little to divide spans, windows of several sizes, enough for all.
            let mut scratch = vec![u32::MAX; scratch_words(self.head_dim) >> (2 * (start % 5))];
            let q = part(&data.q, q_width);
            attention(exec, self.shape(), &kv, 1, &segments, q, &mut to, &mut scratch);
        }
        out
    }
}

/// Sinks of four heads.
const SINKS: [f32; 4] = [-120.0, 0.4, 3.5, 120.0];

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for &format in KvFormat::ALL {
        for (heads, kv_heads, head_dim, tokens, window) in [
            (1, 1, 8, 1, None),
            (3, 3, 12, 70, None),
            (7, 1, 40, 130, None),
            (4, 2, 64, 300, None),
            (2, 1, 16, 530, None),
            (2, 2, 17, 90, Some(16)),
            (6, 3, 64, 560, Some(300)),
            (2, 1, 8, 520, Some(1)),
            (2, 1, 255, 70, None),
            (3, 1, 256, 300, Some(90)),
            (2, 1, 512, 70, None),
            (1, 1, 512, 258, None),
            (3, 1, 392, 70, Some(30)),
        ] {
            all.push(Case { format, heads, kv_heads, head_dim, tokens, window, ..PLAIN });
        }
    }
    // Powers of two that are not above, for the format that holds nothing else.
    for (heads, kv_heads, head_dim, tokens, window) in [
        (2, 2, 1, 90, None),
        (5, 1, 2, 300, Some(100)),
        (4, 4, 4, 33, None),
        (8, 2, 32, 270, Some(70)),
        (3, 1, 128, 270, None),
    ] {
        all.push(Case { format: KvFormat::W4, heads, kv_heads, head_dim, tokens, window, ..PLAIN });
    }
    // A cap that changes most logits.
    let (heads, kv_heads, head_dim, tokens, window) = (4, 2, 32, 290, Some(270));
    for &format in KvFormat::ALL {
        all.push(Case { format, heads, kv_heads, head_dim, tokens, window, softcap: Some(0.5), ..PLAIN });
        let wide =
            Case { format, heads, kv_heads, head_dim, tokens, window: None, softcap: Some(0.5), ..PLAIN };
        all.push(wide);
        // Sinks below, among and above the logits, where those are capped and where they are not.
        for (window, softcap) in [(None, None), (Some(100), None), (None, Some(0.5))] {
            all.push(Case { window, softcap, sinks: Some(&SINKS), ..wide });
        }
        // Tables of just the text, and of more.
        for (window, softcap, context) in [(None, None, tokens), (Some(100), Some(2.0), tokens + 33)] {
            all.push(Case { window, softcap, bias: Some(biases(heads, context)), ..wide });
        }
    }
    all.retain(|case| case.format.holds(case.head_dim));
    all
}

#[test]
fn every_row_matches_the_canonical_order() {
    for (seed, case) in cases().iter().enumerate() {
        let data = case.data(seed as u64);
        let mut want = Vec::new();
        for position in 0..case.tokens {
            for head in 0..case.heads {
                want.extend(case.reference(&data, position, head, case.before(position)));
            }
        }
        everywhere(|exec, name| {
            let got = case.run(exec, &data, case.tokens);
            assert!(same(&got, &want), "case {seed} on {name}");
        });
    }
}

/// Keys, values and queries of all magnitudes, infinite ones and NaN, as integers: their bits are those of the reference.
#[test]
fn integers_of_extreme_numbers() {
    let case = Case { format: KvFormat::W8, heads: 4, kv_heads: 2, head_dim: 32, tokens: 300, ..PLAIN };
    let Data { mut q, mut k, mut v, .. } = case.data(3);
    let (of_query, of_key) = (case.heads * case.head_dim, case.kv_heads * case.head_dim);
    let all = |values: &mut [f32], width: usize, token: usize, factor: f32| {
        values[token * width..][..width].iter_mut().for_each(|x| *x *= factor);
    };
    // Values too small to have weights, until token 20.
    (0..20).for_each(|token| all(&mut v, of_key, token, 2f32.powi(-110)));
    all(&mut k, of_key, 30, 2f32.powi(5));
    all(&mut q, of_query, 40, 2f32.powi(60));
    all(&mut v, of_key, 50, 2f32.powi(120));
    (q[60 * of_query], q[61 * of_query]) = (f32::NAN, f32::INFINITY);
    k[70 * of_key] = f32::NEG_INFINITY;
    v[280 * of_key] = f32::INFINITY;
    let data = case.stored(q, k, v);
    let mut want = Vec::new();
    for position in 0..case.tokens {
        for head in 0..case.heads {
            want.extend(case.reference(&data, position, head, case.before(position)));
        }
    }
    assert!(want[..60 * of_query].iter().all(|x| x.is_finite()) && want.iter().any(|x| x.is_nan()));
    assert!(want[..19 * of_query].iter().all(|x| *x == 0.0));
    everywhere(|exec, name| {
        for piece in [case.tokens, 7] {
            assert!(same(&case.run(exec, &data, piece), &want), "{name}, pieces of {piece}");
        }
    });
}

/// Bidirectional rows: all rows, then some rows over stored keys and values. Keys may be fewer than the rows.
#[test]
fn rows_of_a_canvas_see_every_key_of_their_window() {
    // `the_spans_of_few_rows_are_merged_in_order` has longer windows; here they would take minutes.
    let is_quick = |case: &Case| case.window.is_none() || case.tokens <= SPAN + 50;
    let cases = cases();
    let all = cases.iter().enumerate().filter(|(_, case)| is_quick(case)).map(|it| (it, it.1.tokens));
    let fewer = cases.iter().enumerate();
    let fewer = fewer.filter(|(_, case)| case.window.is_none() && case.tokens <= SPAN + 50);
    for ((seed, case), keys) in all.chain(fewer.map(|it| (it, it.1.tokens.div_ceil(3)))) {
        let data = case.data(seed as u64);
        let (q_width, kv_width) = (case.heads * case.head_dim, case.kv_heads * case.head_dim);
        let heads = (0..case.tokens).flat_map(|position| (0..case.heads).map(move |head| (position, head)));
        let reference = |(position, head)| case.reference(&data, position, head, case.around(position, keys));
        let want: Vec<f32> = heads.flat_map(reference).collect();
        everywhere(|exec, name| {
            let mut kv = KvPages::new(&PageShape::from(&[case.kv_shape()][..]), usize::MAX);
            let pages: Vec<u32> =
                (0..case.tokens.div_ceil(PAGE_TOKENS)).map(|_| kv.grow().unwrap()).collect();
            for range in [0..case.tokens, case.tokens / 3..case.tokens, case.tokens / 2..case.tokens / 2 + 1]
            {
                let (start, rows) = (range.start, range.len());
                let segments = [Segment {
                    pages: &pages,
                    start,
                    first_row: 0,
                    rows,
                    attention: AttentionMask::Bidirectional(keys),
                }];
                let part =
                    |x, width: usize| Rows::new(&(x as &Vec<f32>)[start * width..], rows, width, width);
                kv.of_batch(&segments).store(exec, 0, part(&data.k, kv_width), part(&data.v, kv_width));
                let mut out = vec![f32::NAN; rows * q_width];
                let mut to = RowsMut::new(&mut out, rows, q_width, q_width);
                let mut scratch = vec![u32::MAX; scratch_words(case.head_dim) >> (start % 3)];
                let q = part(&data.q, q_width);
                attention(exec, case.shape(), &kv, 0, &segments, q, &mut to, &mut scratch);
                let want = &want[start * q_width..(start + rows) * q_width];
                assert!(same(&out, want), "case {seed}, rows {range:?} and {keys} keys on {name}");
            }
        });
    }
}

/// Each row of two texts has numbers of its own, and some rows alone have theirs.
#[test]
fn rows_may_have_numbers_of_their_own() {
    for (seed, &format) in KvFormat::ALL.iter().enumerate() {
        let (heads, head_dim, tokens) = (3, 16, 300);
        let case = Case { format, heads, kv_heads: 3, head_dim, tokens, softcap: Some(2.0), ..PLAIN };
        let data = case.data(seed as u64);
        let (width, q_width, lengths) = (tokens.next_multiple_of(16), heads * head_dim, [1, 299]);
        let numbers = Random(9).values(tokens * heads * width);
        let numbers: Vec<f32> = numbers.iter().map(|x| x * 3.0).collect();
        let mut want = Vec::new();
        for (first, length) in [(0, lengths[0]), (1, lengths[1])] {
            for (row, head) in (first..first + length).flat_map(|row| (0..heads).map(move |head| (row, head)))
            {
                let bias = Some(&numbers[(row * heads + head) * width..][..length]);
                let attention =
                    AttentionHead { format: case.format(), scale: 0.3, softcap: Some(2.0), bias, sink: None };
                let [k, v] = &data.stored;
                let q = &data.q[row * q_width + head * head_dim..][..head_dim];
                let of_text = first..first + length;
                want.extend(attention.row(q, &k[head][of_text.clone()], &v[head][of_text], 0..length));
            }
        }
        everywhere(|exec, name| {
            let mut kv = KvPages::new(&PageShape::from(&[case.kv_shape()][..]), usize::MAX);
            let tables = lengths.map(|length| {
                (0..usize::div_ceil(length, PAGE_TOKENS)).map(|_| kv.grow().unwrap()).collect::<Vec<u32>>()
            });
            let all = |x| Rows::new(x as &Vec<f32>, tokens, q_width, q_width);
            let segment = |text: usize, start, first_row, rows| Segment {
                pages: &tables[text],
                start,
                first_row,
                rows,
                attention: AttentionMask::Bidirectional(lengths[text]),
            };
            let segments = [segment(0, 0, 0, 1), segment(1, 0, 1, 299)];
            kv.of_batch(&segments).store(exec, 0, all(&data.k), all(&data.v));
            let run = |segments: &[Segment<'_>], from: usize, rows: usize| {
                let bias = Rows::new(&numbers[from * heads * width..], rows, heads * width, heads * width);
                let shape = AttentionShape { bias: Some(AttentionBias::PerRow(bias)), ..case.shape() };
                let mut out = vec![f32::NAN; rows * q_width];
                let mut to = RowsMut::new(&mut out, rows, q_width, q_width);
                let q = Rows::new(&data.q[from * q_width..], rows, q_width, q_width);
                let mut scratch = vec![u32::MAX; scratch_words(head_dim)];
                attention(exec, shape, &kv, 0, segments, q, &mut to, &mut scratch);
                out
            };
            assert!(same(&run(&segments, 0, tokens), &want), "{format:?} on {name}");
            let some = run(&[segment(1, 270, 0, 20)], 271, 20);
            assert!(same(&some, &want[271 * q_width..291 * q_width]), "{format:?} on {name}, some rows");
        });
    }
}

/// By the definition, of texts of several lengths; other numbers of the rows stay.
#[test]
fn biases_by_buckets_of_distances() {
    let (ranges, context, scale) = (9, 40, 0.21);
    let range = |distance: isize| (distance.clamp(-4, 4) + 4) as u32;
    let buckets = DistanceTable::new(1, context, |_, distance| range(distance)).unwrap();
    // The last one has two rows more than keys.
    let (lengths, pages) = ([(17, 17), (1, 1), (40, 40), (5, 3)], [0]);
    let rows: usize = lengths.iter().map(|(rows, _)| rows).sum();
    let (stride, width) = (ranges + 7, 48);
    let (queries, keys) = (Random(1).values(rows * stride), Random(2).values(rows * stride));
    let mut want = vec![7.0; rows * width];
    let mut segments = Vec::new();
    let mut first_row = 0;
    for (rows, keys_of_text) in lengths {
        for (i, j) in (0..rows).flat_map(|i| (0..keys_of_text).map(move |j| (i, j))) {
            let at = |x: &[f32], row: usize| {
                x[(first_row + row) * stride + range(j as isize - i as isize) as usize]
            };
            want[(first_row + i) * width + j] = (at(&queries, i) + at(&keys, j)) * scale;
        }
        let attention = AttentionMask::Bidirectional(keys_of_text);
        segments.push(Segment { pages: &pages, start: 0, first_row, rows, attention });
        first_row += rows;
    }
    everywhere(|exec, name| {
        let mut out = vec![7.0; rows * width];
        let from = [&queries, &keys].map(|x| Rows::new(x, rows, ranges, stride));
        relative_bias(
            exec,
            &buckets,
            &segments,
            from,
            scale,
            &mut RowsMut::new(&mut out, rows, width, width),
        );
        assert!(same(&out, &want), "{name}");
    });
}

#[test]
fn pieces_do_not_show() {
    let team = Team::new(2).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    for (seed, case) in cases().iter().enumerate() {
        let data = case.data(seed as u64);
        let whole = case.run(exec, &data, case.tokens);
        for piece in [1, 16, 63, 64, 255, 256, 257] {
            assert!(same(&case.run(exec, &data, piece), &whole), "case {seed} in pieces of {piece}");
        }
    }
}

/// Sequences with a common beginning share pages and loads; each gets the same result as alone.
#[test]
fn sequences_that_share_pages_do_not_show() {
    for &format in KvFormat::ALL {
        for (heads, kv_heads, head_dim, window) in [
            (4, 2, 24, None),
            (3, 1, 17, Some(100)),
            (6, 1, 255, None),
            (1, 1, 256, Some(40)),
            (2, 1, 512, Some(40)),
            (4, 2, 64, Some(100)),
        ] {
            if !format.holds(head_dim) {
                continue;
            }
            let sinks = (heads == 4).then_some(&SINKS[..]);
            let tokens = 5 * 64 + 30;
            let case = Case { format, heads, kv_heads, head_dim, tokens, window, sinks, ..PLAIN };
            let data = case.data(7);
            for threads in [1, 2] {
                let team = Team::new(threads).unwrap();
                for simd in Simd::variants() {
                    shared_as_alone(Exec { simd, team: &team }, &case, &data);
                }
            }
        }
    }
}

/// By its definition in f64, to which the order must be close: one more logit in the softmax, without a value.
#[test]
fn a_sink_takes_a_share_of_the_softmax() {
    let team = Team::new(2).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    let (heads, head_dim, tokens) = (4, 16, 300);
    let sinks = Some(&SINKS[..]);
    let format = KvFormat::F32;
    let case = Case { format, heads, kv_heads: 2, head_dim, tokens, window: Some(280), sinks, ..PLAIN };
    let data = case.data(5);
    let got = case.run(exec, &data, tokens);
    let at = |x: &[f32], token: usize, heads: usize, head: usize| -> Vec<f64> {
        x[(token * heads + head) * head_dim..][..head_dim].iter().map(|x| f64::from(*x)).collect()
    };
    for (position, head) in (0..tokens).flat_map(|position| (0..heads).map(move |head| (position, head))) {
        let q = at(&data.q, position, heads, head);
        let logit = |key| at(&data.k, key, 2, head / 2).iter().zip(&q).map(|(k, q)| 0.3 * k * q).sum::<f64>();
        let logits: Vec<(usize, f64)> = case.before(position).map(|key| (key, logit(key))).collect();
        let sink = f64::from(SINKS[head]);
        let max = logits.iter().fold(sink, |max, (_, logit)| max.max(*logit));
        let sum = logits.iter().fold((sink - max).exp(), |sum, (_, logit)| sum + (logit - max).exp());
        for d in 0..head_dim {
            let value =
                |(key, logit): &(usize, f64)| (logit - max).exp() / sum * at(&data.v, *key, 2, head / 2)[d];
            let want: f64 = logits.iter().map(value).sum();
            let got = f64::from(got[(position * heads + head) * head_dim + d]);
            assert!((got - want).abs() <= 1e-5, "token {position}, head {head}: {got} instead of {want}");
        }
    }
}

fn shared_as_alone(exec: Exec<'_>, case: &Case, data: &Data) {
    let (q_width, kv_width) = (case.heads * case.head_dim, case.kv_heads * case.head_dim);
    let rows_of = |x, from: usize, n: usize, width: usize| {
        Rows::new(&(x as &Vec<f32>)[from * width..], n, width, width)
    };
    let mut kv = KvPages::new(&PageShape::from(&[case.kv_shape()][..]), usize::MAX);
    let stem: Vec<u32> = (0..5).map(|_| kv.grow().unwrap()).collect();
    let whole =
        [Segment { pages: &stem, start: 0, first_row: 0, rows: 5 * 64, attention: AttentionMask::Causal }];
    kv.of_batch(&whole).store(
        exec,
        0,
        rows_of(&data.k, 0, 5 * 64, kv_width),
        rows_of(&data.v, 0, 5 * 64, kv_width),
    );
    // Each sequence continues with tokens of its own, one of them from the middle of the stem.
    let lengths = [1usize, 9, 4, 7, 1, 2, 1, 1, 1, 1, 1, 1];
    let tables: Vec<Vec<u32>> =
        lengths.iter().map(|_| stem.iter().copied().chain([kv.grow().unwrap()]).collect()).collect();
    let mut segments = Vec::new();
    let mut first_row = 0;
    for (pages, &rows) in tables.iter().zip(&lengths) {
        segments.push(Segment { pages, start: 5 * 64, first_row, rows, attention: AttentionMask::Causal });
        first_row += rows;
    }
    let (k, v, q) = (
        rows_of(&data.k, 5 * 64, first_row, kv_width),
        rows_of(&data.v, 5 * 64, first_row, kv_width),
        rows_of(&data.q, 5 * 64, first_row, q_width),
    );
    kv.of_batch(&segments).store(exec, 0, k, v);
    let run = |segments: &[Segment<'_>]| {
        let mut out = vec![f32::NAN; first_row * q_width];
        attention(
            exec,
            case.shape(),
            &kv,
            0,
            segments,
            q,
            &mut RowsMut::new(&mut out, first_row, q_width, q_width),
            &mut vec![u32::MAX; scratch_words(case.head_dim)],
        );
        out
    };
    let together = run(&segments);
    for segment in &segments {
        let rows = segment.first_row * q_width..(segment.first_row + segment.rows) * q_width;
        let alone = run(&[*segment]);
        assert!(
            same(&together[rows.clone()], &alone[rows]),
            "row {} on {}",
            segment.first_row,
            exec.simd.name()
        );
    }
    assert!(together.iter().all(|x| x.is_finite()));
}

/// The last rows of long sequences: few blocks of many spans, which are divided among threads.
#[test]
fn the_spans_of_few_rows_are_merged_in_order() {
    let teams = [2, 3, 5].map(|size| Team::new(size).unwrap());
    for &format in KvFormat::ALL {
        for (window, bidirectional) in [(None, false), (Some(2100), false), (None, true), (Some(1700), true)]
        {
            // The rows of the first sequence end in different spans. The second one shares its pages but ends earlier.
            let head_dim = if format.holds(24) { 24 } else { 64 };
            let case = Case {
                format,
                heads: 3,
                kv_heads: 1,
                head_dim,
                tokens: 14 * SPAN + 1,
                window,
                bias: Some(biases(3, 14 * SPAN + 1)),
                sinks: Some(&SINKS[..3]),
                ..PLAIN
            };
            let data = case.data(11);
            let ends = [(case.tokens, 2), (5 * SPAN + 1, 1)];
            let keys = |end: usize| AttentionMask::Bidirectional(end);
            let mut want = Vec::new();
            for (end, rows) in ends {
                for (position, head) in (end - rows..end).flat_map(|p| (0..case.heads).map(move |h| (p, h))) {
                    let seen = if bidirectional { case.around(position, end) } else { case.before(position) };
                    want.extend(case.reference(&data, position, head, seen));
                }
            }
            let width = case.heads * case.head_dim;
            let q: Vec<f32> = ends
                .iter()
                .flat_map(|&(end, rows)| data.q[(end - rows) * width..end * width].to_vec())
                .collect();
            for simd in Simd::variants() {
                let mut kv = KvPages::new(&PageShape::from(&[case.kv_shape()][..]), usize::MAX);
                let pages: Vec<u32> =
                    (0..case.tokens.div_ceil(PAGE_TOKENS)).map(|_| kv.grow().unwrap()).collect();
                let whole = Segment {
                    pages: &pages,
                    start: 0,
                    first_row: 0,
                    rows: case.tokens,
                    attention: AttentionMask::Causal,
                };
                let whole = [whole];
                let part = |x| Rows::new(x as &Vec<f32>, case.tokens, case.head_dim, case.head_dim);
                let exec = Exec { simd, team: &teams[0] };
                kv.of_batch(&whole).store(exec, 0, part(&data.k), part(&data.v));
                let mut segments = Vec::new();
                for (end, rows) in ends {
                    let attention = if bidirectional { keys(end) } else { AttentionMask::Causal };
                    let first_row = segments.iter().map(|segment: &Segment<'_>| segment.rows).sum();
                    segments.push(Segment { pages: &pages, start: end - rows, first_row, rows, attention });
                }
                for team in &teams {
                    // All spans at once, some at a time, and too little memory to divide them.
                    for shift in [0, 4, 5, 7] {
                        let (exec, mut out) = (Exec { simd, team }, vec![f32::NAN; q.len()]);
                        let mut scratch = vec![0x7fc0_7fc0; scratch_words(case.head_dim) >> shift];
                        let (rows, mut to) =
                            (Rows::new(&q, 3, width, width), RowsMut::new(&mut out, 3, width, width));
                        attention(exec, case.shape(), &kv, 0, &segments, rows, &mut to, &mut scratch);
                        assert!(
                            same(&out, &want),
                            "{format:?}, {window:?}, {bidirectional}, {} / {}, {shift}",
                            simd.name(),
                            team.size()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_later_nan_does_not_reach_earlier_rows() {
    let case = Case { format: KvFormat::F32, heads: 4, kv_heads: 2, head_dim: 16, tokens: 40, ..PLAIN };
    let mut data = case.data(1);
    let team = Team::new(1).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    let clean = case.run(exec, &data, 40);
    data.v[33 * 32] = f32::NAN;
    data.k[35 * 32] = f32::NAN;
    let got = case.run(exec, &data, 40);
    assert!(same(&got[..33 * 64], &clean[..33 * 64]));
    assert!(got[33 * 64..].iter().any(|x| x.is_nan()));
}

#[test]
fn a_thread_holds_a_block() {
    const BLOCK_ROWS: usize = 64;
    const TILE_ROWS: usize = 8;
    for head_dim in [32, 128, MAX_HEAD_DIM] {
        let bytes = |format| thread_bytes(KvShape { format, kv_heads: 2, head_dim });
        // Values of a span and merged values of all rows.
        let values = 4 * 2 * BLOCK_ROWS * head_dim;
        // Queries, queries of pairs, logits; a page of keys and of values.
        let floats = 4 * (2 * BLOCK_ROWS * head_dim + BLOCK_ROWS * SPAN) + 4 * 2 * PAGE_TOKENS * head_dim;
        assert_eq!(bytes(KvFormat::F16), values + floats);
        // Queries of a byte with a scale and sums, logits of a tile, weights of two bytes for each group of dimensions.
        let integers =
            |groups| BLOCK_ROWS * (head_dim + 4 + 4 * groups) + TILE_ROWS * SPAN * (4 + 2 * groups);
        // With tile registers: queries of eight rows more, logits and weights of sixteen rows, four registers of sums of a kilobyte.
        let registers = (BLOCK_ROWS + TILE_ROWS) * head_dim + 8 * BLOCK_ROWS + 16 * SPAN * (4 + 2) + 4 * 1024;
        assert_eq!(bytes(KvFormat::W8), values + registers);
        assert!(registers > integers(1));
        assert_eq!(bytes(KvFormat::W4), values + integers(head_dim / 32));
    }
    let bytes = |head_dim| thread_bytes(KvShape { format: KvFormat::F32, kv_heads: 2, head_dim });
    assert_eq!([33, 40, 48].map(bytes), [bytes(48); 3]);
}
