//! What is added to the logits of attention in every layer by how far keys are from their query.

use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::attention::{DistanceBias, DistanceTable};
use redline_kernels::{Format, Matrix};

use super::norm::NormSpec;
use super::tensor::{Role, TensorSpec};

/// What is added to logits, as an architecture describes it.
#[derive(Clone, Debug)]
pub enum DistanceSpec {
    /// A learned number for each head and range of distances, `[LEARNED_RANGES, heads]`: distances below 8 have one each, then ranges up
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
    /// What queries and keys make of vectors of ranges of distances (DeBERTa).
    Relative(RelativeSpec),
}

/// Disentangled attention (He et al. 2021): with b the range of the distance and R its vector, `(q R_b Wk + k R_b Wq) / sqrt(3 d)` is added
/// to the logit of a query and a key, where Wk and Wq, with their biases, are the projections of the layer.
#[derive(Clone, Debug)]
pub struct RelativeSpec {
    /// Name of the vectors up to `.weight`: `[2 * span, hidden]`.
    pub name: String,
    /// Of the vectors.
    pub norm: Option<NormSpec>,
    /// Width of the vectors.
    pub hidden: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of ranges on each side.
    pub span: usize,
    /// The distance at which the last range begins, if distances from `span / 2` on share ranges, which grow by a constant factor.
    pub farthest: Option<usize>,
}

/// Number of ranges of [`DistanceSpec::Learned`].
pub const LEARNED_RANGES: usize = 32;

impl DistanceSpec {
    /// The tensors.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        match self {
            Self::Learned { name, heads } => {
                vec![TensorSpec::new(format!("{name}.weight"), [LEARNED_RANGES, *heads], Role::Bias)]
            }
            Self::Slopes { .. } => Vec::new(),
            Self::Relative(RelativeSpec { name, norm, hidden, span, .. }) => {
                let mut all =
                    vec![TensorSpec::new(format!("{name}.weight"), [2 * span, *hidden], Role::Bias)];
                all.extend(norm.iter().flat_map(NormSpec::tensors));
                all
            }
        }
    }

    /// Vectors of ranges of distances, if there are some.
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
        MatrixShape { format, rows: 2 * self.span, cols: self.hidden / self.heads, outliers: 0 }
    }

    /// The range of a key that comes `distance` tokens after its query: that of the farthest ones is 0 if they come after it.
    pub fn range(&self, distance: isize) -> usize {
        let (middle, far) = (self.span / 2, distance.unsigned_abs());
        let from_query = match self.farthest {
            Some(farthest) if far > middle => {
                let ratio =
                    libm::log(far as f64 / middle as f64) / libm::log(farthest as f64 / middle as f64);
                middle + libm::ceil(ratio * (middle - 1) as f64) as usize
            }
            _ => far,
        };
        if distance > 0 {
            self.span.saturating_sub(from_query)
        } else {
            (self.span + from_query).min(2 * self.span - 1)
        }
    }
}

/// The range of distances of a key that comes `distance` tokens after its query, of [`LEARNED_RANGES`].
pub fn learned_range(distance: isize) -> usize {
    /// Ranges of keys on one side.
    const SIDE: usize = LEARNED_RANGES / 2;
    /// Those of one distance.
    const EXACT: usize = SIDE / 2;
    /// The distance from which on all keys are in the last range.
    const FAR: f64 = 128.0;
    let (side, distance) = (if distance > 0 { SIDE } else { 0 }, distance.unsigned_abs());
    if distance < EXACT {
        return side + distance;
    }
    let ratio = libm::log(distance as f64 / EXACT as f64) / libm::log(FAR / EXACT as f64);
    side + (EXACT + (ratio * (SIDE - EXACT) as f64) as usize).min(SIDE - 1)
}

/// The factor of a head: those of the largest power of two of heads; others take every second one of twice as many.
pub fn slope(head: usize, heads: usize) -> f32 {
    let power = 1 << heads.ilog2();
    let (index, of) = if head < power { (head + 1, power) } else { (2 * (head - power) + 1, 2 * power) };
    -libm::exp2(-8.0 * index as f64 / of as f64) as f32
}

/// The format of matrices that keys and queries are multiplied with, where the layer's own have another.
pub fn relative_format(format: Format) -> Format {
    if format.is_integer() { Format::W8 { group: 128 } } else { format }
}

/// What is added to logits, in memory.
#[derive(Debug)]
pub(crate) enum Distances {
    /// A number for each head and distance.
    Table(DistanceBias),
    /// What queries and keys make of vectors.
    Relative(Relative),
}

/// Projected vectors of ranges of distances.
#[derive(Debug)]
pub(crate) struct Relative {
    /// The range of each distance.
    pub(crate) ranges: DistanceTable<u32>,
    /// Of each layer and head, what its queries and its keys are multiplied with: `[2 * span, head_dim]`.
    pub(crate) layers: Vec<Vec<[Matrix; 2]>>,
}

impl Distances {
    /// Resident bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Table(table) => table.bytes(),
            Self::Relative(Relative { ranges, layers }) => {
                ranges.bytes() + layers.iter().flatten().flatten().map(Matrix::bytes).sum::<usize>()
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
    fn ranges_of_relative_distances() {
        let spec = RelativeSpec {
            name: String::new(),
            norm: None,
            hidden: 1,
            heads: 1,
            span: 256,
            farthest: Some(511),
        };
        for (distance, range) in RANGES {
            assert_eq!(spec.range(distance), range, "distance {distance}");
        }
        let all = RelativeSpec { span: 4, farthest: None, ..spec };
        let ranges: Vec<usize> = (-6..=6).map(|distance| all.range(distance)).collect();
        assert_eq!(ranges, [7, 7, 7, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]);
    }

    const RANGES: [(isize, usize); 22] = [
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
