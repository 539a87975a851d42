//! Linear layers compared with a literal implementation of their canonical order.

use std::ops::Range;

use proptest::prelude::*;
use redline_kernels::matrix::Plane;
use redline_kernels::op::linear::{Epilogue, Variant, linear, scratch_words};
use redline_kernels::{Exec, Format, Matrix, Rows, RowsMut, Simd, Team};
use redline_reference::linear::{self as reference, Inputs, chain, integer_sum};
use redline_reference::number::{bf16, f16, widen_f16};

use crate::values::{Random, everywhere, same};

/// All formats with all group sizes.
pub(crate) fn formats() -> Vec<Format> {
    let groups = |format: Format| format.groups().iter().filter_map(move |&g| format.with_group(g));
    let all = Format::ALL.iter().chain([&Format::F16]);
    all.flat_map(|&f| if f.is_integer() { groups(f).collect() } else { vec![f] }).collect()
}

fn rounded(x: &[f32], round: fn(f32) -> f32) -> Vec<f32> {
    x.iter().map(|x| round(*x)).collect()
}

pub(crate) struct Case {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    pub(crate) outputs: usize,
    pub(crate) outliers: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) inputs: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl Case {
    pub(crate) fn new(format: Format, rows: usize, k: usize, outputs: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut bias = random.values(outputs);
        bias.resize(outputs.next_multiple_of(16), 0.0);
        let weights = random.awkward(k * outputs).iter().map(|w| w.clamp(-6e4, 6e4)).collect();
        let inputs = random.awkward(k * rows);
        Self { format, rows, k, outputs, outliers: Vec::new(), weights, inputs, bias }
    }

    /// Adds outlier columns.
    pub(crate) fn with_outliers(mut self) -> Self {
        let k = self.k as u32;
        self.outliers = [0, 1, 3, k / 2, k - 1].into_iter().filter(|&c| c < k).collect();
        self.outliers.sort_unstable();
        self.outliers.dedup();
        self
    }

    pub(crate) fn matrix(&self) -> Matrix {
        let outliers = self.outliers.clone();
        let mut matrix = Matrix::with_outliers(self.format, self.outputs, self.k, outliers).unwrap();
        on_one_thread(|exec| matrix.set_rows(exec, 0, &self.weights));
        matrix
    }

    /// Continues the sum `acc` of one output with the products of inputs `x`, in the canonical order.
    pub(crate) fn sum(&self, acc: f32, packed: &Packed, x: &[f32], o: usize) -> f32 {
        let w = &self.weights[o * self.k..][..self.k];
        match self.format {
            Format::Bf16 => chain(acc, &rounded(w, bf16), &rounded(x, bf16)),
            Format::F16 => chain(acc, &rounded(w, f16), x),
            format if !format.is_integer() => chain(acc, w, x),
            format => {
                let group = format.group().filter(|&g| g > 0).unwrap_or(self.k);
                let kept = |i: usize| if self.outliers.contains(&(i as u32)) { 0.0 } else { x[i] };
                let inputs = Inputs::new(&(0..self.k).map(kept).collect::<Vec<f32>>());
                let acc = integer_sum(acc, &inputs, group, |k| packed.q(o, k), |k| packed.scale(o, k));
                let apart =
                    |x: &[f32]| self.outliers.iter().map(|&c| bf16(x[c as usize])).collect::<Vec<_>>();
                chain(acc, &apart(w), &apart(x))
            }
        }
    }

    fn reference(&self) -> Vec<f32> {
        let matrix = self.matrix();
        let packed = Packed { format: self.format, k: self.k, matrix: &matrix };
        let outputs = (0..self.rows).flat_map(|r| (0..self.outputs).map(move |o| (r, o)));
        let row = |r: usize| &self.inputs[r * self.k..][..self.k];
        outputs.map(|(r, o)| self.sum(0.0, &packed, row(r), o) + self.bias[o]).collect()
    }

    /// The outputs, checked to be the same in every variant that this machine and format support, and, but for the bias, without one.
    fn run(&self, exec: Exec<'_>, matrix: &Matrix, from: usize, rows: usize) -> Vec<f32> {
        let variants = Variant::candidates(exec.simd, matrix, rows, 8);
        let first = self.run_variant(exec, matrix, (from, rows), Some(&self.bias), variants[0]);
        for &variant in &variants {
            let mut other = self.run_variant(exec, matrix, (from, rows), None, variant);
            for row in other.chunks_mut(self.outputs) {
                row.iter_mut().zip(&self.bias).for_each(|(sum, bias)| *sum += bias);
            }
            assert!(same(&other, &first), "{} without a bias differs", variant.name());
        }
        for &variant in &variants[1..] {
            let other = self.run_variant(exec, matrix, (from, rows), Some(&self.bias), variant);
            assert!(same(&other, &first), "{} and {} differ", variant.name(), variants[0].name());
        }
        first
    }

    fn run_variant(
        &self,
        exec: Exec<'_>,
        matrix: &Matrix,
        (from, rows): (usize, usize),
        bias: Option<&[f32]>,
        variant: Variant,
    ) -> Vec<f32> {
        let stride = self.outputs.next_multiple_of(16);
        let mut y = vec![f32::NAN; rows * stride];
        let mut scratch = vec![u32::MAX; scratch_words(matrix.shape(), rows)];
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        let x = Rows::new(&self.inputs[from * self.k..], rows, self.k, self.k);
        linear(
            exec,
            matrix,
            x,
            &mut RowsMut::new(&mut y, rows, self.outputs, stride),
            epilogue,
            variant,
            &mut scratch,
        );
        y.chunks(stride).flat_map(|row| row[..self.outputs].to_vec()).collect()
    }

    fn name(&self) -> String {
        let outliers = if self.outliers.is_empty() { "" } else { " with outliers" };
        format!("{}{outliers} {}x{}x{}", self.format, self.rows, self.k, self.outputs)
    }
}

