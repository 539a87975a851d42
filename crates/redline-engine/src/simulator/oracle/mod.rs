//! The expected answers, written naively from the published algorithms.
//!
//! Nothing here calls the samplers, schedules, masks or confidences of the engine. The oracle shares two things with the code
//! that it checks: the stand-in for the model ([`super::machine::StandIn`]), and the definition of the random numbers, which is
//! written a second time below. It computes each row in f64 from all tokens that the row sees, without a cache. Where rounding
//! alone could decide between two answers, it leaves the question open ([`Verdict::Open`]).

pub(super) mod cached;
pub(super) mod diffusion;
pub(super) mod likelihood;
pub(super) mod published;
pub(super) mod sampling;

/// Relative difference of two weights or sums of weights below which rounding may decide.
const CLOSE: f64 = 5e-6;

/// The expected choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict<T> {
    /// Exactly this choice.
    Exactly(T),
    /// Rounding decides, so any choice is right.
    Open,
}

impl<T: PartialEq> Verdict<T> {
    /// Whether an answer is right.
    pub(super) fn admits(&self, answer: &T) -> bool {
        match self {
            Self::Exactly(expected) => expected == answer,
            Self::Open => true,
        }
    }
}

/// Whether rounding may decide which of two weights is larger.
fn close(a: f64, b: f64) -> bool {
    a != b && (a - b).abs() <= CLOSE * a.abs().max(b.abs())
}

/// The increment of SplitMix64 (Steele et al. 2014).
const G: u64 = 0x9e37_79b9_7f4a_7c15;

/// Its finaliser.
fn f(mut z: u64) -> u64 {
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        z ^= z >> shift;
        z = z.wrapping_mul(factor);
    }
    z ^ z >> 31
}

/// Output `number` of SplitMix64 from a seed, counted from 1.
fn splitmix(seed: u64, number: usize) -> u64 {
    f((0..number).fold(seed, |state, _| state.wrapping_add(G)))
}

/// The random number for a seed and a counter, in [0, 1): the upper 53 bits of `f(f(f(seed + G) xor counter) + G)`, as a fraction.
fn random(seed: u64, counter: u64) -> f64 {
    let upper = f(f(f(seed.wrapping_add(G)) ^ counter).wrapping_add(G)) >> 11;
    upper as f64 / 9_007_199_254_740_992.0
}

/// The id of the largest logit, the lowest among equals.
fn largest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &x) in logits.iter().enumerate() {
        if x > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// Ids with weights proportional to their probabilities at a temperature, the most probable first, equals by id; and whether
/// rounding may change the order.
fn by_weight(logits: &[f32], temperature: f64) -> (Vec<(u32, f64)>, bool) {
    let top = f64::from(logits[largest(logits) as usize]);
    let weigh = |(id, &x): (usize, &f32)| (id as u32, libm::exp((f64::from(x) - top) / temperature));
    let mut all: Vec<(u32, f64)> = logits.iter().enumerate().map(weigh).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let open = all.windows(2).any(|two| close(two[0].1, two[1].1));
    (all, open)
}

fn total(of: &[(u32, f64)]) -> f64 {
    of.iter().map(|(_, weight)| weight).sum()
}

/// The first id whose cumulative weight exceeds the share `u` of the total; and whether rounding may decide.
fn drawn(of: &[(u32, f64)], u: f64) -> (u32, bool) {
    let target = u * total(of);
    let (mut sum, mut token, mut open) = (0.0, None, false);
    for &(id, weight) in of {
        sum += weight;
        open |= close(sum, target);
        if sum > target && token.is_none() {
            token = Some(id);
        }
    }
    (token.unwrap_or(of[of.len() - 1].0), open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_splitmix() {
        // f(0) = 0, so a counter that cancels f(seed + g) leaves the generator's first output for the state 0.
        let first = 0xe220_a839_7b1d_cdaf_u64;
        assert_eq!(random(0, first), (first >> 11) as f64 / (1u64 << 53) as f64);
        assert_eq!(splitmix(0, 1), first);
        assert_eq!(
            [1, 2].map(|n| splitmix(1_234_567, n)),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert_eq!(largest(&[1.0, 3.0, 3.0]), 1);
    }
}
