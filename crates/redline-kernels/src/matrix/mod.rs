//! A weight matrix, packed in strips of sixteen output rows.

mod pack;
mod planes;
mod quantise;
mod stored;

use std::ops::Range;

use redline_simd::{LANES, widen_f16};

pub use self::planes::{Element, Plane, PlaneShape};
pub use self::stored::{QuantisedRow, QuantisedRows};
use crate::dot::Scale;
use crate::format::bf16::widen;
use crate::format::{Codes, Format, Minima, SUPER_BLOCK, Scaling};
use crate::memory::{Buffer, OutOfMemory};

/// A weight matrix `[rows = outputs, cols = k]`. The rows that pad the last strip are zero.
///
/// Every plane is `[strips][..][16]`. Whole columns may be stored separately as bf16 ([`Matrix::with_outliers`]); the integers are
/// zero there.
#[derive(Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    /// By [`Plane`].
    planes: [Buffer<u32>; Plane::ALL.len()],
    /// The shape of the plane of scales, which is needed for every strip and group.
    scales: PlaneShape,
    /// Columns kept as bf16, ascending.
    columns: Vec<u32>,
}

/// The shape of a [`Matrix`]: what determines its bytes, and the scratch memory of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// The format.
    pub format: Format,
    /// Output rows.
    pub rows: usize,
    /// Length of k.
    pub cols: usize,
    /// Number of columns kept as bf16.
    pub outliers: usize,
}

impl MatrixShape {
    /// Bytes of the matrix in memory.
    pub fn bytes(self) -> u64 {
        let strip = self
            .format
            .planes(self.cols, self.outliers)
            .iter()
            .fold(0u64, |sum, plane| sum.saturating_add(plane.bytes as u64));
        strip.saturating_mul(self.rows.div_ceil(LANES) as u64)
    }
}

/// Columns kept as bf16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outliers<'a> {
    /// Ascending.
    pub(crate) columns: &'a [u32],
    /// Strips `[columns/2][16]` of pairs, as in a bf16 matrix.
    pub(crate) words: &'a [u32],
}

impl Outliers<'_> {
    /// Pairs of columns.
    pub(crate) fn steps(&self) -> usize {
        Format::Bf16.steps(self.columns.len())
    }
}

impl Matrix {
    /// Creates a matrix of zeros.
    pub fn zeroed(format: Format, rows: usize, cols: usize) -> Result<Self, OutOfMemory> {
        Self::with_outliers(format, rows, cols, Vec::new())
    }

    /// Creates a matrix of zeros that stores `columns` separately as bf16. They must be ascending and below `cols`; the format
    /// must be an integer format.
    pub fn with_outliers(
        format: Format,
        rows: usize,
        cols: usize,
        columns: Vec<u32>,
    ) -> Result<Self, OutOfMemory> {
        Self::of_words(format, rows, cols, columns, Buffer::zeroed)
    }

    /// As [`Matrix::with_outliers`], with packed weights that are in memory already; `None` if their number is not that of the
    /// matrix.
    pub fn over(
        format: Format,
        rows: usize,
        cols: usize,
        columns: Vec<u32>,
        words: Buffer<u32>,
    ) -> Result<Option<Self>, OutOfMemory> {
        let count = rows.div_ceil(LANES) * format.plane(Plane::Words, cols, 0).bytes / size_of::<u32>();
        if words.len() != count {
            return Ok(None);
        }
        Self::of_words(format, rows, cols, columns, |_| Ok(words)).map(Some)
    }

    /// A matrix whose packed weights `words` returns, given their number.
    fn of_words(
        format: Format,
        rows: usize,
        cols: usize,
        columns: Vec<u32>,
        words: impl FnOnce(usize) -> Result<Buffer<u32>, OutOfMemory>,
    ) -> Result<Self, OutOfMemory> {
        assert!(format.group().is_none_or(|g| format.groups().contains(&g)), "{format:?} does not exist");
        assert!(columns.is_empty() || format.group().is_some(), "outliers of {format}");
        assert!(columns.is_sorted_by(|a, b| a < b), "outlier columns ascend");
        assert!(columns.last().is_none_or(|&c| (c as usize) < cols), "outlier columns of {cols}");
        assert!(cols % format.multiple() == 0, "{cols} columns of {format}, which takes whole blocks");
        let strips = rows.div_ceil(LANES);
        let count = |plane| {
            let bytes = format.plane(plane, cols, columns.len()).bytes;
            let all = strips.checked_mul(bytes).filter(|_| bytes < usize::MAX);
            Ok(all.ok_or(OutOfMemory { bytes: usize::MAX })? / size_of::<u32>())
        };
        let zeros = |plane| Buffer::zeroed(count(plane)?);
        let [scales, minima] = [zeros(Plane::Scales)?, zeros(Plane::Minima)?];
        let [sub_scales, sub_minima] = [zeros(Plane::SubScales)?, zeros(Plane::SubMinima)?];
        let outliers = zeros(Plane::Outliers)?;
        let words = words(count(Plane::Words)?)?;
        let planes = [words, scales, minima, sub_scales, sub_minima, outliers];
        let scales = format.plane(Plane::Scales, cols, columns.len());
        Ok(Self { format, rows, cols, planes, scales, columns })
    }

