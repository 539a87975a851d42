//! The 16-bit conversions for all 65536 values and around every tie, checked against arithmetic in f64.

use redline_weights::{bf16_to_f32, f16_to_f32, f32_to_bf16_rne, f32_to_f16_rne};

#[test]
fn f16_widens_exactly() {
    for bits in 0..=u16::MAX {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        let exact = if bits >> 15 == 1 { -magnitude } else { magnitude };
        let widened = f16_to_f32(bits);
        assert_eq!(widened.is_nan(), exact.is_nan(), "{bits:#06x}");
        assert!(widened.is_nan() || f64::from(widened) == exact, "{bits:#06x}: {widened} instead of {exact}");
        assert_eq!(widened.is_sign_negative(), bits >> 15 == 1, "{bits:#06x}");
    }
}

#[test]
fn f16_comes_back_from_f32() {
    for bits in 0..=u16::MAX {
        let back = f32_to_f16_rne(f16_to_f32(bits));
        let nan = bits & 0x7fff > 0x7c00;
        assert_eq!(back, if nan { bits & 0x8000 | 0x7e00 } else { bits }, "{bits:#06x}");
    }
}

#[test]
fn bf16_comes_back_from_f32() {
    for bits in 0..=u16::MAX {
        let widened = bf16_to_f32(bits);
        assert_eq!(widened.to_bits(), u32::from(bits) << 16);
        let nan = bits & 0x7fff > 0x7f80;
        let expect = if nan { bits & 0x8000 | 0x7fc0 } else { bits };
        assert_eq!(f32_to_bf16_rne(widened), expect, "{bits:#06x}");
    }
}

/// Between neighbours, the midpoint rounds to the even one; the next floats below and above it round to the nearer
/// one.
fn rounds_to_nearest_even(infinity: u16, widen: fn(u16) -> f32, narrow: fn(f32) -> u16) {
    for low in 0..infinity {
        let high = low + 1;
        // The step from the largest finite value to infinity is as wide as the one before.
        let step = if high == infinity { widen(low) - widen(low - 1) } else { widen(high) - widen(low) };
        let middle = widen(low) + step / 2.0;
        let even = if low % 2 == 0 { low } else { high };
        for (value, expect) in [(middle.next_down(), low), (middle, even), (middle.next_up(), high)] {
            assert_eq!(narrow(value), expect, "{value} between {low:#06x} and {high:#06x}");
            assert_eq!(narrow(-value), expect | 0x8000, "-{value}");
        }
    }
}

#[test]
fn f32_to_f16_rounds_to_nearest_even() {
    rounds_to_nearest_even(0x7c00, f16_to_f32, f32_to_f16_rne);
}

#[test]
fn f32_to_bf16_rounds_to_nearest_even() {
    rounds_to_nearest_even(0x7f80, bf16_to_f32, f32_to_bf16_rne);
}

#[test]
fn the_ends_of_the_range() {
    for (value, bf16, f16) in [
        (0.0, 0x0000, 0x0000),
        (-0.0, 0x8000, 0x8000),
        (f32::from_bits(1), 0x0000, 0x0000),
        (f32::MAX, 0x7f80, 0x7c00),
        (65519.996, 0x4780, 0x7bff),
        (65520.0, 0x4780, 0x7c00),
        (f32::INFINITY, 0x7f80, 0x7c00),
        (f32::NEG_INFINITY, 0xff80, 0xfc00),
        (f32::from_bits(0x7f80_0001), 0x7fc0, 0x7e00),
        (f32::from_bits(0xffff_ffff), 0xffc0, 0xfe00),
    ] {
        assert_eq!(f32_to_bf16_rne(value), bf16, "{value} in bf16");
        assert_eq!(f32_to_f16_rne(value), f16, "{value} in f16");
    }
}
