//! Arguments that do not fit each other are refused before anything is read or written.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redline_kernels::op::activation::{ActivationFunction, Gating, gate};
use redline_kernels::op::add::add;
use redline_kernels::op::attention::{
    AttentionBias, AttentionShape, DistanceBias, DistanceTable, attention, relative_bias,
};
use redline_kernels::op::conv::Taps;
use redline_kernels::op::embedding::embedding;
use redline_kernels::op::experts::{Choice, add_weighted};
use redline_kernels::op::kv::{AttentionMask, KvFormat, KvPages, KvShape, PageShape, Segment};
use redline_kernels::op::linear::{
    Epilogue, LayerRows, Variant, grouped_scratch_words, linear, linear_grouped,
};
use redline_kernels::op::norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_heads};
use redline_kernels::op::rope::{RopeTable, rope};
use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::op::summary::{LogitSummary, summaries};
use redline_kernels::{Format, Matrix, Rows, RowsMut};

use crate::linear::on_one_thread;

/// Calls `call`, which must panic with a message that contains `expected`.
fn refused<T>(expected: &str, call: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().expect(expected);
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap();
    assert!(message.contains(expected), "expected {expected:?} in {message:?}");
}

/// Rows of `width` values, one after the other.
fn rows(values: &[f32], width: usize) -> Rows<'_> {
    Rows::new(values, values.len() / width, width, width)
}

fn rows_mut(values: &mut [f32], width: usize) -> RowsMut<'_> {
    let count = values.len() / width;
    RowsMut::new(values, count, width, width)
}

#[test]
fn rows_lie_within_their_values() {
    let values: Vec<f32> = (0..20u8).map(f32::from).collect();
    for (count, width, stride) in [(0, 9, 0), (1, 20, 20), (1, 20, 25), (2, 8, 12), (3, 4, 8), (4, 5, 5)] {
        let rows = Rows::new(&values, count, width, stride);
        assert_eq!((rows.rows(), rows.width()), (count, width));
        for r in 0..count {
            assert_eq!(rows.row(r), &values[r * stride..][..width]);
            assert_eq!(RowsMut::new(&mut values.clone(), count, width, stride).row(r), rows.row(r));
        }
    }
    for (count, width, stride) in
        [(1, 21, 21), (2, 9, 12), (3, 5, 8), (4, 5, 6), (2, 4, 3), (2, 4, usize::MAX), (3, 0, usize::MAX)]
    {
        let expected = format!("{count} rows of {width}/{stride} in 20");
        refused(&expected, || Rows::new(&values, count, width, stride).rows());
        let mut copy = values.clone();
        refused(&expected, || RowsMut::new(&mut copy, count, width, stride).row(0).len());
    }
}

#[test]
fn some_rows_are_among_all() {
    let values: Vec<f32> = (0..20u8).map(f32::from).collect();
    let all = Rows::new(&values, 3, 4, 8);
    let last = all.some(1..3);
    assert_eq!((last.rows(), last.row(0), last.row(1)), (2, &values[8..12], &values[16..20]));
    // The fourth row would begin beyond the values.
    assert_eq!(all.some(3..3).rows(), 0);
    refused("rows 2..4 of 3", || all.some(2..4).rows());
}

#[test]
fn columns_kept_apart_are_columns_of_an_integer_format_in_order() {
    let new =
        |format: Format, columns: &[u32]| Matrix::with_outliers(format, 16, 128, columns.to_vec()).unwrap();
    let w8 = Format::parse("w8").unwrap();
    assert_eq!(new(w8, &[0, 5, 127]).outlier_columns(), [0, 5, 127]);
    for (format, columns, expected) in [
        (w8, &[128][..], "outlier columns of 128"),
        (w8, &[5, 5][..], "outlier columns ascend"),
        (w8, &[7, 3][..], "outlier columns ascend"),
        (Format::F32, &[1][..], "outliers of f32"),
        (Format::W8 { group: 64 }, &[][..], "does not exist"),
        (Format::W4 { group: 0 }, &[][..], "does not exist"),
    ] {
        refused(expected, || new(format, columns));
    }
}

