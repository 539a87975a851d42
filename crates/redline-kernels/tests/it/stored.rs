//! Linear layers over integers and scales as files hold them, compared with a literal implementation of their canonical order.

use std::ops::Range;

use redline_kernels::matrix::{QuantisedRow, QuantisedRows};
use redline_kernels::op::linear::{
    Epilogue, Lora, LoraPart, LoraRows, Variant, linear, lora_scratch_words, scratch_words,
};
use redline_kernels::{Exec, Format, Matrix, Rows, RowsMut};
use redline_reference::linear as reference;
use redline_reference::number::widen_f16;

use crate::linear::on_one_thread;
use crate::values::{Random, everywhere, same};

/// What is known of a format: its smallest and largest integer, number of k of a scale, of a sub-scale (0: none), and whether it
/// has minima.
struct Facts {
    format: Format,
    codes: (i32, i32),
    group: usize,
    sub: usize,
    minima: bool,
}

const NON_LINEAR: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

fn facts() -> Vec<Facts> {
    let facts = |name, codes, group, sub, minima| Facts {
        format: Format::stored(name).unwrap(),
        codes,
        group,
        sub,
        minima,
    };
    vec![
        facts("q4_0", (-8, 7), 32, 0, false),
        facts("Q8_0", (-128, 127), 32, 0, false),
        facts("q4_1", (0, 15), 32, 0, true),
        facts("q5_1", (0, 31), 32, 0, true),
        facts("Q2_K", (0, 3), 256, 16, true),
        facts("q3_k", (-4, 3), 256, 16, false),
        facts("q4_k", (0, 15), 256, 32, true),
        facts("q5_k", (0, 31), 256, 32, true),
        facts("q6_k", (-32, 31), 256, 16, false),
        facts("iq4_nl", (0, 15), 32, 0, false),
        facts("iq4_xs", (0, 15), 256, 32, false),
        facts("mxfp4", (0, 15), 32, 0, false),
    ]
}

impl Facts {
    fn is_power(&self) -> bool {
        self.format == Format::Mxfp4
    }
}

/// The numbers of one row.
#[derive(Clone, Default)]
struct Row {
    codes: Vec<i8>,
    scales: Vec<u16>,
    minima: Vec<u16>,
    sub_scales: Vec<i8>,
    sub_minima: Vec<u8>,
}

/// An f16 of any magnitude, zeros and denormals among them; of the extreme ones if so wished.
fn half(random: &mut Random, extreme: bool) -> u16 {
    let bits = random.next() as u16;
    match random.next() % 8 {
        _ if extreme => bits & 0x8000 | 0x7bff,
        0 => bits & 0x8000,
        1 => bits & 0x83ff,
        _ => bits & 0x8fff | 0x2000,
    }
}

impl Row {
    fn new(facts: &Facts, k: usize, random: &mut Random, extreme: bool) -> Self {
        let (low, high) = facts.codes;
        let groups = k / facts.group;
        let subs = k.checked_div(facts.sub).unwrap_or(0);
        let code = |random: &mut Random| {
            let any = low + (random.next() % (high - low + 1) as u64) as i32;
            (if extreme { [low, high][random.next() as usize % 2] } else { any }) as i8
        };
        let scale = |random: &mut Random| {
            if facts.is_power() {
                [0, 1, 2, 127, 130, 110, 120][random.next() as usize % 7]
            } else {
                half(random, extreme)
            }
        };
        let sub_scale = |random: &mut Random| if extreme { -128 } else { random.next() as i8 };
        let sub_minimum = |random: &mut Random| if extreme { 255 } else { random.next() as u8 };
        let minima = if facts.minima { groups } else { 0 };
        Self {
            codes: (0..k).map(|_| code(random)).collect(),
            scales: (0..groups).map(|_| scale(random)).collect(),
            minima: (0..minima).map(|_| half(random, extreme)).collect(),
            sub_scales: (0..subs).map(|_| sub_scale(random)).collect(),
            sub_minima: (0..if facts.minima { subs } else { 0 }).map(|_| sub_minimum(random)).collect(),
        }
    }

    fn fill(&self, to: QuantisedRow<'_>) {
        to.codes.copy_from_slice(&self.codes);
        to.scales.copy_from_slice(&self.scales);
        to.minima.copy_from_slice(&self.minima);
        to.sub_scales.copy_from_slice(&self.sub_scales);
        to.sub_minima.copy_from_slice(&self.sub_minima);
    }

