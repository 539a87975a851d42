//! Blocks of GGUF files, packed as they are stored, keep the values that they stand for.

use std::ops::Range;

use redline_kernels::matrix::{QuantisedRow, QuantisedRows};
use redline_kernels::{Exec, Format, Matrix, Simd, Team};
use redline_weights::{GgufParts, GgufType};

/// Deterministic bytes.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(next).collect()
}

#[test]
fn packed_blocks_read_back_as_their_decoded_values() {
    const ROWS: usize = 37;
    const COLS: usize = 768;
    let team = Team::new(2).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    let mut packed = 0;
    for ggml_type in GgufType::all().filter(|t| t.is_read() && t.block_values() > 1) {
        let format = Format::stored(ggml_type.name()).unwrap_or_else(|| panic!("{ggml_type} has no format"));
        let row_bytes = COLS / ggml_type.block_values() * ggml_type.block_bytes();
        let raw = bytes(ROWS * row_bytes, packed + 5);
        let mut matrix = Matrix::zeroed(format, ROWS, COLS).unwrap();
        let read = |rows: Range<usize>, to: &mut QuantisedRows, (): &mut ()| {
            for (i, row) in rows.enumerate() {
                let QuantisedRow { codes, scales, minima, sub_scales, sub_minima } = to.row(i);
                let parts = GgufParts { codes, scales, minima, sub_scales, sub_minima };
                if !ggml_type.split(&raw[row * row_bytes..][..row_bytes], parts) {
                    return Err(row);
                }
            }
            Ok(())
        };
        matrix.read_quantised_rows(exec, 0, ROWS, read).unwrap();
        let (mut want, mut got) = (vec![0f32; COLS], vec![0f32; COLS]);
        for row in 0..ROWS {
            assert!(ggml_type.decode(&raw[row * row_bytes..][..row_bytes], &mut want));
            matrix.row(row, &mut got);
            for (k, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{ggml_type} row {row} column {k}: {got} for {want}");
            }
        }
        packed += 1;
    }
    assert_eq!(packed, 13);
}

#[test]
fn parts_of_another_size_are_refused() {
    let raw = [0; 144];
    let split = |scales: usize, sub_minima: usize| {
        let (mut codes, mut d, mut m) = ([0; 256], [0; 2], [0; 1]);
        let (mut sub_scales, mut minima) = ([0; 8], [0; 8]);
        let parts = GgufParts {
            codes: &mut codes,
            scales: &mut d[..scales],
            minima: &mut m,
            sub_scales: &mut sub_scales,
            sub_minima: &mut minima[..sub_minima],
        };
        GgufType::Q4K.split(&raw, parts)
    };
    assert!(split(1, 8));
    assert!(!split(2, 8) && !split(1, 7));
}