    /// Output rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of k.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The shape.
    pub fn shape(&self) -> MatrixShape {
        let outliers = self.outlier_columns().len();
        MatrixShape { format: self.format, rows: self.rows, cols: self.cols, outliers }
    }

    /// Strips of sixteen rows.
    pub fn strips(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Columns kept as bf16, ascending.
    pub fn outlier_columns(&self) -> &[u32] {
        &self.columns
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.planes.iter().map(Buffer::bytes).sum()
    }

    pub(crate) fn steps(&self) -> usize {
        self.format.steps(self.cols)
    }

    pub(crate) fn words(&self) -> &[u32] {
        &self.planes[Plane::Words as usize]
    }

    pub(crate) fn outliers(&self) -> Option<Outliers<'_>> {
        let words = &self.planes[Plane::Outliers as usize];
        (!self.columns.is_empty()).then_some(Outliers { columns: &self.columns, words })
    }

    /// The shape of a plane.
    pub(crate) fn plane(&self, plane: Plane) -> PlaneShape {
        self.format.plane(plane, self.cols, self.columns.len())
    }

    /// The planes, of which some may be empty.
    pub fn plane_shapes(&self) -> [PlaneShape; Plane::ALL.len()] {
        self.format.planes(self.cols, self.columns.len())
    }

    /// The elements of a plane that one strip has, as bytes.
    pub(crate) fn strip(&self, plane: Plane, strip: usize) -> &[u8] {
        let bytes = self.plane(plane).bytes;
        &self.planes[plane as usize].as_bytes()[strip * bytes..][..bytes]
    }

    /// The scales of a strip from group `first` on.
    #[inline(always)]
    pub(crate) fn scale(&self, strip: usize, first: usize) -> Scale {
        let PlaneShape { bytes, element, .. } = self.scales;
        let scales = &self.planes[Plane::Scales as usize].as_bytes()[strip * bytes..][..bytes];
        match element {
            Element::F32 => Scale::Output(scales.as_ptr().cast()),
            Element::Bf16 => Scale::Power(scales[first * LANES * 2..].as_ptr().cast()),
            Element::F16 | Element::Byte => Scale::Group(scales[first * LANES * 2..].as_ptr().cast()),
        }
    }

    /// All planes of some strips, of which those that the matrix lacks are empty. Numbers are little-endian, like memory on every supported
    /// machine.
    pub fn planes(&self, strips: Range<usize>) -> impl Iterator<Item = (Plane, &[u8])> {
        self.plane_shapes().into_iter().zip(&self.planes).map(
            move |(PlaneShape { plane, bytes, .. }, buffer)| {
                (plane, &buffer.as_bytes()[strips.start * bytes..strips.end * bytes])
            },
        )
    }

    /// As [`Matrix::planes`], to be filled from a file. Any bytes are a valid matrix.
    pub fn planes_mut(&mut self, strips: Range<usize>) -> impl Iterator<Item = (Plane, &mut [u8])> {
        self.plane_shapes().into_iter().zip(&mut self.planes).map(
            move |(PlaneShape { plane, bytes, .. }, buffer)| {
                (plane, &mut buffer.as_bytes_mut()[strips.start * bytes..strips.end * bytes])
            },
        )
    }

