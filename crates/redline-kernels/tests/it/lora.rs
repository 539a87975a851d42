//! Low-rank updates of linear layers compared with a literal implementation of their canonical order.

use std::ops::Range;

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::linear::{
    Epilogue, Lora, LoraPart, LoraRows, Variant, linear, lora_scratch_words, scratch_words,
};
use redline_kernels::{Buffer, Exec, Format, Matrix, Rows, RowsMut};

use crate::linear::{Case, Packed, formats};
use crate::values::{Random, everywhere, same};

/// One projection of an update: outputs `outputs` of the layer.
struct Part {
    outputs: Range<usize>,
    down: Case,
    up: Case,
}

/// An update with its weights as f32.
struct Update {
    parts: Vec<Part>,
    gains: Option<Vec<f32>>,
}

impl Update {
    fn new(base: &Case, rank: usize, outputs: &[(usize, usize)], gains: bool, seed: u64) -> Self {
        let (down, up) = Lora::formats(base.format);
        let parts = outputs.iter().enumerate().map(|(i, &(start, end))| {
            let outputs = start..end;
            let rank = rank + 3 * i;
            let mut down = Case::new(down, 0, base.k, rank, seed + i as u64);
            down.outliers.clone_from(&base.outliers);
            // Whole strips; outputs of other projections are zero.
            let first = outputs.start / 16 * 16;
            let mut up = Case::new(up, 0, rank, outputs.end - first, seed + 50 + i as u64);
            up.weights[..(outputs.start - first) * rank].fill(0.0);
            Part { outputs, down, up }
        });
        let parts = parts.collect();
        let gains = gains.then(|| Random(seed).values(base.outputs.next_multiple_of(16)));
        Self { parts, gains }
    }

    fn lora(&self) -> Lora {
        let part = |Part { outputs, down, up }: &Part| LoraPart {
            down: down.matrix(),
            up: up.matrix(),
            first_strip: outputs.start / 16,
        };
        let gains = self.gains.as_ref().map(|gains| {
            let mut buffer = Buffer::zeroed(gains.len()).unwrap();
            buffer.copy_from_slice(gains);
            buffer
        });
        Lora::new(self.parts.iter().map(part).collect(), gains)
    }

    /// Sum of the ranks of all parts, each in whole strips.
    fn rank(&self) -> usize {
        self.parts.iter().map(|part| part.down.outputs.next_multiple_of(16)).sum()
    }

    /// Continues the sums of a row.
    fn apply(&self, lora: &Lora, scale: f32, x: &[f32], sums: &mut [f32]) {
        for (Part { outputs, down, up }, packed) in self.parts.iter().zip(lora.parts()) {
            let of = |case: &Case, matrix, x: &[f32], acc, o| {
                case.sum(acc, &Packed { format: case.format, k: case.k, matrix }, x, o)
            };
            let t = |r| {
                let t = of(down, &packed.down, x, 0.0, r);
                if scale == 1.0 { t } else { t * scale }
            };
            let t: Vec<f32> = (0..down.outputs).map(t).collect();
            let first = outputs.start / 16 * 16;
            for o in first..outputs.end {
                sums[o] = of(up, &packed.up, &t, sums[o], o - first);
            }
        }
        if let Some(gains) = &self.gains {
            sums.iter_mut().zip(gains).for_each(|(sum, gain)| *sum *= gain);
        }
    }
}

/// Updates of rows: which, their scale, their rows.
type Uses = Vec<(usize, f32, Range<usize>)>;

fn want(base: &Case, updates: &[Update], loras: &[Lora], uses: &Uses) -> Vec<f32> {
    let matrix = base.matrix();
    let packed = Packed { format: base.format, k: base.k, matrix: &matrix };
    let mut all = Vec::new();
    for r in 0..base.rows {
        let x = &base.inputs[r * base.k..][..base.k];
        let mut sums: Vec<f32> = (0..base.outputs).map(|o| base.sum(0.0, &packed, x, o)).collect();
        for (which, scale, _) in uses.iter().filter(|(_, _, rows)| rows.contains(&r)) {
            updates[*which].apply(&loras[*which], *scale, x, &mut sums);
        }
        all.extend(sums.iter().zip(&base.bias).map(|(sum, bias)| sum + bias));
    }
    all
}