/// The documented layout of integer formats, read byte by byte.
pub(crate) struct Packed<'a> {
    pub(crate) format: Format,
    pub(crate) k: usize,
    pub(crate) matrix: &'a Matrix,
}

impl Packed<'_> {
    /// A plane of the strip that a row lies in.
    fn plane(&self, plane: Plane, row: usize) -> &[u8] {
        self.matrix.planes(row / 16..row / 16 + 1).find(|&(found, _)| found == plane).unwrap().1
    }

    fn q(&self, row: usize, k: usize) -> i32 {
        let words = self.plane(Plane::Words, row);
        if self.format.name() == "w8" {
            i32::from(words[(k / 4 * 16 + row % 16) * 4 + k % 4]) - 128
        } else {
            let byte = words[(k / 8 * 16 + row % 16) * 4 + k % 4];
            i32::from(if k % 8 < 4 { byte & 15 } else { byte >> 4 }) - 8
        }
    }

    fn scale(&self, row: usize, k: usize) -> f32 {
        let scales = self.plane(Plane::Scales, row);
        match self.format.group() {
            Some(0) => f32::from_le_bytes(scales[row % 16 * 4..][..4].try_into().unwrap()),
            Some(group) => {
                assert!(k < self.k);
                widen_f16(u16::from_le_bytes(
                    scales[(k / group * 16 + row % 16) * 2..][..2].try_into().unwrap(),
                ))
            }
            None => 1.0,
        }
    }
}