    fn integer(&self, facts: &Facts, k: usize) -> i64 {
        let code = self.codes[k];
        i64::from(match facts.format {
            Format::Iq4Nl | Format::Iq4Xs => NON_LINEAR[code as usize],
            Format::Mxfp4 => E2M1[code as usize],
            _ => i32::from(code),
        })
    }

    fn scale(&self, facts: &Facts, group: usize) -> f32 {
        let scale = self.scales[group];
        if facts.is_power() { 2f64.powi(i32::from(scale) - 128) as f32 } else { widen_f16(scale) }
    }

    /// The values, by the definitions of GGML.
    fn values(&self, facts: &Facts) -> Vec<f32> {
        let value = |k: usize| {
            let (d, q) = (self.scale(facts, k / facts.group), self.integer(facts, k) as f32);
            let minimum = || widen_f16(self.minima[k / facts.group]);
            match (facts.sub, facts.minima) {
                (0, false) => d * q,
                (0, true) => d * q + minimum(),
                (sub, false) => d * f32::from(self.sub_scales[k / sub]) * q,
                (sub, true) => {
                    let offset = minimum() * f32::from(self.sub_minima[k / sub]);
                    d * f32::from(self.sub_scales[k / sub]) * q - offset
                }
            }
        };
        (0..self.codes.len()).map(value).collect()
    }

    /// The sum over all k in the canonical order, for inputs `q` with scales `s` per 128 k.
    fn sum(&self, facts: &Facts, q: &[i64], s: &[f32]) -> f32 {
        let products = |range: Range<usize>| range.map(|k| self.integer(facts, k) * q[k]).sum::<i64>();
        let sums = |range: Range<usize>| range.map(|k| q[k]).sum::<i64>();
        let step = if facts.sub > 0 { 128 } else { 32 };
        let mut acc = 0f32;
        for first in (0..q.len()).step_by(step) {
            let (group, s) = (first / facts.group, s[first / 128]);
            let d = self.scale(facts, group);
            let minimum = || widen_f16(self.minima[group]);
            if facts.sub == 0 {
                acc = (products(first..first + 32) as f32).mul_add(d * s, acc);
                if facts.minima {
                    acc = minimum().mul_add(sums(first..first + 32) as f32 * s, acc);
                }
                continue;
            }
            let subs = first / facts.sub..(first + 128) / facts.sub;
            let all = |j: usize| j * facts.sub..(j + 1) * facts.sub;
            let total: i64 = subs.clone().map(|j| i64::from(self.sub_scales[j]) * products(all(j))).sum();
            assert!(i32::try_from(total).is_ok());
            acc = (total as f32).mul_add(d * s, acc);
            if facts.minima {
                let total: i64 = subs.map(|j| i64::from(self.sub_minima[j]) * sums(all(j))).sum();
                acc = (total as f32).mul_add(-minimum() * s, acc);
            }
        }
        acc
    }
}

/// Inputs as int8 with a scale per 128 k.
fn quantised(x: &[f32]) -> (Vec<i64>, Vec<f32>) {
    let (q, scales): (Vec<_>, Vec<_>) = x.chunks(128).map(reference::quantised).unzip();
    (q.into_iter().flatten().map(i64::from).collect(), scales)
}

fn fill(exec: Exec<'_>, matrix: &mut Matrix, rows: &[Row], pieces: &[usize]) {
    for piece in pieces.windows(2) {
        let read = |range: Range<usize>, to: &mut QuantisedRows, calls: &mut usize| {
            *calls += 1;
            assert_eq!(to.rows(), range.len());
            for (r, row) in range.enumerate() {
                rows[piece[0] + row].fill(to.row(r));
            }
            Ok::<(), ()>(())
        };
        matrix.read_quantised_rows(exec, piece[0], piece[1] - piece[0], read).unwrap();
    }
}

struct Case {
    facts: Facts,
    k: usize,
    weights: Vec<Row>,
    inputs: Vec<f32>,
}

impl Case {
    fn new(facts: Facts, (rows, k, outputs): (usize, usize, usize), seed: u64, extreme: bool) -> Self {
        let mut random = Random(seed);
        let weights = (0..outputs).map(|_| Row::new(&facts, k, &mut random, extreme)).collect();
        let inputs = if extreme {
            (0..rows * k).map(|_| if random.next() % 8 < seed % 9 { 1.0 } else { -1.0 }).collect()
        } else {
            random.awkward(rows * k)
        };
        Self { facts, k, weights, inputs }
    }

    fn rows(&self) -> usize {
        self.inputs.len() / self.k
    }

    fn matrix(&self, exec: Exec<'_>) -> Matrix {
        let outputs = self.weights.len();
        let mut matrix = Matrix::zeroed(self.facts.format, outputs, self.k).unwrap();
        fill(exec, &mut matrix, &self.weights, &[0, outputs / 3, outputs]);
        matrix
    }