#[test]
fn outputs_bias_and_scratch_have_room_for_whole_strips() {
    let on = |format: &str, outputs: usize, stride: usize, bias: usize, inputs: usize, scratch: usize| {
        let matrix = Matrix::zeroed(Format::parse(format).unwrap(), 17, 4).unwrap();
        let (mut y, x, bias) = (vec![0.0; 96], vec![0.0; 2 * inputs], vec![0.0; bias]);
        let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
        let (mut scratch, x) = (vec![0; scratch], rows(&x, inputs));
        let y = &mut RowsMut::new(&mut y[..outputs], 2, 17, stride);
        on_one_thread(|exec| linear(exec, &matrix, x, y, epilogue, Variant::Blocked, &mut scratch));
    };
    on("f32", 64, 32, 32, 4, 0);
    on("bf16", 64, 32, 32, 4, 4);
    refused("outputs need 32 values a row", || on("f32", 63, 32, 32, 4, 0));
    refused("outputs need 32 values a row", || on("f32", 49, 32, 32, 4, 0));
    refused("stride 31 holds 32 outputs", || on("f32", 64, 31, 32, 4, 0));
    refused("a bias of 32 values", || on("f32", 64, 32, 31, 4, 0));
    refused("5 inputs per row for 4", || on("f32", 64, 32, 32, 5, 0));
    refused("scratch of 3 words", || on("bf16", 64, 32, 32, 4, 3));
}

#[test]
fn a_group_has_layers_of_one_shape_and_a_row_for_each_choice() {
    let w8 = Format::parse("w8").unwrap();
    let (matrix, other) = (Matrix::zeroed(w8, 16, 128).unwrap(), Matrix::zeroed(w8, 16, 256).unwrap());
    let floats = Matrix::zeroed(Format::F32, 16, 128).unwrap();
    let apart = Matrix::with_outliers(w8, 16, 128, vec![3]).unwrap();
    let on = |layers: &[(&Matrix, usize)], chosen: &[u32], short: usize| {
        let layers: Vec<LayerRows<'_>> =
            layers.iter().map(|&(matrix, rows)| LayerRows { matrix, bias: None, rows }).collect();
        let choices: Vec<Choice> = chosen.iter().map(|&row| Choice { expert: 0, row, weight: 1.0 }).collect();
        let (x, mut y) = (vec![0.0; 2 * 128], vec![0.0; 3 * 16]);
        let mut scratch = vec![0; grouped_scratch_words(matrix.shape(), 3) - short];
        let (x, mut y) = (rows(&x, 128), rows_mut(&mut y, 16));
        let function = ActivationFunction::None;
        on_one_thread(|exec| {
            linear_grouped(exec, &layers, x, Some(&choices), &mut y, function, &mut scratch);
        });
    };
    on(&[(&matrix, 2), (&matrix, 1)], &[0, 1, 1], 0);
    refused("shapes of layers", || on(&[(&matrix, 2), (&other, 1)], &[0, 1, 1], 0));
    refused("integers without outliers, not f32", || on(&[(&floats, 3)], &[0, 1, 1], 0));
    refused("integers without outliers, not w8", || on(&[(&apart, 3)], &[0, 1, 1], 0));
    refused("a layer without rows", || on(&[(&matrix, 3), (&matrix, 0)], &[0, 1, 1], 0));
    refused("rows", || on(&[(&matrix, 2)], &[0, 1, 1], 0));
    refused("choices", || on(&[(&matrix, 3)], &[0, 1], 0));
    refused("rows below 2", || on(&[(&matrix, 3)], &[0, 1, 2], 0));
    refused("words for 3 rows", || on(&[(&matrix, 3)], &[0, 1, 1], 1));
    refused("33 layers", || on(&[(&matrix, 1); 33], &[0; 33], 0));
    let choices = [Choice { expert: 0, row: 2, weight: 1.0 }];
    let (y, mut out) = (vec![0.0; 4], vec![0.0; 8]);
    on_one_thread(|exec| {
        refused("rows below 2", || add_weighted(exec, &choices, rows(&y, 4), &mut rows_mut(&mut out, 4)));
    });
}

