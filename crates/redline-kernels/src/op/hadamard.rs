//! The normalised Walsh-Hadamard transform: a rotation that spreads a value over all dimensions of a head, and is its own
//! inverse. Outliers of single dimensions then do not determine the scale of a group.
//!
//! Order: for h = 1, 2, 4, .., n / 2, every pair `(a, b)` of values h apart becomes `(a + b, a - b)`; then all values are multiplied
//! by `1 / sqrt(n)`, which is rounded first.

use redline_simd::{Isa, LANES};

/// Maximum number of values of a head.
pub(crate) const MAX_VALUES: usize = 256;
/// Number of their vectors.
const VECTORS: usize = MAX_VALUES / LANES;

/// Transforms a head, whose length is a power of two.
#[inline(always)]
pub(crate) fn hadamard<S: Isa>(s: S, x: &mut [f32]) {
    let n = x.len();
    assert!(n.is_power_of_two() && n <= MAX_VALUES, "{n} values");
    let factor = s.splat(1.0 / (n as f32).sqrt());
    let mut vectors = [s.splat(0.0); VECTORS];
    let count = n.div_ceil(LANES);
    for (vector, chunk) in vectors.iter_mut().zip(x.chunks(LANES)) {
        // SAFETY: as many values as the chunk has.
        *vector = within(s, unsafe { s.load_partial(chunk.as_ptr(), chunk.len()) }, n);
    }
    let mut h = 1;
    while h < count {
        for first in (0..count).step_by(2 * h) {
            for i in first..first + h {
                let (a, b) = (vectors[i], vectors[i + h]);
                (vectors[i], vectors[i + h]) = (s.add(a, b), s.sub(a, b));
            }
        }
        h *= 2;
    }
    for (vector, chunk) in vectors.iter().zip(x.chunks_mut(LANES)) {
        // SAFETY: as many values as the chunk has.
        unsafe { s.store_partial(chunk.as_mut_ptr(), s.mul(*vector, factor), chunk.len()) };
    }
}

/// The pairs within sixteen values, of a head of `n`.
#[inline(always)]
fn within<S: Isa>(s: S, v: S::F, n: usize) -> S::F {
    let v = if n > 1 { pairs::<S, 1>(s, v) } else { v };
    let v = if n > 2 { pairs::<S, 2>(s, v) } else { v };
    let v = if n > 4 { pairs::<S, 4>(s, v) } else { v };
    if n > 8 { pairs::<S, 8>(s, v) } else { v }
}

/// The pairs of values `H` apart: a product with 1 or -1 is exact, so the sum or the difference is rounded once.
#[inline(always)]
fn pairs<S: Isa, const H: usize>(s: S, v: S::F) -> S::F {
    let signs: [f32; LANES] = std::array::from_fn(|i| if i & H == 0 { 1.0 } else { -1.0 });
    // SAFETY: the array holds sixteen values.
    let signs = unsafe { s.load(signs.as_ptr()) };
    s.fma(v, signs, s.swap_lanes::<H>(v))
}
