//! Exact conversions between `f32` and the two 16-bit float formats, bit by bit (IEEE 754 binary16,
//! bfloat16).
//!
//! Integer arithmetic wherever a subnormal `f32` could appear, so that results do not depend on the flush-to-zero
//! mode of the calling thread.

const F16_EXPONENT: u32 = 0x7c00 << 13;
/// Difference of the exponent biases of f32 (127) and f16 (15), shifted to the exponent bits of an f32.
const REBIAS: u32 = 112 << 23;

/// Converts bfloat16 to `f32`, exactly.
#[inline]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Rounds to bfloat16, ties to even. NaN becomes the quiet NaN `0x7fc0` with the sign kept.
#[inline]
pub const fn f32_to_bf16_rne(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return ((bits >> 16) & 0x8000) as u16 | 0x7fc0;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// Converts binary16 to `f32`, exactly, including subnormals. NaN keeps its payload.
#[inline]
pub const fn f16_to_f32(bits: u16) -> f32 {
    let sign = ((bits & 0x8000) as u32) << 16;
    let shifted = ((bits & 0x7fff) as u32) << 13;
    let exponent = shifted & F16_EXPONENT;
    let magnitude = if exponent == F16_EXPONENT {
        shifted + 2 * REBIAS
    } else if exponent == 0 {
        // 2^-14 x (1 + m/1024) - 2^-14 = m x 2^-24, a normal f32 (or zero)
        let one = REBIAS + (1 << 23);
        (f32::from_bits(shifted + one) - f32::from_bits(one)).to_bits()
    } else {
        shifted + REBIAS
    };
    f32::from_bits(sign | magnitude)
}

/// Rounds to binary16, ties to even. 65520 and above become infinity; NaN becomes the quiet NaN `0x7e00` with the
/// sign kept.
#[inline]
pub const fn f32_to_f16_rne(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        return sign | subnormal_f16(magnitude);
    }
    let rebased = magnitude - REBIAS;
    sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13) as u16
}

/// Rounds a magnitude under 2^-14 to units of 2^-24.
const fn subnormal_f16(magnitude: u32) -> u16 {
    let exponent = magnitude >> 23;
    if exponent < 102 {
        return 0;
    }
    let significand = (magnitude & 0x7f_ffff) | 0x80_0000;
    let shift = 126 - exponent;
    let quotient = significand >> shift;
    let rest = significand & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    let up = rest > half || (rest == half && quotient & 1 == 1);
    (quotient + up as u32) as u16
}