#[test]
fn operations_on_rows_take_rows_of_one_shape() {
    let (three, four, six) = (vec![0.0; 3], vec![0.0; 4], vec![0.0; 6]);
    let (mut y, mut z) = (vec![0.0; 6], vec![0.0; 4]);
    let mut table = RopeTable::new(vec![1.0]);
    table.reserve(1).unwrap();
    table.compute(1);
    let matrix = Matrix::zeroed(Format::F32, 2, 3).unwrap();
    on_one_thread(|exec| {
        refused("same shape", || add(exec, &mut rows_mut(&mut y, 3), rows(&six, 2), 1.0));
        refused("same shape", || rms_norm(exec, rows(&six, 3), &four, 1e-5, &mut rows_mut(&mut y, 3)));
        refused("same shape", || rms_norm(exec, rows(&six, 3), &three, 1e-5, &mut rows_mut(&mut z, 2)));
        refused("same width", || {
            layer_norm(exec, rows(&six, 3), &three, &four, 1e-5, &mut rows_mut(&mut y, 3));
        });
        refused("same shape", || {
            layer_norm(exec, rows(&six, 3), &three, &three, 1e-5, &mut rows_mut(&mut z, 2));
        });
        refused("same width", || {
            layer_norm_in_place(exec, &mut rows_mut(&mut y, 3), &four, &three, 1e-5);
        });
        refused("2 heads of 3 at 1 in 6", || {
            rms_norm_heads(exec, &mut rows_mut(&mut y, 6), 1, 2, &three, 1e-5);
        });
        refused("2 heads of 2 at 3", || rope(exec, &table, &[0], &mut rows_mut(&mut y, 6), 3, 2));
        refused("3 heads of 2 at 0", || rope(exec, &table, &[0, 0], &mut rows_mut(&mut y, 6), 0, 3));
        refused("gate and up of 2 values, got 6", || {
            gate(
                exec,
                Gating::Function(ActivationFunction::Silu),
                rows(&six, 6),
                &mut rows_mut(&mut z[..2], 2),
            );
        });
        refused("a row for every id", || embedding(exec, &matrix, &[0], &mut rows_mut(&mut y, 3)));
        refused("row 2 of 2", || embedding(exec, &matrix, &[0, 2], &mut rows_mut(&mut y, 3)));
        refused("one value a row", || log_sum_exp(exec, rows(&six, 3), &mut [0.0]));
        refused("one summary a row", || summaries(exec, rows(&six, 3), &mut [LogitSummary::default()]));
    });
}

/// Attention of so many heads over three keys that are zero.
fn attend_with(heads: usize, bias: AttentionBias<'_>) {
    let shape = KvShape { format: KvFormat::F32, kv_heads: 2, head_dim: 8 };
    let mut pages = KvPages::new(&PageShape::from(&[shape][..]), 1);
    let table = [pages.grow().unwrap()];
    let mask = AttentionMask::Bidirectional(3);
    let segment = Segment { pages: &table, start: 0, first_row: 0, rows: 3, attention: mask };
    let (window, softcap, bias, sinks) = (None, None, Some(bias), None);
    let shape = AttentionShape { heads, scale: 1.0, window, softcap, bias, sinks };
    let width = heads * 8;
    let (q, mut out) = (vec![0.0; 3 * width], vec![f32::NAN; 3 * width]);
    on_one_thread(|exec| {
        let mut to = rows_mut(&mut out, width);
        attention(exec, shape, &pages, 0, &[segment], rows(&q, width), &mut to, &mut []);
    });
    assert!(out.iter().all(|&x| x == 0.0));
}

#[test]
fn biases_are_those_of_all_heads_and_keys() {
    let run = |heads: usize, context: usize| {
        let bias = DistanceBias::new(heads, context, |_, _| 1.0).unwrap();
        attend_with(4, AttentionBias::ByDistance(&bias));
    };
    run(4, 3);
    refused("biases of 2 heads for 4", || run(2, 3));
    refused("3 keys, but biases of 2", || run(4, 2));
}

#[test]
fn biases_of_rows_are_those_of_all_heads_rows_and_keys() {
    let run = |width: usize, biased_rows: usize| {
        attend_with(2, AttentionBias::PerRow(rows(&vec![1.0; biased_rows * width], width)));
    };
    run(32, 3);
    refused("biases of 2 heads in 33", || run(33, 3));
    refused("30 biases in a row, not 32", || run(30, 3));
    refused("biases of 2 rows for 3", || run(32, 2));
}

#[test]
fn relative_biases_are_those_of_whole_sequences() {
    let (table, buckets) = ([0], DistanceTable::new(1, 4, |_, distance| (distance + 3) as u32).unwrap());
    let run = |segment: (usize, usize, usize), widths: [usize; 2], out_width: usize| {
        let (start, count, keys) = segment;
        let attention = AttentionMask::Bidirectional(keys);
        let segment = Segment { pages: &table, start, first_row: 0, rows: count, attention };
        let (queries, keys) = (vec![1.0; count * widths[0]], vec![1.0; count * widths[1]]);
        let mut out = vec![0.0; count * out_width];
        let from = [rows(&queries, widths[0]), rows(&keys, widths[1])];
        on_one_thread(|exec| {
            relative_bias(exec, &buckets, &[segment], from, 0.5, &mut rows_mut(&mut out, out_width));
        });
        assert!(out.iter().all(|&x| x == 1.0));
    };
    run((0, 4, 4), [7, 7], 4);
    refused("buckets of queries and keys: 7 and 8", || run((0, 4, 4), [7, 8], 4));
    refused("bucket Some(6) of 6", || run((0, 4, 4), [6, 6], 4));
    refused("5 rows, but buckets of 4", || run((0, 5, 5), [7, 7], 5));
    refused("4 keys, but room for 3", || run((0, 4, 4), [7, 7], 3));
    refused("5 keys of 4 rows from 0 on", || run((0, 4, 5), [7, 7], 4));
    refused("4 keys of 2 rows from 1 on", || run((1, 2, 4), [7, 7], 4));
}

