//! What is added to the logits of attention in every layer by how far keys are from their query.

use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::attention::{DistanceBias, DistanceTable};
use redline_kernels::{Format, Matrix};

use super::norm::NormSpec;
use super::tensor::{Role, TensorSpec};

/// What is added to logits, as an architecture describes it.
#[derive(Clone, Debug)]
pub enum DistanceSpec {
    /// A learned bias for each head and bucket of distances, `[LEARNED_BUCKETS, heads]`: distances below 8 have one each, then buckets up
    /// to 128 grow by a constant factor, for keys on each side (Raffel et al. 2020; MPNet).
    Learned {
        /// Name up to `.weight`.
        name: String,
        /// Number of query heads.
        heads: usize,
    },
    /// The distance times a factor of the head, `-2^(-8 (h + 1) / heads)` for a power of two (ALiBi, Press et al. 2021; Jina v2).
    Slopes {
        /// Number of query heads.
        heads: usize,
    },
    /// Products of queries and keys with relative position embeddings (DeBERTa).
    Relative(RelativeSpec),
}

/// Disentangled attention (He et al. 2021): with R the embedding of the distance's bucket, `(q (R Wk) + k (R Wq)) / sqrt(3 d)` is added to
/// the logit of a query and a key, where Wk and Wq, with their biases, are the projections of the layer.
#[derive(Clone, Debug)]
pub struct RelativeSpec {
    /// Name of the embeddings up to `.weight`: `[2 * buckets_per_side, hidden]`.
    pub name: String,
    /// Of the embeddings.
    pub norm: Option<NormSpec>,
    /// Width of the embeddings.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of buckets on each side.
    pub buckets_per_side: usize,
    /// The largest distance that the buckets cover, if distances above `buckets_per_side / 2` share buckets, which grow by a
    /// constant factor.
    pub max_distance: Option<usize>,
}

/// Number of buckets of [`DistanceSpec::Learned`].
pub const LEARNED_BUCKETS: usize = 32;

impl DistanceSpec {
    /// The tensors.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        match self {
            Self::Learned { name, heads } => {
                vec![TensorSpec::new(format!("{name}.weight"), [LEARNED_BUCKETS, *heads], Role::Bias)]
            }
            Self::Slopes { .. } => Vec::new(),
            Self::Relative(RelativeSpec { name, norm, hidden, buckets_per_side, .. }) => {
                let mut all = vec![TensorSpec::new(
                    format!("{name}.weight"),
                    [2 * buckets_per_side, *hidden],
                    Role::Bias,
                )];
                all.extend(norm.iter().flat_map(NormSpec::tensors));
                all
            }
        }
    }

    /// Relative position embeddings, if there are some.
    pub fn relative(&self) -> Option<&RelativeSpec> {
        match self {
            Self::Relative(relative) => Some(relative),
            Self::Learned { .. } | Self::Slopes { .. } => None,
        }
    }
}

impl RelativeSpec {
    /// What queries, or keys, of a head are multiplied with.
    pub(crate) fn matrix(&self, format: Format) -> MatrixShape {
        MatrixShape { format, rows: 2 * self.buckets_per_side, cols: self.hidden / self.heads, outliers: 0 }
    }

    /// The bucket of a key that comes `distance` tokens after its query, from 0 for those that come last.
    pub fn bucket(&self, distance: isize) -> usize {
        let (middle, far) = (self.buckets_per_side / 2, distance.unsigned_abs());
        let from_query = match self.max_distance {
            Some(max_distance) if far > middle => {
                let ratio =
                    libm::log(far as f64 / middle as f64) / libm::log(max_distance as f64 / middle as f64);
                middle + libm::ceil(ratio * (middle - 1) as f64) as usize
            }
            _ => far,
        };
        if distance > 0 {
            self.buckets_per_side.saturating_sub(from_query)
        } else {
            (self.buckets_per_side + from_query).min(2 * self.buckets_per_side - 1)
        }
    }
}