pub(crate) fn on_one_thread<T>(f: impl FnOnce(Exec<'_>) -> T) -> T {
    let team = Team::new(1).unwrap();
    f(Exec { simd: Simd::best(), team: &team })
}

#[test]
fn odd_shapes_match_the_canonical_order_everywhere() {
    let mut seed = 0;
    for format in formats() {
        for (rows, k, outputs) in [
            (1, 1, 1),
            (1, 7, 16),
            (2, 16, 17),
            (3, 33, 64),
            (6, 255, 70),
            (7, 256, 33),
            (13, 300, 100),
            (33, 513, 129),
            // A tile's inputs exceed the first-level cache, so k is cut.
            (24, 2590, 40),
            (50, 1500, 20),
            // Exceeds the k that tile registers process at once, with odd strips and k.
            (33, 2590, 100),
            (40, 4160, 17),
        ] {
            seed += 1;
            let plain = Case::new(format, rows, k, outputs, seed);
            let apart =
                format.is_integer().then(|| Case::new(format, rows, k, outputs, seed).with_outliers());
            for case in [Some(plain), apart].into_iter().flatten() {
                let (matrix, want) = (case.matrix(), case.reference());
                everywhere(|exec, name| {
                    let got = case.run(exec, &matrix, 0, rows);
                    assert!(same(&got, &want), "{} on {name}", case.name());
                });
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_among_others() {
    for format in formats() {
        let case = Case::new(format, 50, 290, 150, 7);
        let matrix = case.matrix();
        everywhere(|exec, name| {
            let all = case.run(exec, &matrix, 0, 50);
            for rows in (1..=33).chain([49]) {
                let got = case.run(exec, &matrix, 50 - rows, rows);
                assert!(same(&got, &all[(50 - rows) * 150..]), "{format} {rows} rows on {name}");
            }
        });
    }
}

#[test]
fn a_row_with_nan_leaves_the_others_alone() {
    for format in formats() {
        let mut case = Case::new(format, 8, 40, 48, 3);
        let matrix = case.matrix();
        let clean = case.reference();
        case.inputs[3 * 40 + 5] = f32::NAN;
        case.inputs[6 * 40] = f32::INFINITY;
        everywhere(|exec, name| {
            let got = case.run(exec, &matrix, 0, 8);
            for r in 0..8 {
                let (got, clean) = (&got[r * 48..][..48], &clean[r * 48..][..48]);
                match r {
                    3 => assert!(got.iter().all(|x| x.is_nan()), "{name}"),
                    6 => assert!(got.iter().all(|x| !x.is_finite()), "{name}"),
                    _ => assert!(same(got, clean), "row {r} on {name}"),
                }
            }
        });
    }
}

#[test]
fn no_bytes_of_a_file_saturate_a_sum() {
    // Extreme weights and inputs together, including the weight -128, which conversion never writes.
    for format in formats().into_iter().filter(|f| f.is_integer()) {
        for (inputs, seed) in [(vec![1.0; 256], 1), (vec![-1.0; 256], 2), ([1.0, -1.0].repeat(128), 3)] {
            // Enough rows for tile registers.
            let mut case = Case::new(format, 26, 256, 64, seed);
            case.inputs = inputs.repeat(26);
            for byte in [Some(0u8), Some(0xff), None] {
                let mut matrix = case.matrix();
                let mut random = Random(seed);
                let words = matrix.planes_mut(0..4).next().unwrap().1;
                for b in &mut *words {
                    *b = byte.unwrap_or(random.next() as u8);
                }
                let packed = Packed { format, k: 256, matrix: &matrix };
                let sum = |o| case.sum(0.0, &packed, &case.inputs[..256], o) + case.bias[o];
                let want: Vec<f32> = (0..64).map(sum).collect();
                everywhere(|exec, name| {
                    for rows in [1, 26] {
                        let got = case.run(exec, &matrix, 0, rows);
                        assert!(same(&got, &want.repeat(rows)), "{rows} rows, {format} {byte:?} on {name}");
                    }
                });
            }
        }
    }
}

#[test]
fn rows_packed_in_any_way_are_the_same_weights() {
    for format in formats() {
        for case in [Case::new(format, 1, 137, 50, 11), Case::new(format, 1, 137, 50, 12).with_outliers()] {
            if !format.is_integer() && !case.outliers.is_empty() {
                continue;
            }
            let matrix = case.matrix();
            let transposed: Vec<f32> = (0..137)
                .flat_map(|i| (0..50).map(move |o| (i, o)))
                .map(|(i, o)| case.weights[o * 137 + i])
                .collect();
            everywhere(|exec, name| {
                let empty = || Matrix::with_outliers(format, 50, 137, case.outliers.clone()).unwrap();
                let (mut turned, mut pieces, mut copied, mut read) = (empty(), empty(), empty(), empty());
                turned.set_rows_transposed(exec, 0, &transposed);
                for (first, end) in [(0, 5), (5, 37), (37, 50)] {
                    pieces.set_rows(exec, first, &case.weights[first * 137..end * 137]);
                }
                copied.copy_rows(0, &matrix);
                for (first, end) in [(0, 5), (5, 37), (37, 50)] {
                    let store = |rows: Range<usize>, values: &mut [f32], calls: &mut usize| {
                        *calls += 1;
                        let place = (first + rows.start) * 137..(first + rows.end) * 137;
                        values.copy_from_slice(&case.weights[place]);
                        Ok::<(), ()>(())
                    };
                    read.read_rows(exec, first, end - first, store).unwrap();
                }
                for other in [turned, pieces, read] {
                    assert!(matrix.planes(0..4).eq(other.planes(0..4)), "{name}");
                }
                let (mut a, mut b) = (vec![0f32; 137], vec![0f32; 137]);
                for row in 0..50 {
                    matrix.row(row, &mut a);
                    copied.row(row, &mut b);
                    assert!(same(&a, &b), "{format} row {row}");
                }
            });
        }
    }
}

#[test]
fn of_several_rows_that_cannot_be_read_the_first_is_reported() {
    everywhere(|exec, name| {
        let mut matrix = Matrix::zeroed(Format::Bf16, 200, 32).unwrap();
        let read = |rows: Range<usize>, values: &mut [f32], (): &mut ()| {
            assert!(rows.len() <= 16 && values.len() == rows.len() * 32);
            if rows.contains(&70) || rows.contains(&190) { Err(rows.start) } else { Ok(()) }
        };
        assert_eq!(matrix.read_rows(exec, 0, 200, read), Err(64), "{name}");
        assert_eq!(matrix.read_rows(exec, 70, 130, |_, _, (): &mut ()| Ok::<(), ()>(())), Ok(()));
    });
}

#[test]
fn gathered_rows_have_the_same_values() {
    for format in formats() {
        let case = Case::new(format, 1, 137, 50, 11);
        let case = if format.is_integer() { case.with_outliers() } else { case };
        let matrix = case.matrix();
        let ids = [49u32, 0, 7, 7, 33];
        let gathered = matrix.gather(&ids).unwrap();
        let (mut a, mut b) = (vec![0f32; 137], vec![0f32; 137]);
        for (i, &id) in ids.iter().enumerate() {
            matrix.row(id as usize, &mut a);
            gathered.row(i, &mut b);
            assert!(same(&a, &b));
        }
    }
}

#[test]
fn a_row_reads_back_as_the_layer_sees_it() {
    for format in formats() {
        let case = Case::new(format, 1, 300, 50, 19);
        let case = if format.is_integer() { case.with_outliers() } else { case };
        let matrix = case.matrix();
        let packed = Packed { format, k: 300, matrix: &matrix };
        let mut row = vec![0f32; 300];
        for o in 0..50 {
            matrix.row(o, &mut row);
            for (k, &got) in row.iter().enumerate() {
                let w = case.weights[o * 300 + k];
                let want = match format {
                    Format::Bf16 => bf16(w),
                    Format::F16 => f16(w),
                    format if !format.is_integer() => w,
                    _ if case.outliers.contains(&(k as u32)) => bf16(w),
                    _ => packed.q(o, k) as f32 * packed.scale(o, k),
                };
                assert_eq!(got.to_bits(), want.to_bits(), "{format} row {o} column {k}");
            }
        }
    }
}

/// The integers of the other columns are the same as if the outlier columns were zero, however large these are.
#[test]
fn columns_kept_apart_do_not_scale_the_others() {
    for format in formats().into_iter().filter(|format| format.is_integer()) {
        let mut case = Case::new(format, 1, 300, 50, 23).with_outliers();
        let is_apart = |case: &Case, at: usize| case.outliers.contains(&((at % 300) as u32));
        for at in (0..50 * 300).filter(|&at| is_apart(&case, at)).collect::<Vec<_>>() {
            case.weights[at] = 1e4 + at as f32;
        }
        let apart = case.matrix();
        let mut zeros = Case::new(format, 1, 300, 50, 23);
        for at in (0..50 * 300).filter(|&at| is_apart(&case, at)).collect::<Vec<_>>() {
            zeros.weights[at] = 0.0;
        }
        let zeros = zeros.matrix();
        let (mut row, mut expect) = (vec![0f32; 300], vec![0f32; 300]);
        for o in 0..50 {
            apart.row(o, &mut row);
            zeros.row(o, &mut expect);
            for k in (0..300).filter(|&k| !is_apart(&case, k)) {
                assert_eq!(row[k].to_bits(), expect[k].to_bits(), "{format} row {o} column {k}");
            }
        }
    }
}

#[test]
fn weights_are_rounded_as_the_reference_does() {
    for format in formats() {
        let case = Case::new(format, 1, 300, 50, 29);
        let reference = reference::WeightFormat::named(format.name(), format.group()).unwrap();
        for (values, o) in case.weights.chunks(300).zip(0..) {
            let mut row = vec![0f32; 300];
            case.matrix().row(o, &mut row);
            let want = reference::OutputWeights::new(reference, values).widened();
            assert!(same(&row, &want), "{format} row {o}");
        }
    }
}

#[test]
fn integers_are_the_nearest_of_their_stored_scale() {
    let mut random = Random(7);
    let weights: Vec<f32> = (0..16 * 256).map(|_| random.value() * 0.02).collect();
    for format in formats().into_iter().filter(|f| f.name() == "w8") {
        let mut matrix = Matrix::zeroed(format, 16, 256).unwrap();
        on_one_thread(|exec| matrix.set_rows(exec, 0, &weights));
        let packed = Packed { format, k: 256, matrix: &matrix };
        for (at, &w) in weights.iter().enumerate() {
            let (row, k) = (at / 256, at % 256);
            let (q, scale) = (packed.q(row, k), packed.scale(row, k));
            let off = (w / scale - q as f32).abs();
            let most = if q.abs() == 127 { 0.6 } else { 0.500_02 };
            assert!(off < most, "{format}: {w} is {q} of {scale}, {off} off");
        }
    }
}

#[test]
fn rounding_errors_stay_below_what_the_scales_allow() {
    let mut random = Random(5);
    let weights: Vec<f32> =
        (0..64 * 1024).map(|_| (random.value() + random.value() + random.value()) * 0.02).collect();
    for format in formats().into_iter().filter(|f| f.is_integer()) {
        let mut matrix = Matrix::zeroed(format, 64, 1024).unwrap();
        on_one_thread(|exec| matrix.set_rows(exec, 0, &weights));
        let (mut row, mut error, mut plain) = (vec![0f32; 1024], 0f64, 0f64);
        let group = format.group().filter(|&g| g > 0).unwrap_or(1024);
        let steps = if format.name() == "w8" { 127.0 } else { 7.0 };
        for (o, weights) in weights.chunks_exact(1024).enumerate() {
            matrix.row(o, &mut row);
            for (group, weights) in row.chunks(group).zip(weights.chunks(group)) {
                let scale = weights.iter().fold(0f32, |m, w| m.max(w.abs())) / steps;
                for (&got, &w) in group.iter().zip(weights) {
                    error += f64::from(got - w).powi(2);
                    plain += f64::from((w / scale).round() * scale - w).powi(2);
                }
            }
        }
        // With eight bits, f16 scales cost a little accuracy; with four bits, the search must clearly improve on the plain
        // scale.
        let bound = if format.name() == "w8" { 1.01 } else { 0.92 };
        assert!(error < plain * bound, "{format}: {error:e} against {plain:e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_shape_matches_the_canonical_order(
        rows in 1usize..50, k in 1usize..600, outputs in 1usize..90, seed: u64, which in 0usize..9,
        apart: bool, threads in 1usize..4,
    ) {
        let format = formats()[which];
        let case = Case::new(format, rows, k, outputs, seed);
        let case = if apart && format.is_integer() { case.with_outliers() } else { case };
        let (matrix, want, team) = (case.matrix(), case.reference(), Team::new(threads).unwrap());
        for simd in Simd::variants() {
            prop_assert!(same(&case.run(Exec { simd, team: &team }, &matrix, 0, rows), &want), "{}", simd.name());
        }
    }
}

#[test]
fn the_bytes_of_a_matrix_are_those_of_its_planes() {
    for format in formats() {
        let columns = if format.is_integer() { vec![0, 3, 130] } else { Vec::new() };
        let matrix = Matrix::with_outliers(format, 50, 137, columns).unwrap();
        let sizes: Vec<usize> = matrix.planes(0..4).map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(matrix.bytes(), sizes.iter().sum::<usize>(), "{format}");
        assert_eq!(matrix.bytes() as u64, matrix.shape().bytes(), "{format}");
        assert_eq!(sizes, matrix.plane_shapes().map(|plane| 4 * plane.bytes), "{format}");
        let found = [Plane::Scales, Plane::Outliers].map(|plane| sizes[plane as usize] > 0);
        assert_eq!(found, [format.is_integer(); 2]);
    }
}

/// A weight of the largest magnitude that a format with groups can hold is kept exactly.
#[test]
fn the_largest_weight_is_kept() {
    for format in formats() {
        // With one scale per output, the scale is rounded to f32.
        let tolerance = if format.group() == Some(0) { 2f32.powi(-20) } else { 0.0 };
        let mut weights = vec![0f32; 16 * 128];
        (weights[5], weights[3 * 128 + 77]) = (format.largest(), -format.largest());
        let mut matrix = Matrix::zeroed(format, 16, 128).unwrap();
        on_one_thread(|exec| matrix.set_rows(exec, 0, &weights));
        let mut row = vec![f32::NAN; 128];
        for (r, weights) in weights.chunks(128).enumerate() {
            matrix.row(r, &mut row);
            // A zero may be a product with a negative scale.
            let close = |(got, weight): (&f32, &f32)| (got - weight).abs() <= tolerance * weight.abs();
            assert!(row.iter().zip(weights).all(close), "{format} row {r}: {row:?}");
        }
    }
}