    /// Row `row` as f32, with exactly the values that the linear layer uses.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.cols,
            "row {row} of {}, {} columns",
            self.rows,
            out.len()
        );
        let (strip, lane) = (row / LANES, row % LANES);
        let bytes = self.plane(Plane::Words).bytes;
        let words = &self.words()[strip * bytes / size_of::<u32>()..][..bytes / size_of::<u32>()];
        let codes = self.format.codes();
        for (k, value) in out.iter_mut().enumerate() {
            *value = codes.value(words, k, lane);
        }
        self.scale_row(strip, lane, out);
        if let Some(outliers) = self.outliers() {
            let words = &outliers.words[strip * outliers.steps() * LANES..];
            for (i, &col) in outliers.columns.iter().enumerate() {
                out[col as usize] = Codes::Bf16.value(words, i, lane);
            }
        }
    }

    /// Turns the integers of a row into values.
    fn scale_row(&self, strip: usize, lane: usize, out: &mut [f32]) {
        let element = self.plane(Plane::Scales).element;
        let scales = self.strip(Plane::Scales, strip);
        let half = |plane: &[u8], group: usize| {
            let at = (group * LANES + lane) * 2;
            u16::from_le_bytes([plane[at], plane[at + 1]])
        };
        let scale = |group: usize| match element {
            Element::F32 => f32::from_le_bytes(std::array::from_fn(|i| scales[lane * 4 + i])),
            Element::Bf16 => widen(half(scales, group)),
            Element::F16 | Element::Byte => widen_f16(half(scales, group)),
        };
        let minima = self.strip(Plane::Minima, strip);
        match self.format.scaling() {
            Scaling::None => {}
            Scaling::Chosen | Scaling::Blocks { .. } => {
                let size = if element == Element::F32 { self.cols } else { self.format.summed_k() };
                for (group, values) in out.chunks_mut(size).enumerate() {
                    let scale = scale(group);
                    if self.format.minima() == Minima::None {
                        for value in values {
                            *value *= scale;
                        }
                    } else {
                        let minimum = widen_f16(half(minima, group));
                        for value in values {
                            *value = scale * *value + minimum;
                        }
                    }
                }
            }
            Scaling::Super { sub, minima: has_minima } => {
                let (sub_scales, sub_minima) =
                    (self.strip(Plane::SubScales, strip), self.strip(Plane::SubMinima, strip));
                let byte = |group: usize| {
                    (group / planes::QUAD * LANES + lane) * planes::QUAD + group % planes::QUAD
                };
                for (group, values) in out.chunks_mut(sub).enumerate() {
                    let d = group * sub / SUPER_BLOCK;
                    let scale = scale(d) * f32::from(sub_scales[byte(group)].cast_signed());
                    if has_minima {
                        let offset = widen_f16(half(minima, d)) * f32::from(sub_minima[byte(group)]);
                        for value in values {
                            *value = scale * *value - offset;
                        }
                    } else {
                        for value in values {
                            *value *= scale;
                        }
                    }
                }
            }
        }
    }

    /// Copies the rows `ids`, in that order, into a separate matrix with the same bits.
    pub fn gather(&self, ids: &[u32]) -> Result<Self, OutOfMemory> {
        let columns = self.outlier_columns().to_vec();
        let mut gathered = Self::with_outliers(self.format, ids.len(), self.cols, columns)?;
        for (row, &id) in ids.iter().enumerate() {
            assert!((id as usize) < self.rows, "row {id} of {}", self.rows);
            gathered.copy_row(row, self, id as usize);
        }
        Ok(gathered)
    }

    /// Copies row `from_row` of a matrix of the same format, columns and outliers.
    fn copy_row(&mut self, row: usize, from: &Self, from_row: usize) {
        for PlaneShape { plane, bytes, lane, .. } in self.plane_shapes() {
            let of = |row: usize| row / LANES * bytes + row % LANES * lane;
            let from = from.planes[plane as usize].as_bytes();
            let to = self.planes[plane as usize].as_bytes_mut();
            for step in (0..bytes).step_by(LANES * lane) {
                to[of(row) + step..][..lane].copy_from_slice(&from[of(from_row) + step..][..lane]);
            }
        }
    }

    /// Copies all rows of `from`, a matrix of the same format, columns and outliers, to rows `first..`.
    pub fn copy_rows(&mut self, first: usize, from: &Self) {
        assert!(
            (self.format, self.cols) == (from.format, from.cols) && self.columns == from.columns,
            "rows of another kind of matrix"
        );
        assert!(first + from.rows <= self.rows, "rows {first}..{} of {}", first + from.rows, self.rows);
        for row in 0..from.rows {
            self.copy_row(first + row, from, row);
        }
    }
}
