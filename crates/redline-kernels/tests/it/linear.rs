//! Linear layers: `acc = fma(w, x, acc)`, k ascending, then bias, then activation.

use proptest::prelude::*;
use redline_kernels::op::activation::Activation;
use redline_kernels::op::linear::{Epilogue, linear, scratch_words};
use redline_kernels::{Exec, Format, Matrix, Rows, RowsMut, Simd, Team};

use crate::values::{Random, bf16, everywhere, same};

struct Case {
    format: Format,
    rows: usize,
    k: usize,
    outputs: usize,
    weights: Vec<f32>,
    inputs: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn new(format: Format, rows: usize, k: usize, outputs: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut bias = random.values(outputs);
        bias.resize(outputs.next_multiple_of(16), 0.0);
        let (weights, inputs) = (random.awkward(k * outputs), random.awkward(k * rows));
        Self { format, rows, k, outputs, weights, inputs, bias }
    }

    fn matrix(&self) -> Matrix {
        let mut matrix = Matrix::zeroed(self.format, self.outputs, self.k).unwrap();
        matrix.set_rows(0, &self.weights);
        matrix
    }

    fn value(&self, x: f32) -> f32 {
        match self.format {
            Format::F32 => x,
            Format::Bf16 => bf16(x),
        }
    }

    /// The canonical order, read literally.
    fn reference(&self) -> Vec<f32> {
        let mut y = Vec::new();
        for r in 0..self.rows {
            for o in 0..self.outputs {
                let mut acc = 0f32;
                for i in 0..self.k {
                    let (w, x) =
                        (self.value(self.weights[o * self.k + i]), self.value(self.inputs[r * self.k + i]));
                    acc = w.mul_add(x, acc);
                }
                y.push(acc + self.bias[o]);
            }
        }
        y
    }

    fn run(&self, exec: Exec<'_>, matrix: &Matrix, from: usize, rows: usize) -> Vec<f32> {
        let stride = self.outputs.next_multiple_of(16);
        let mut y = vec![f32::NAN; rows * stride];
        let mut scratch = vec![0; scratch_words(self.format, rows, self.k)];
        let epilogue = Epilogue { bias: Some(&self.bias), activation: Activation::None };
        let x = Rows::new(&self.inputs[from * self.k..], rows, self.k, self.k);
        linear(
            exec,
            matrix,
            x,
            &mut RowsMut::new(&mut y, rows, self.outputs, stride),
            epilogue,
            &mut scratch,
        );
        y.chunks(stride).flat_map(|row| row[..self.outputs].to_vec()).collect()
    }
}

#[test]
fn odd_shapes_match_the_canonical_order_everywhere() {
    let mut seed = 0;
    for &format in Format::ALL {
        for (rows, k, outputs) in [
            (1, 1, 1),
            (1, 7, 16),
            (2, 16, 17),
            (3, 33, 64),
            (6, 255, 70),
            (7, 256, 33),
            (13, 300, 100),
            (33, 513, 129),
        ] {
            seed += 1;
            let case = Case::new(format, rows, k, outputs, seed);
            let (matrix, want) = (case.matrix(), case.reference());
            everywhere(|exec, name| {
                let got = case.run(exec, &matrix, 0, rows);
                assert!(same(&got, &want), "{} {rows}x{k}x{outputs} on {name}", format.name());
            });
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_among_others() {
    for &format in Format::ALL {
        let case = Case::new(format, 33, 290, 150, 7);
        let (matrix, team) = (case.matrix(), Team::new(2).unwrap());
        let exec = Exec { simd: Simd::best(), team: &team };
        let all = case.run(exec, &matrix, 0, 33);
        for rows in 1..=33 {
            let got = case.run(exec, &matrix, 33 - rows, rows);
            assert!(same(&got, &all[(33 - rows) * 150..]), "{} {rows} rows", format.name());
        }
    }
}

#[test]
fn a_row_with_nan_leaves_the_others_alone() {
    for &format in Format::ALL {
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
fn transposed_packing_and_gathered_rows_are_the_same_weights() {
    for &format in Format::ALL {
        let case = Case::new(format, 1, 37, 50, 11);
        let matrix = case.matrix();
        let transposed: Vec<f32> = (0..37)
            .flat_map(|i| (0..50).map(move |o| (i, o)))
            .map(|(i, o)| case.weights[o * 37 + i])
            .collect();
        let mut other = Matrix::zeroed(format, 50, 37).unwrap();
        other.set_rows_transposed(0, &transposed);
        let ids = [49u32, 0, 7, 7, 33];
        let gathered = matrix.gather(&ids).unwrap();
        let (mut a, mut b) = (vec![0f32; 37], vec![0f32; 37]);
        for row in 0..50 {
            matrix.row(row, &mut a);
            other.row(row, &mut b);
            assert!(same(&a, &b));
            let want: Vec<f32> = case.weights[row * 37..][..37].iter().map(|&w| case.value(w)).collect();
            assert!(same(&a, &want));
        }
        for (i, &id) in ids.iter().enumerate() {
            matrix.row(id as usize, &mut a);
            gathered.row(i, &mut b);
            assert!(same(&a, &b));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_shape_matches_the_canonical_order(
        rows in 1usize..20, k in 1usize..600, outputs in 1usize..90, seed: u64, bf in any::<bool>(), threads in 1usize..4,
    ) {
        let case = Case::new(if bf { Format::Bf16 } else { Format::F32 }, rows, k, outputs, seed);
        let (matrix, want, team) = (case.matrix(), case.reference(), Team::new(threads).unwrap());
        for simd in Simd::variants() {
            prop_assert!(same(&case.run(Exec { simd, team: &team }, &matrix, 0, rows), &want), "{}", simd.name());
        }
    }
}