fn run(
    exec: Exec<'_>,
    base: &Case,
    matrix: &Matrix,
    loras: &[LoraRows<'_>],
    rank: usize,
    variant: Variant,
) -> Vec<f32> {
    let stride = base.outputs.next_multiple_of(16);
    let mut y = vec![f32::NAN; base.rows * stride];
    let words =
        scratch_words(matrix.shape(), base.rows) + lora_scratch_words(matrix.shape(), base.rows, rank, 2);
    let mut scratch = vec![u32::MAX; words];
    let epilogue = Epilogue { loras, bias: Some(&base.bias), activation: ActivationFunction::None };
    let x = Rows::new(&base.inputs, base.rows, base.k, base.k);
    let mut out = RowsMut::new(&mut y, base.rows, base.outputs, stride);
    linear(exec, matrix, x, &mut out, epilogue, variant, &mut scratch);
    y.chunks(stride).flat_map(|row| row[..base.outputs].to_vec()).collect()
}

/// Compares every variant on every tier with the literal order.
fn check(base: &Case, ranks: [usize; 2], uses: &Uses) {
    let n = base.outputs;
    let parts = if n > 40 { vec![(0, 20), (20, n - 9), (n - 9, n)] } else { vec![(0, n)] };
    // The second update leaves a projection alone.
    let some = if n > 40 { vec![(20, n - 9)] } else { vec![(0, n)] };
    let seed = n as u64;
    let updates = [
        Update::new(base, ranks[0], &parts, false, seed),
        Update::new(base, ranks[1], &some, true, seed + 9),
    ];
    let loras: Vec<Lora> = updates.iter().map(Update::lora).collect();
    let rank = updates.iter().map(Update::rank).max().unwrap();
    let want = want(base, &updates, &loras, uses);
    let matrix = base.matrix();
    let rows = |(which, scale, rows): &(usize, f32, Range<usize>)| LoraRows {
        lora: &loras[*which],
        scale: *scale,
        first: rows.start,
        rows: rows.len(),
    };
    let used: Vec<LoraRows<'_>> = uses.iter().map(rows).collect();
    everywhere(|exec, name| {
        for variant in Variant::candidates(exec.simd, &matrix, base.rows, 8) {
            let got = run(exec, base, &matrix, &used, rank, variant);
            let Case { format, rows, k, .. } = base;
            assert!(same(&got, &want), "{format} {rows}x{k}x{n} {ranks:?} {} on {name}", variant.name());
        }
    });
}

fn cases(format: Format, rows: usize, k: usize, outputs: usize) -> Vec<Case> {
    let seed = (rows * k + outputs) as u64;
    let plain = Case::new(format, rows, k, outputs, seed);
    let apart = format.is_integer().then(|| Case::new(format, rows, k, outputs, seed).with_outliers());
    [Some(plain), apart].into_iter().flatten().collect()
}

#[test]
fn updates_match_the_canonical_order_everywhere() {
    for format in formats() {
        for (rows, k, outputs, ranks) in [
            (1usize, 33, 17, [1, 5]),
            (7, 256, 70, [16, 8]),
            (20, 300, 101, [5, 40]),
            (45, 513, 64, [130, 16]),
            // Several panels of tile registers, in outputs and inputs.
            (45, 2100, 150, [16, 40]),
        ] {
            let half = rows.div_ceil(2);
            // Rows without an update, rows with two, and one on its own.
            let uses: Uses = vec![(0, 1.0, 0..half), (1, 1.0, half..rows), (0, -0.75, half..rows)];
            let uses: Uses = uses.into_iter().filter(|(_, _, rows)| !rows.is_empty()).collect();
            for base in cases(format, rows, k, outputs) {
                check(&base, ranks, &uses);
            }
        }
    }
}

#[test]
fn an_update_may_begin_and_end_within_tiles() {
    for format in formats() {
        let uses = vec![(0, 0.5, 10..26), (1, 1.0, 10..26), (0, 1.0, 30..33)];
        for base in cases(format, 33, 200, 150) {
            check(&base, [20, 16], &uses);
        }
    }
}

#[test]
fn every_row_may_have_an_update_of_its_own() {
    for format in formats() {
        for rows in [5, 18, 33] {
            let uses: Uses =
                (0..rows).filter(|r| r % 5 != 3).map(|r| (r % 2, 1.0 + r as f32, r..r + 1)).collect();
            for base in cases(format, rows, 200, 50) {
                check(&base, [16, 3], &uses);
            }
        }
    }
}

#[test]
fn a_row_without_an_update_keeps_its_bits() {
    for format in formats() {
        let base = Case::new(format, 30, 100, 48, 5);
        let matrix = base.matrix();
        let update = Update::new(&base, 8, &[(0, 48)], true, 3);
        let lora = update.lora();
        everywhere(|exec, name| {
            let variant = Variant::estimate(exec.simd, &matrix, 30);
            let alone = run(exec, &base, &matrix, &[], 0, variant);
            let rows = LoraRows { lora: &lora, scale: 1.0, first: 10, rows: 7 };
            let with = run(exec, &base, &matrix, &[rows], update.rank(), variant);
            for r in 0..30 {
                let (a, b) = (&alone[r * 48..][..48], &with[r * 48..][..48]);
                assert_eq!(same(a, b), !(10..17).contains(&r), "{format} row {r} on {name}");
            }
        });
    }
}
