//! The planes of a packed matrix: the arrays that its bytes consist of.

use redline_simd::LANES;

use crate::format::{Format, Minima, Scaling};

/// The planes, in the order of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// The packed weights.
    Words,
    /// f16, bf16 or f32 scales.
    Scales,
    /// f16 minima of groups, or the factors of integer minima.
    Minima,
    /// Signed bytes, four consecutive sub-groups of an output in a word.
    SubScales,
    /// Unsigned bytes, as the sub-scales.
    SubMinima,
    /// bf16 columns.
    Outliers,
}

/// The type of the elements of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Bytes whose meaning the format knows.
    Byte,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// f32.
    F32,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

impl Plane {
    /// All planes. Every matrix has the first.
    pub const ALL: [Plane; 6] =
        [Self::Words, Self::Scales, Self::Minima, Self::SubScales, Self::SubMinima, Self::Outliers];

    /// The name, which is empty for the packed weights.
    pub fn name(self) -> &'static str {
        match self {
            Self::Words => "",
            Self::Scales => "scales",
            Self::Minima => "minima",
            Self::SubScales => "sub_scales",
            Self::SubMinima => "sub_minima",
            Self::Outliers => "outliers",
        }
    }
}

/// The size of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneShape {
    /// Which plane.
    pub plane: Plane,
    /// The type of its elements.
    pub element: Element,
    /// Bytes of a strip of sixteen outputs; 0 if the matrix lacks the plane.
    pub bytes: usize,
    /// Bytes of one output that lie together: a strip is rows of sixteen times as many.
    pub(crate) lane: usize,
}

/// Word `[quads][16]`: number of sub-groups that share a word.
pub(crate) const QUAD: usize = 4;

impl Format {
    /// The planes of a matrix over `cols` k, with `outliers` separate columns.
    pub fn planes(self, cols: usize, outliers: usize) -> [PlaneShape; Plane::ALL.len()] {
        Plane::ALL.map(|plane| self.plane(plane, cols, outliers))
    }

    /// One plane of such a matrix.
    pub(crate) fn plane(self, plane: Plane, cols: usize, outliers: usize) -> PlaneShape {
        let word = size_of::<u32>();
        let quads = |sub: usize| cols / (QUAD * sub);
        let (element, lane, count) = match (plane, self.scaling()) {
            (Plane::Words, _) => (Element::Byte, self.codes().lane_bytes(), self.steps(cols)),
            (Plane::Outliers, _) => (Element::Byte, word, Self::Bf16.steps(outliers)),
            (Plane::Scales, Scaling::Chosen) if self.group() == Some(0) => (Element::F32, word, 1),
            (Plane::Scales, Scaling::Blocks { bf16: true, .. }) => (Element::Bf16, 2, self.groups_in(cols)),
            (Plane::Scales, _) => (Element::F16, 2, self.groups_in(cols)),
            (Plane::Minima, _) if self.minima() != Minima::None => (Element::F16, 2, self.groups_in(cols)),
            (Plane::SubScales, Scaling::Super { sub, .. })
            | (Plane::SubMinima, Scaling::Super { sub, minima: true }) => (Element::Byte, word, quads(sub)),
            _ => (Element::Byte, word, 0),
        };
        PlaneShape { plane, element, bytes: count.saturating_mul(LANES * lane), lane }
    }
}
