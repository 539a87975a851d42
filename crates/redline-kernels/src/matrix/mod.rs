//! A weight matrix, packed in strips of sixteen output rows.

mod pack;
mod quantise;

use std::ops::Range;

use redline_simd::{LANES, widen_f16};

use crate::dot::Scale;
use crate::format::Format;
use crate::memory::{Buffer, OutOfMemory};

/// A weight matrix `[rows = outputs, cols = k]`. The rows that pad the last strip are zero.
///
/// Integer formats store f16 scales `[strips][groups][16]`, or with one scale per output f32 scales `[strips][16]`. Whole
/// columns may be stored separately as bf16 ([`Matrix::with_outliers`]); the integers are zero there.
#[derive(Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    words: Buffer<u32>,
    scales: Scales,
    outliers: Option<Outliers>,
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
        let strip = self.format.strip_bytes(self.cols, self.outliers);
        let strip = strip.words as u64 + strip.scales as u64 + strip.outliers as u64;
        strip.saturating_mul(self.rows.div_ceil(LANES) as u64)
    }
}

/// The scales of integer formats.
#[derive(Debug)]
pub(crate) enum Scales {
    /// Float formats have none.
    None,
    /// f16, one per group and output.
    Group(Buffer<u16>),
    /// One per output.
    Output(Buffer<f32>),
}

impl Scales {
    /// The scales of one strip of `groups` groups, from group `first` on.
    #[inline(always)]
    pub(crate) fn of_strip(&self, strip: usize, groups: usize, first: usize) -> Scale {
        match self {
            Self::None => Scale::Output(std::ptr::null()),
            Self::Group(scales) => {
                let strip = &scales[strip * groups * LANES..][..groups * LANES];
                Scale::Group(strip[first * LANES..].as_ptr())
            }
            Self::Output(scales) => Scale::Output(scales[strip * LANES..][..LANES].as_ptr()),
        }
    }
}

/// Columns kept as bf16.
#[derive(Debug)]
pub(crate) struct Outliers {
    /// Ascending.
    pub(crate) columns: Vec<u32>,
    /// Strips `[columns/2][16]` of pairs, as in a bf16 matrix.
    pub(crate) words: Buffer<u32>,
}

impl Outliers {
    /// Pairs of columns.
    pub(crate) fn steps(&self) -> usize {
        Format::Bf16.steps(self.columns.len())
    }
}

/// The bytes of some strips, one slice per plane, as in files (little-endian, like memory on every supported machine).
#[derive(Debug)]
pub struct Planes<'a> {
    /// The packed weights.
    pub words: &'a [u8],
    /// f16 or f32 scales; empty without scales.
    pub scales: &'a [u8],
    /// bf16 columns; empty without outliers.
    pub outliers: &'a [u8],
}

/// [`Planes`] for writing.
#[derive(Debug)]
pub struct PlanesMut<'a> {
    /// The packed weights.
    pub words: &'a mut [u8],
    /// f16 or f32 scales; empty without scales.
    pub scales: &'a mut [u8],
    /// bf16 columns; empty without outliers.
    pub outliers: &'a mut [u8],
}

/// Sizes of the planes of a strip, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripBytes {
    /// The packed weights.
    pub words: usize,
    /// Scales.
    pub scales: usize,
    /// bf16 columns.
    pub outliers: usize,
}

impl Format {
    /// Bytes of a strip of sixteen outputs over `cols` k, with `outliers` separate columns.
    pub fn strip_bytes(self, cols: usize, outliers: usize) -> StripBytes {
        let scale = if self.group() == Some(0) { size_of::<f32>() } else { size_of::<u16>() };
        StripBytes {
            words: self.steps(cols) * LANES * size_of::<u32>(),
            scales: self.groups_in(cols) * LANES * scale,
            outliers: Self::Bf16.steps(outliers) * LANES * size_of::<u32>(),
        }
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
        let count = rows.div_ceil(LANES) * format.strip_bytes(cols, 0).words / size_of::<u32>();
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
        assert!(columns.is_empty() || format.is_integer(), "outliers of {format}");
        assert!(columns.is_sorted_by(|a, b| a < b), "outlier columns ascend");
        assert!(columns.last().is_none_or(|&c| (c as usize) < cols), "outlier columns of {cols}");
        let strips = rows.div_ceil(LANES);
        let count = |per_strip: usize| {
            strips
                .checked_mul(per_strip)
                .and_then(|n| n.checked_mul(LANES))
                .ok_or(OutOfMemory { bytes: usize::MAX })
        };
        let scales = match format.group() {
            None => Scales::None,
            Some(0) => Scales::Output(Buffer::zeroed(count(1)?)?),
            Some(_) => Scales::Group(Buffer::zeroed(count(format.groups_in(cols))?)?),
        };
        let outliers = if columns.is_empty() {
            None
        } else {
            let words = Buffer::zeroed(count(Format::Bf16.steps(columns.len()))?)?;
            Some(Outliers { columns, words })
        };
        let words = words(count(format.steps(cols))?)?;
        Ok(Self { format, rows, cols, words, scales, outliers })
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
        self.outliers.as_ref().map_or(&[], |o| &o.columns)
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let scales = match &self.scales {
            Scales::None => 0,
            Scales::Group(scales) => scales.bytes(),
            Scales::Output(scales) => scales.bytes(),
        };
        self.words.bytes() + scales + self.outliers.as_ref().map_or(0, |o| o.words.bytes())
    }

