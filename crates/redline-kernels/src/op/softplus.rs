//! `softplus(x) = log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))`, with exp of [`super::exp`].

use redline_simd::{Isa, LANES};

use super::exp::exp;

/// Softplus of the first `n` lanes; the others are not used.
#[inline(always)]
pub(super) fn softplus<S: Isa>(s: S, x: S::F, n: usize) -> S::F {
    let positive = s.max(x, s.splat(0.0));
    let mut logs = [0.0; LANES];
    // SAFETY: the array holds all lanes.
    unsafe { s.store_partial(logs.as_mut_ptr(), exp(s, s.neg(s.max(x, s.neg(x)))), LANES) };
    for log in &mut logs[..n] {
        *log = libm::log1pf(*log);
    }
    // SAFETY: as above.
    s.add(positive, unsafe { s.load_partial(logs.as_ptr(), LANES) })
}
