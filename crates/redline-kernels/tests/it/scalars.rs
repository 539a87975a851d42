//! The largest value of a row, and the exponential function.

use redline_kernels::Simd;
use redline_kernels::op::argmax::argmax;
use redline_kernels::op::exp::exp_in_place;

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

#[test]
fn exp_is_accurate_and_alike_on_every_variant() {
    let mut x = -87.5f32;
    let mut inputs = vec![0.0, -0.0, 1.0, -87.0, -87.1, 88.0, 100.0, f32::NEG_INFINITY, f32::INFINITY, 1e-40];
    while x < 88.0 {
        inputs.push(x);
        x += 0.0137;
    }
    let mut reference: Option<Vec<u32>> = None;
    for simd in Simd::variants() {
        let mut values = inputs.clone();
        exp_in_place(simd, &mut values);
        assert_eq!(values[0], 1.0);
        assert_eq!(values[1], 1.0);
        assert_eq!(values[7].to_bits(), 0, "exp(-inf) is +0");
        for (&x, &y) in inputs.iter().zip(&values) {
            if (-87.0..=88.0).contains(&x) {
                let truth = libm::exp(f64::from(x));
                let ulp = f64::from(f32::from_bits((truth as f32).to_bits() + 1)) - f64::from(truth as f32);
                assert!((f64::from(y) - truth).abs() <= 2.0 * ulp, "exp({x}) = {y}, not {truth}");
            }
        }
        let bits: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
        assert_eq!(reference.get_or_insert_with(|| bits.clone()), &bits, "{}", simd.name());
        let mut nan = [f32::NAN];
        exp_in_place(simd, &mut nan);
        assert!(nan[0].is_nan());
    }
}