    pub(crate) fn steps(&self) -> usize {
        self.format.steps(self.cols)
    }

    pub(crate) fn groups(&self) -> usize {
        self.format.groups_in(self.cols)
    }

    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    pub(crate) fn scales(&self) -> &Scales {
        &self.scales
    }

    pub(crate) fn outliers(&self) -> Option<&Outliers> {
        self.outliers.as_ref()
    }

    /// Bytes of a strip.
    pub fn strip_bytes(&self) -> StripBytes {
        self.format.strip_bytes(self.cols, self.outlier_columns().len())
    }

    /// The bytes of some strips.
    pub fn planes(&self, strips: Range<usize>) -> Planes<'_> {
        let size = self.strip_bytes();
        let of = |bytes: usize| strips.start * bytes..strips.end * bytes;
        let scales = match &self.scales {
            Scales::None => &[],
            Scales::Group(scales) => scales.as_bytes(),
            Scales::Output(scales) => scales.as_bytes(),
        };
        Planes {
            words: &self.words.as_bytes()[of(size.words)],
            scales: &scales[of(size.scales)],
            outliers: self.outliers.as_ref().map_or(&[], |o| &o.words.as_bytes()[of(size.outliers)]),
        }
    }

    /// The bytes of some strips, to be filled from a file. Any bytes are a valid matrix.
    pub fn planes_mut(&mut self, strips: Range<usize>) -> PlanesMut<'_> {
        let size = self.strip_bytes();
        let of = |bytes: usize| strips.start * bytes..strips.end * bytes;
        let scales: &mut [u8] = match &mut self.scales {
            Scales::None => &mut [],
            Scales::Group(scales) => scales.as_bytes_mut(),
            Scales::Output(scales) => scales.as_bytes_mut(),
        };
        PlanesMut {
            words: &mut self.words.as_bytes_mut()[of(size.words)],
            scales: &mut scales[of(size.scales)],
            outliers: match &mut self.outliers {
                None => &mut [],
                Some(outliers) => &mut outliers.words.as_bytes_mut()[of(size.outliers)],
            },
        }
    }

    /// Offset of the first scale of a row, and the distance between its scales.
    fn scale_at(&self, row: usize) -> usize {
        row / LANES * self.groups() * LANES + row % LANES
    }

    /// Row `row` as f32, with exactly the values that the linear layer uses.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.cols,
            "row {row} of {}, {} columns",
            self.rows,
            out.len()
        );
        let first = row / LANES * self.steps() * LANES + row % LANES;
        for (step, values) in out.chunks_mut(self.format.k_per_step()).enumerate() {
            let word = self.words[first + step * LANES];
            for (k, value) in values.iter_mut().enumerate() {
                *value = self.format.extract(word, k);
            }
        }
        let first = self.scale_at(row);
        match &self.scales {
            Scales::None => {}
            Scales::Output(scales) => out.iter_mut().for_each(|value| *value *= scales[first]),
            Scales::Group(scales) => {
                for (g, values) in out.chunks_mut(self.format.summed_k()).enumerate() {
                    let scale = widen_f16(scales[first + g * LANES]);
                    for value in values {
                        *value *= scale;
                    }
                }
            }
        }
        if let Some(outliers) = &self.outliers {
            for (i, &col) in outliers.columns.iter().enumerate() {
                let word = outliers.words[(row / LANES * outliers.steps() + i / 2) * LANES + row % LANES];
                out[col as usize] = Format::Bf16.extract(word, i);
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
        let lane = |steps: usize, row: usize| row / LANES * steps * LANES + row % LANES;
        let steps = self.steps();
        for step in 0..steps {
            self.words[lane(steps, row) + step * LANES] = from.words[lane(steps, from_row) + step * LANES];
        }
        let groups = self.groups();
        let (to, at) = (self.scale_at(row), from.scale_at(from_row));
        match (&mut self.scales, &from.scales) {
            (Scales::Group(scales), Scales::Group(from)) => {
                (0..groups).for_each(|g| scales[to + g * LANES] = from[at + g * LANES]);
            }
            (Scales::Output(scales), Scales::Output(from)) => scales[to] = from[at],
            _ => {}
        }
        if let (Some(to), Some(from)) = (&mut self.outliers, &from.outliers) {
            let steps = to.steps();
            for step in 0..steps {
                to.words[lane(steps, row) + step * LANES] = from.words[lane(steps, from_row) + step * LANES];
            }
        }
    }

    /// Copies all rows of `from`, a matrix of the same format, columns and outliers, to rows `first..`.
    pub fn copy_rows(&mut self, first: usize, from: &Self) {
        assert!(
            (self.format, self.cols) == (from.format, from.cols)
                && self.outlier_columns() == from.outlier_columns(),
            "rows of another kind of matrix"
        );
        assert!(first + from.rows <= self.rows, "rows {first}..{} of {}", first + from.rows, self.rows);
        for row in 0..from.rows {
            self.copy_row(first + row, from, row);
        }
    }
}
