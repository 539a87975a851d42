//! Log-sum-exp, summaries and the largest value of rows as wide as a vocabulary: their documented order to the bit, and their accuracy.

use redline_kernels::Rows;
use redline_kernels::op::argmax::argmax;
use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::op::summary::{LogitSummary, summaries};
use redline_reference::number::{exp, lanes};
use redline_reference::vocabulary::{self as reference, CHUNK};

use crate::values::{Random, everywhere};

/// Chunk sizes that the operations do not use.
const OTHER_CHUNKS: [usize; 6] = [16, 2048, 4080, 4112, 8192, usize::MAX];
/// Around multiples of a chunk and of sixteen lanes.
const WIDTHS: [usize; 14] = [1, 2, 15, 16, 17, 257, 4095, 4096, 4097, 8191, 8192, 8195, 12_293, 20_017];

fn largest(row: &[f32]) -> f32 {
    row.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The two sums of a summary in the documented order, with the given chunk size.
fn ordered_sums(row: &[f32], chunk: usize) -> [f64; 2] {
    let max = largest(row);
    let behind = |x: &f32| (x - max).max(-200.0);
    let (mut sum, mut weighted) = (0f64, 0f64);
    for ids in row.chunks(chunk) {
        sum += f64::from(lanes(ids.iter().map(|x| exp(behind(x))), |sum, e| sum + e));
        weighted += f64::from(lanes(ids.iter().map(behind), |sum, d| d.mul_add(exp(d), sum)));
    }
    [sum, weighted]
}

/// Values with a few large, many small and some negligible terms.
fn logits(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    let value = |i: usize, x: f32| match i % 7 {
        0 => x * 120.0 - 100.0,
        1 => x * 30.0,
        _ => x * 2.0 + 25.0,
    };
    (0..count).map(|i| value(i, random.value())).collect()
}

/// Records which other chunk sizes give other bits on some row; otherwise the test would not determine the size.
#[derive(Default)]
struct Shown([bool; OTHER_CHUNKS.len()]);

impl Shown {
    fn see(&mut self, differs: impl Fn(usize) -> bool) {
        for (shown, chunk) in self.0.iter_mut().zip(OTHER_CHUNKS) {
            *shown |= differs(chunk);
        }
    }

    fn check(&self) {
        let hidden: Vec<_> = OTHER_CHUNKS.iter().zip(self.0).filter(|(_, shown)| !shown).collect();
        assert!(hidden.is_empty(), "these chunk sizes give the same bits: {hidden:?}");
    }
}

/// Three rows of logits, one of which is minus infinity and one large.
fn three_rows(width: usize) -> Vec<f32> {
    let mut x = logits(width as u64, 3 * width);
    x[width / 2] = f32::NEG_INFINITY;
    x[width - 1] = 28.0;
    x
}

#[test]
fn log_sum_exp_follows_its_order_everywhere() {
    let mut shown = Shown::default();
    for width in WIDTHS {
        let x = three_rows(width);
        let ordered = |chunk: usize| -> Vec<u64> {
            x.chunks(width).map(|row| reference::log_sum_exp(row, chunk).to_bits()).collect()
        };
        let want = ordered(CHUNK);
        everywhere(|exec, name| {
            let mut out = [0f64; 3];
            log_sum_exp(exec, Rows::new(&x, 3, width, width), &mut out);
            assert_eq!(out.map(f64::to_bits).to_vec(), want, "width {width} on {name}");
        });
        shown.see(|chunk| ordered(chunk) != want);
    }
    shown.check();
}

#[test]
fn summaries_follow_their_order_everywhere() {
    let mut shown = Shown::default();
    for width in WIDTHS {
        let x = three_rows(width);
        let ordered = |chunk: usize| -> Vec<[u64; 2]> {
            x.chunks(width).map(|row| ordered_sums(row, chunk).map(f64::to_bits)).collect()
        };
        let want = ordered(CHUNK);
        everywhere(|exec, name| {
            let mut out = [LogitSummary::default(); 3];
            summaries(exec, Rows::new(&x, 3, width, width), &mut out);
            let sums = out.map(|summary| [summary.sum, summary.weighted].map(f64::to_bits));
            assert_eq!(sums.to_vec(), want, "width {width} on {name}");
        });
        shown.see(|chunk| ordered(chunk) != want);
    }
    shown.check();
}

#[test]
fn log_sum_exp_is_accurate_alike_and_shows_nan() {
    for width in [1usize, 15, 16, 4095, 4096, 4097, 9000] {
        let mut x: Vec<f32> = Random(width as u64).values(3 * width).iter().map(|v| v * 30.0).collect();
        let truth = |row: &[f32]| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            f64::from(max) + libm::log(row.iter().map(|&v| libm::exp(f64::from(v) - f64::from(max))).sum())
        };
        let mut first: Option<[u64; 3]> = None;
        everywhere(|exec, name| {
            let mut out = [0f64; 3];
            log_sum_exp(exec, Rows::new(&x, 3, width, width), &mut out);
            for (got, row) in out.iter().zip(x.chunks(width)) {
                assert!((got - truth(row)).abs() < 1e-6, "width {width} on {name}");
            }
            assert_eq!(*first.get_or_insert(out.map(f64::to_bits)), out.map(f64::to_bits), "{name}");
        });
        x[width / 2] = f32::NAN;
        everywhere(|exec, name| {
            let mut out = [0f64; 3];
            log_sum_exp(exec, Rows::new(&x, 3, width, width), &mut out);
            assert!(out[0].is_nan() && out[1].is_finite(), "width {width} on {name}");
        });
    }
}