    fn reference(&self) -> Vec<f32> {
        let sums = |x: &[f32]| {
            let (q, s) = quantised(x);
            self.weights.iter().map(|row| row.sum(&self.facts, &q, &s)).collect::<Vec<f32>>()
        };
        self.inputs.chunks(self.k).flat_map(sums).collect()
    }

    fn run(&self, exec: Exec<'_>, matrix: &Matrix, first: usize, rows: usize, variant: Variant) -> Vec<f32> {
        let (outputs, stride) = (self.weights.len(), self.weights.len().next_multiple_of(16));
        let mut y = vec![f32::NAN; rows * stride];
        let mut scratch = vec![u32::MAX; scratch_words(matrix.shape(), rows)];
        let x = Rows::new(&self.inputs[first * self.k..], rows, self.k, self.k);
        let mut out = RowsMut::new(&mut y, rows, outputs, stride);
        linear(exec, matrix, x, &mut out, Epilogue::default(), variant, &mut scratch);
        y.chunks(stride).flat_map(|row| row[..outputs].to_vec()).collect()
    }
}

/// For each format, matrices of this shape.
pub(crate) fn matrices(count: u64, k: usize, outputs: usize) -> Vec<Vec<Matrix>> {
    let of = |facts: Facts| {
        let facts = |_| self::facts().remove(position(&facts));
        let cases = (0..count).map(|seed| Case::new(facts(seed), (0, k, outputs), seed, false));
        cases.map(|case| on_one_thread(|exec| case.matrix(exec))).collect()
    };
    facts().into_iter().map(of).collect()
}

#[test]
fn every_stored_format_matches_its_canonical_order_everywhere() {
    let shapes = [(1, 256, 1), (2, 512, 15), (5, 768, 16), (9, 256, 17), (33, 768, 40)];
    for (i, shape) in shapes.into_iter().enumerate() {
        for extreme in [false, true] {
            for facts in facts() {
                let case = Case::new(facts, shape, 10 * i as u64 + 3, extreme);
                let want = case.reference();
                everywhere(|exec, name| {
                    let matrix = case.matrix(exec);
                    for variant in [Variant::Dot, Variant::DotHalf, Variant::Tiles, Variant::DotAlone] {
                        let got = case.run(exec, &matrix, 0, case.rows(), variant);
                        let format = case.facts.format;
                        assert!(same(&got, &want), "{format} {shape:?} {} on {name}", variant.name());
                    }
                });
            }
        }
    }
}

/// k is cut where a tile's inputs exceed the first-level cache, and may end within 128 k in formats without super-blocks.
#[test]
fn long_rows_are_cut_and_short_groups_end_them() {
    for facts in facts() {
        let long = if facts.group == 256 { 8192 + 256 } else { 8192 + 96 };
        let short = if facts.group == 256 { 256 } else { 32 };
        for (seed, shape) in [(1, (20, long, 33)), (2, (3, short, 20))] {
            let case = Case::new(self::facts().remove(position(&facts)), shape, seed, false);
            let want = case.reference();
            everywhere(|exec, name| {
                let got = case.run(exec, &case.matrix(exec), 0, case.rows(), Variant::Dot);
                assert!(same(&got, &want), "{} {shape:?} on {name}", case.facts.format);
            });
        }
    }
}

fn position(of: &Facts) -> usize {
    facts().iter().position(|facts| facts.format == of.format).unwrap()
}

#[test]
fn a_row_is_the_same_alone_and_among_others() {
    for facts in facts() {
        let case = Case::new(facts, (33, 512, 40), 8, false);
        everywhere(|exec, name| {
            let matrix = case.matrix(exec);
            let all = case.run(exec, &matrix, 0, 33, Variant::Dot);
            for rows in 1..33 {
                let got = case.run(exec, &matrix, 33 - rows, rows, Variant::Dot);
                assert!(same(&got, &all[(33 - rows) * 40..]), "{} {rows} rows on {name}", case.facts.format);
            }
        });
    }
}

#[test]
fn an_input_that_is_not_a_number_leaves_other_rows_alone() {
    for facts in facts() {
        let mut case = Case::new(facts, (3, 256, 20), 9, false);
        let clean = case.reference();
        case.inputs[256 + 77] = f32::NAN;
        everywhere(|exec, name| {
            let got = case.run(exec, &case.matrix(exec), 0, 3, Variant::Dot);
            for (r, (got, clean)) in got.chunks(20).zip(clean.chunks(20)).enumerate() {
                let right = if r == 1 { got.iter().all(|y| y.is_nan()) } else { same(got, clean) };
                assert!(right, "{} row {r} on {name}", case.facts.format);
            }
        });
    }
}