/// The bucket of a key that comes `distance` tokens after its query, of [`LEARNED_BUCKETS`].
pub fn learned_bucket(distance: isize) -> usize {
    /// Buckets of keys on one side.
    const SIDE: usize = LEARNED_BUCKETS / 2;
    /// Those of one distance.
    const EXACT: usize = SIDE / 2;
    /// The distance from which on all keys are in the last bucket.
    const FAR: f64 = 128.0;
    let (side, distance) = (if distance > 0 { SIDE } else { 0 }, distance.unsigned_abs());
    if distance < EXACT {
        return side + distance;
    }
    let ratio = libm::log(distance as f64 / EXACT as f64) / libm::log(FAR / EXACT as f64);
    side + (EXACT + (ratio * (SIDE - EXACT) as f64) as usize).min(SIDE - 1)
}

/// The factor of head h of n = 2^k: `-2^(-8 (h + 1) / n)`. Heads beyond the largest power of two take every second one of twice as many.
pub fn slope(head: usize, heads: usize) -> f32 {
    let power = 1 << heads.ilog2();
    let (index, of) = if head < power { (head + 1, power) } else { (2 * (head - power) + 1, 2 * power) };
    -libm::exp2(-8.0 * index as f64 / of as f64) as f32
}

/// The format of projected embeddings, in a layer whose weights have this one.
pub fn relative_format(format: Format) -> Format {
    if format.is_integer() { Format::W8 { group: 128 } } else { format }
}

/// What is added to logits, in memory.
#[derive(Debug)]
pub(crate) enum Distances {
    /// A number for each head and distance.
    Table(DistanceBias),
    /// Products of queries and keys with relative position embeddings.
    Relative(Relative),
}

/// Projected relative position embeddings.
#[derive(Debug)]
pub(crate) struct Relative {
    /// The bucket of each distance.
    pub(crate) buckets: DistanceTable<u32>,
    /// Of each layer and head, what its queries and its keys are multiplied with: `[2 * buckets_per_side, head_dim]`.
    pub(crate) layers: Vec<Vec<[Matrix; 2]>>,
}

impl Distances {
    /// Resident bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Table(table) => table.bytes(),
            Self::Relative(Relative { buckets, layers }) => {
                buckets.bytes() + layers.iter().flatten().flatten().map(Matrix::bytes).sum::<usize>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first ones of the paper, and of its code for numbers of heads that are no powers of two.
    #[test]
    fn slopes_of_heads() {
        let of = |heads: usize| (0..heads).map(|head| slope(head, heads)).collect::<Vec<_>>();
        let powers = |exponents: &[f32]| exponents.iter().map(|e| -e.exp2()).collect::<Vec<_>>();
        assert_eq!(of(8), powers(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]));
        assert_eq!(of(2), powers(&[-4.0, -8.0]));
        assert_eq!(of(3), powers(&[-4.0, -8.0, -2.0]));
        assert_eq!(of(6), powers(&[-2.0, -4.0, -6.0, -8.0, -1.0, -3.0]));
        assert_eq!(of(1), powers(&[-8.0]));
    }

    /// Those of transformers, for the sizes of DeBERTa-v3: `clamp(make_log_bucket_position(query - key, 256, 512) + 256, 0, 511)`.
    #[test]
    fn buckets_of_relative_distances() {
        let spec = RelativeSpec {
            name: String::new(),
            norm: None,
            hidden: 1,
            heads: 1,
            buckets_per_side: 256,
            max_distance: Some(511),
        };
        for (distance, bucket) in BUCKETS {
            assert_eq!(spec.bucket(distance), bucket, "distance {distance}");
        }
        let all = RelativeSpec { buckets_per_side: 4, max_distance: None, ..spec };
        let buckets: Vec<usize> = (-6..=6).map(|distance| all.bucket(distance)).collect();
        assert_eq!(buckets, [7, 7, 7, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
    }

    const BUCKETS: [(isize, usize); 22] = [
        (0, 256),
        (1, 255),
        (-1, 257),
        (-127, 383),
        (127, 129),
        (-128, 384),
        (128, 128),
        (-129, 385),
        (129, 127),
        (-130, 386),
        (-140, 393),
        (140, 119),
        (-300, 463),
        (300, 49),
        (-510, 511),
        (510, 1),
        (-511, 511),
        (511, 1),
        (-512, 511),
        (512, 0),
        (-700, 511),
        (700, 0),
    ];
}