#[test]
fn a_summary_tells_the_largest_two_and_how_sure_the_choice_is() {
    const NONE: LogitSummary = LogitSummary { top: 0, max: 0.0, second: 0.0, sum: 0.0, weighted: 0.0 };
    for width in [1usize, 2, 15, 16, 17, 257, 4095, 4096, 4097, 9000] {
        let mut x: Vec<f32> = Random(width as u64).values(4 * width).iter().map(|v| v * 30.0).collect();
        // A tie for the largest value, in one lane and in two.
        let (a, b) = (width / 3, (width / 3 + 16).min(width - 1));
        (x[a], x[b]) = (40.0, 40.0);
        x[width + width / 2] = 41.0;
        x[2 * width] = f32::NEG_INFINITY;
        let mut first: Option<String> = None;
        everywhere(|exec, name| {
            let mut out = [NONE; 4];
            summaries(exec, Rows::new(&x, 4, width, width), &mut out);
            for (got, row) in out.iter().zip(x.chunks(width)) {
                let mut order: Vec<usize> = (0..width).collect();
                order.sort_by(|&i, &j| row[j].total_cmp(&row[i]).then(i.cmp(&j)));
                let second = order.get(1).map_or(f32::NEG_INFINITY, |&i| row[i]);
                assert_eq!(
                    (got.top, got.max, got.second),
                    (order[0] as u32, row[order[0]], second),
                    "{name}"
                );
                if !got.max.is_finite() {
                    continue;
                }
                let e = |x: f32| libm::exp(f64::from(x) - f64::from(got.max));
                let sum: f64 = row.iter().map(|&x| e(x)).sum();
                let p = |x: f32| e(x) / sum;
                let entropy: f64 = row.iter().filter(|&&x| e(x) > 0.0).map(|&x| p(x) * libm::log(p(x))).sum();
                let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
                assert!(got.is_finite() && close(got.probability(), 1.0 / sum), "width {width} on {name}");
                assert!(close(got.margin(), p(got.max) - p(second)), "width {width} on {name}");
                assert!(
                    close(got.negative_entropy(), entropy),
                    "width {width} on {name}: {got:?}, {entropy}"
                );
            }
            // Compared as text, because the sum of a row of negative infinity is NaN.
            let shown = format!("{out:?}");
            assert_eq!(*first.get_or_insert(shown.clone()), shown, "width {width} on {name}");
        });
        x[width / 2] = f32::NAN;
        everywhere(|exec, name| {
            let mut out = [NONE; 4];
            summaries(exec, Rows::new(&x, 4, width, width), &mut out);
            assert!(!out[0].is_finite() && out[1].is_finite(), "width {width} on {name}");
        });
    }
}

#[test]
fn the_lowest_index_among_equals_and_none_of_nan() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
    assert_eq!(argmax(&[f32::NEG_INFINITY, -1.0]), Some(1));
    assert_eq!(argmax(&[-0.0, 0.0]), Some(0));
    assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), None);
    assert_eq!(argmax(&[f32::NEG_INFINITY; 2]), None);
    assert_eq!(argmax(&[0.0, f32::INFINITY]), None);
    assert_eq!(argmax(&[]), None);
    for n in [1, 15, 17, 255, 256, 257, 1000] {
        for at in [0, n / 2, n - 1] {
            let mut row: Vec<f32> = (0..n).map(|i| -((i * 7 % 13) as f32)).collect();
            row[at] = 5.0;
            row[n - 1] = 5.0;
            assert_eq!(argmax(&row), Some(at as u32), "{n} values");
            row[n / 3] = f32::NAN;
            assert_eq!(argmax(&row), None);
        }
    }
}
