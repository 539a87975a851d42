//! Grouped layers give each row the bits of its layer alone.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::experts::Choice;
use redline_kernels::op::linear::{
    Epilogue, LayerRows, MAX_LAYERS, Variant, can_group, grouped_scratch_words, linear, linear_grouped,
    scratch_words,
};
use redline_kernels::{Exec, Matrix, Rows, RowsMut};

use crate::linear::{Case, formats};
use crate::stored::matrices;
use crate::values::{Random, everywhere, same};

const K: usize = 256;
const OUTPUTS: usize = 37;
const STRIDE: usize = 48;
/// Number of rows of the pass.
const ROWS: usize = 19;

/// Layers of one shape, with the rows of each.
struct Layers<'a> {
    matrices: &'a [Matrix],
    biases: Vec<Vec<f32>>,
    choices: Vec<Choice>,
}

impl<'a> Layers<'a> {
    fn new(matrices: &'a [Matrix], rows: &[&[u32]]) -> Self {
        let biases = (0..rows.len() as u64).map(|i| Random(i).values(STRIDE)).collect();
        let choice = |expert: u32, row| Choice { expert, row, weight: f32::NAN };
        let choices =
            (0u32..).zip(rows).flat_map(|(expert, rows)| rows.iter().map(move |&row| choice(expert, row)));
        Self { matrices, biases, choices: choices.collect() }
    }

    /// Number of rows of each.
    fn rows(&self) -> Vec<usize> {
        self.choices.chunk_by(|a, b| a.expert == b.expert).map(<[Choice]>::len).collect()
    }

    /// One layer after the other, each on copies of its rows.
    fn in_turn(&self, exec: Exec<'_>, x: &[f32]) -> Vec<f32> {
        let of_expert = self.choices.chunk_by(|a, b| a.expert == b.expert);
        let mut all = Vec::new();
        for ((bias, matrix), choices) in self.biases.iter().zip(self.matrices).zip(of_expert) {
            let inputs: Vec<f32> =
                choices.iter().flat_map(|choice| x[choice.row as usize * K..][..K].to_vec()).collect();
            let mut y = vec![f32::NAN; choices.len() * STRIDE];
            let mut scratch = vec![u32::MAX; scratch_words(matrix.shape(), choices.len())];
            linear(
                exec,
                matrix,
                Rows::new(&inputs, choices.len(), K, K),
                &mut RowsMut::new(&mut y, choices.len(), OUTPUTS, STRIDE),
                Epilogue { bias: Some(bias), activation: ActivationFunction::Silu, loras: &[] },
                Variant::Dot,
                &mut scratch,
            );
            all.extend(y.chunks(STRIDE).flat_map(|row| row[..OUTPUTS].to_vec()));
        }
        all
    }

    fn together(&self, exec: Exec<'_>, x: Rows<'_>, choices: Option<&[Choice]>) -> Vec<f32> {
        let rows = self.choices.len();
        let layers: Vec<LayerRows<'_>> = (self.matrices.iter().zip(&self.biases).zip(self.rows()))
            .map(|((matrix, bias), rows)| LayerRows { matrix, bias: Some(bias), rows })
            .collect();
        let mut y = vec![f32::NAN; rows * STRIDE];
        let mut scratch = vec![u32::MAX; grouped_scratch_words(self.matrices[0].shape(), rows)];
        let mut out = RowsMut::new(&mut y, rows, OUTPUTS, STRIDE);
        linear_grouped(exec, &layers, x, choices, &mut out, ActivationFunction::Silu, &mut scratch);
        y.chunks(STRIDE).flat_map(|row| row[..OUTPUTS].to_vec()).collect()
    }
}

/// For each integer format that floats are quantised to, as many matrices as a group can have.
fn quantised() -> Vec<Vec<Matrix>> {
    let formats = formats().into_iter().filter(|format| format.is_integer());
    let seeds = 0..MAX_LAYERS as u64;
    let matrix = |format, seed| Case::new(format, 0, K, OUTPUTS, seed).matrix();
    formats.map(|format| seeds.clone().map(|seed| matrix(format, seed)).collect()).collect()
}

#[test]
fn rows_have_the_bits_of_their_layer_alone() {
    let x = Random(5).awkward(ROWS * K);
    let all: Vec<u32> = (0..ROWS as u32).collect();
    let one: &[u32] = &[4];
    let groups: [&[&[u32]]; 4] = [
        // A single row in all: its inputs are laid out once.
        &[one; 8],
        &[&[0, 3], &[0, 3], &[3], &[0, 1, 3], &[18]],
        &[&all, one, &[2, 5], &[2, 6], &all[..9]],
        &[one; MAX_LAYERS],
    ];
    for matrices in quantised().into_iter().chain(matrices(MAX_LAYERS as u64, K, OUTPUTS)) {
        for (g, rows) in groups.iter().enumerate() {
            let layers = Layers::new(&matrices, rows);
            let name = format!("{}, group {g}", matrices[0].format());
            let mut want = None;
            everywhere(|exec, tier| {
                let want = want.get_or_insert_with(|| layers.in_turn(exec, &x));
                let from = Rows::new(&x, ROWS, K, K);
                let chosen = layers.together(exec, from, Some(&layers.choices));
                assert!(same(&chosen, want), "{name} on {tier}");
                // A row of inputs for each row of results, in rows that are longer.
                let copied: Vec<f32> = layers
                    .choices
                    .iter()
                    .flat_map(|choice| {
                        let row = &x[choice.row as usize * K..][..K];
                        row.iter().copied().chain([f32::NAN; 3])
                    })
                    .collect();
                let copied = Rows::new(&copied, layers.choices.len(), K, K + 3);
                let own = layers.together(exec, copied, None);
                assert!(same(&own, want), "{name}, rows of their own, on {tier}");
            });
        }
    }
}

#[test]
fn floats_and_layers_with_outliers_run_alone() {
    for format in formats() {
        let case = Case::new(format, 1, K, OUTPUTS, 1);
        assert_eq!(can_group(case.matrix().shape()), format.is_integer(), "{format}");
        if format.is_integer() {
            assert!(!can_group(case.with_outliers().matrix().shape()), "{format}");
        }
    }
}