#[test]
fn rows_read_back_are_the_values_of_the_blocks() {
    for facts in facts() {
        let case = Case::new(facts, (0, 512, 37), 4, false);
        everywhere(|exec, name| {
            let matrix = case.matrix(exec);
            let gathered = matrix.gather(&[36, 0, 17]).unwrap();
            let mut copied = Matrix::zeroed(case.facts.format, 40, 512).unwrap();
            copied.copy_rows(3, &matrix);
            let mut row = vec![0f32; 512];
            let mut is = |matrix: &Matrix, r: usize, of: usize| {
                matrix.row(r, &mut row);
                assert!(
                    same(&row, &case.weights[of].values(&case.facts)),
                    "{} {of} on {name}",
                    case.facts.format
                );
            };
            (0..37).for_each(|r| is(&matrix, r, r));
            (0..37).for_each(|r| is(&copied, r + 3, r));
            [36, 0, 17].into_iter().enumerate().for_each(|(r, of)| is(&gathered, r, of));
        });
    }
}

/// An update continues the sums of a layer in any format.
#[test]
fn updates_of_stored_layers_follow_their_own_order() {
    for facts in facts() {
        let case = Case::new(facts, (27, 512, 48), 6, false);
        let (down, up) = Lora::formats(case.facts.format);
        let mut random = Random(7);
        let (down_values, up_values) = (random.values(5 * 512), random.values(48 * 5));
        everywhere(|exec, name| {
            let make = |format, rows, cols, values: &[f32]| {
                let mut matrix = Matrix::zeroed(format, rows, cols).unwrap();
                matrix.set_rows(exec, 0, values);
                matrix
            };
            let part = || LoraPart {
                down: make(down, 5, 512, &down_values),
                up: make(up, 48, 5, &up_values),
                first_strip: 0,
            };
            let lora = Lora::new(vec![part()], None);
            let base = case.run(exec, &case.matrix(exec), 0, 27, Variant::Dot);
            let plain = |matrix: &Matrix, x: &[f32], rows: usize| {
                let (cols, outputs) = (matrix.cols(), matrix.rows().next_multiple_of(16));
                let mut y = vec![0f32; rows * outputs];
                let mut scratch = vec![0; scratch_words(matrix.shape(), rows)];
                let mut out = RowsMut::new(&mut y, rows, matrix.rows(), outputs);
                let x = Rows::new(x, rows, cols, x.len() / rows);
                linear(exec, matrix, x, &mut out, Epilogue::default(), Variant::Dot, &mut scratch);
                y
            };
            for (first, rows) in [(0, 27), (3, 2), (7, 20)] {
                let t = plain(&part().down, &case.inputs[first * 512..][..rows * 512], rows);
                let update = [LoraRows { lora: &lora, scale: 1.0, first, rows }];
                let matrix = case.matrix(exec);
                let words = scratch_words(matrix.shape(), 27) + lora_scratch_words(matrix.shape(), 27, 16, 1);
                let (mut y, mut scratch) = (vec![0f32; 27 * 48], vec![0; words]);
                let epilogue = Epilogue { loras: &update, ..Epilogue::default() };
                let x = Rows::new(&case.inputs, 27, 512, 512);
                let mut out = RowsMut::new(&mut y, 27, 48, 48);
                linear(exec, &matrix, x, &mut out, epilogue, Variant::Tiles, &mut scratch);
                let mut want = base.clone();
                for (r, t) in t.chunks(16).enumerate() {
                    let (q, s) = quantised(&t[..5]);
                    for o in 0..48 {
                        let up = &lora.parts()[0].up;
                        let mut weights = [0f32; 5];
                        up.row(o, &mut weights);
                        let scale = weights_scale(up, o);
                        let sum: f32 =
                            q.iter().zip(weights).map(|(q, w)| *q as f32 * (w / scale).round()).sum();
                        let acc = &mut want[(first + r) * 48 + o];
                        *acc = sum.mul_add(scale * s[0], *acc);
                    }
                }
                assert!(same(&y, &want), "{} rows {first}+{rows} on {name}", case.facts.format);
            }
        });
    }
}

/// The scale of a row with one scale.
fn weights_scale(matrix: &Matrix, row: usize) -> f32 {
    let scales = matrix.planes(row / 16..row / 16 + 1).nth(1).unwrap().1;
    f32::from_le_bytes(scales[row % 16 * 4..][..4].try_into().unwrap())
}