#[test]
fn relative_biases_are_those_of_rows_that_follow_each_other() {
    let (table, buckets) = ([0], DistanceTable::new(1, 4, |_, distance| (distance + 3) as u32).unwrap());
    let run = |first_row| {
        let attention = AttentionMask::Bidirectional(1);
        let segments = [0, first_row].map(|first_row| Segment {
            pages: &table,
            start: 0,
            first_row,
            rows: 1,
            attention,
        });
        let (ones, mut out) = (vec![1.0; 3 * 7], vec![0.0; 3]);
        on_one_thread(|exec| {
            relative_bias(exec, &buckets, &segments, [rows(&ones, 7); 2], 1.0, &mut rows_mut(&mut out, 1));
        });
        assert_eq!(out, [2.0, 2.0, 0.0]);
    };
    run(1);
    refused("row 2 after row 1", || run(2));
}

#[test]
fn convolutions_of_whole_sequences_have_all_rows_and_taps() {
    let run = |start, keys, after| {
        let shape = KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 };
        let mut pages = KvPages::new(&PageShape::from(&[shape][..]), 1);
        let table = [pages.grow().unwrap()];
        let attention = AttentionMask::Bidirectional(keys);
        let segment = [Segment { pages: &table, start, first_row: 0, rows: 2, attention }];
        let (weights, from, mut out) = (vec![1.0; 3], vec![1.0; 6], vec![0.0; 2]);
        let taps = Taps { weights: &weights, bias: None, channels: 1 };
        on_one_thread(|exec| {
            let mut to = rows_mut(&mut out, 1);
            pages.of_batch(&segment).convolve_whole(exec, after, taps, rows(&from, 3), &mut to);
        });
        assert_eq!(out, [2.0, 2.0]);
    };
    run(0, 2, 1);
    run(0, 1, 1);
    refused("3 of 3 taps for later rows", || run(0, 2, 3));
    refused("2 rows from 1 on, 3 keys", || run(1, 3, 1));
}

#[test]
fn attention_takes_heads_and_windows_that_exist() {
    let with_sinks = |heads: usize, kv: (usize, usize), window: Option<usize>, attention_mask, sinks| {
        let (kv_heads, head_dim) = kv;
        let mut pages =
            KvPages::new(&PageShape::from(&[KvShape { format: KvFormat::F32, kv_heads, head_dim }][..]), 1);
        let table = [pages.grow().unwrap()];
        let segment = Segment { pages: &table, start: 0, first_row: 0, rows: 1, attention: attention_mask };
        let q = vec![0.0; heads * head_dim];
        let shape = AttentionShape { heads, scale: 1.0, window, softcap: None, bias: None, sinks };
        let mut out = vec![f32::NAN; q.len()];
        on_one_thread(|exec| {
            let mut to = rows_mut(&mut out, heads * head_dim);
            attention(exec, shape, &pages, 0, &[segment], rows(&q, heads * head_dim), &mut to, &mut []);
        });
        assert!(out.iter().all(|&x| x == 0.0));
    };
    let run = |heads, kv, window, mask: AttentionMask| with_sinks(heads, kv, window, mask, None);
    run(4, (2, 256), Some(1), AttentionMask::Causal);
    run(4, (2, 8), None, AttentionMask::Bidirectional(1));
    run(2, (2, 8), Some(4), AttentionMask::Bidirectional(1));
    refused("a head of 513 values", || run(1, (1, 513), None, AttentionMask::Causal));
    refused("3 heads of 8", || run(3, (2, 8), None, AttentionMask::Causal));
    refused("a row sees itself", || run(2, (2, 8), Some(0), AttentionMask::Causal));
    with_sinks(4, (2, 8), None, AttentionMask::Causal, Some(&[0.0; 4]));
    refused("a sink for each of 4 heads", || {
        with_sinks(4, (2, 8), None, AttentionMask::Causal, Some(&[0.0; 2]));
    });
}
