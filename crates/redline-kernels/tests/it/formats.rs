//! Formats of weights and the variants of their layers: names, groups, limits, rounding.

use redline_kernels::format::bf16;
use redline_kernels::op::linear::Variant;
use redline_kernels::{Format, Matrix, Simd};

const W8: Format = Format::W8 { group: 128 };
const W4: Format = Format::W4 { group: 64 };

#[test]
fn rounding_is_to_nearest_even_and_flushes_tiny_values() {
    let one = 1.0f32.to_bits();
    assert_eq!(bf16::round(f32::from_bits(one + 0x7fff)), 0x3f80);
    assert_eq!(bf16::round(f32::from_bits(one + 0x8000)), 0x3f80, "a tie goes to even");
    assert_eq!(bf16::round(f32::from_bits(one + 0x8001)), 0x3f81);
    assert_eq!(bf16::round(f32::from_bits(one + 0x18000)), 0x3f82, "a tie goes to even");
    assert_eq!(bf16::round(2f32.powi(-55)), (127 - 55) << 7);
    assert_eq!(bf16::round(-(2f32.powi(-56))), 0);
    assert_eq!(bf16::round(f32::MAX), 0x7f80, "rounds up to infinity");
    assert_eq!(bf16::round(f32::NEG_INFINITY), 0xff80);
    assert_eq!(bf16::round(f32::from_bits(0xff80_0001)), 0xffc0);
    for half in 0..=u16::MAX {
        let value = bf16::widen(half);
        if value.is_nan() {
            assert!(bf16::widen(bf16::round(value)).is_nan());
        } else if value.abs() >= 2f32.powi(-55) {
            assert_eq!(bf16::round(value), half);
        } else {
            assert_eq!(bf16::round(value), 0);
        }
    }
}

#[test]
fn a_group_that_is_not_the_default_is_shown() {
    let shown: Vec<String> = Format::ALL.iter().map(Format::to_string).collect();
    assert_eq!(shown, ["f32", "bf16", "w8", "w4"]);
    let with = |format: Format, group| format.with_group(group).unwrap().to_string();
    assert_eq!((with(W8, 0), with(W8, 128)), ("w8g0".into(), "w8".into()));
    assert_eq!((with(W4, 32), with(W4, 64)), ("w4g32".into(), "w4".into()));
}

#[test]
fn the_largest_weight_takes_the_largest_integer_and_scale() {
    assert_eq!(Format::F32.largest(), f32::MAX);
    assert_eq!(Format::Bf16.largest().to_bits(), f32::MAX.to_bits() & 0xffff_0000);
    assert_eq!(W8.largest(), 127.0 * 65504.0);
    for &group in W4.groups() {
        assert_eq!(W4.with_group(group).unwrap().largest(), 7.0 * 65504.0);
    }
}

#[test]
fn candidates_depend_on_rows_threads_and_size() {
    // The scalar tier has no tile registers.
    let simd = Simd::variants()[0];
    let names = |format: &str, rows: usize, threads: usize| -> Vec<&'static str> {
        let matrix = Matrix::zeroed(Format::parse(format).unwrap(), 16, 256).unwrap();
        let candidates = Variant::candidates(simd, &matrix, rows, threads);
        candidates.into_iter().map(Variant::name).collect()
    };
    assert_eq!(names("w8", 8, 1), ["dot"]);
    assert_eq!(names("w8", 9, 1), ["dot", "dot-half"]);
    assert_eq!(names("w8", 8, 2), ["dot", "dot-alone"]);
    assert_eq!(names("w8", 9, 2), ["dot", "dot-half", "dot-alone"]);
    assert_eq!(names("f32", 6, 1), ["blocked"]);
    assert_eq!(names("f32", 7, 1), ["blocked", "deep"]);
    assert_eq!(names("f32", 6, 2), ["blocked", "blocked-alone"]);
    // 16 KiB of weights for each of 64 rows is the most for one thread.
    assert_eq!(names("f32", 64, 2), ["blocked", "deep", "blocked-alone"]);
    assert_eq!(names("f32", 65, 2), ["blocked", "deep"]);
}

#[test]
fn names_of_variants_lead_back() {
    for &variant in Variant::ALL {
        assert_eq!(Variant::parse(variant.name()), Some(variant));
    }
    assert_eq!(Variant::parse("fastest"), None);
}
