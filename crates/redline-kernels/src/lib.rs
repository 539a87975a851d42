//! Operations on weights and activations, each with one canonical order of roundings.
//!
//! `format/` holds one file per weight format, `op/` one per operation. A result depends only on the weights, the format and
//! the inputs of its own row, never on tiles, threads, the number of rows or the tier. Kernels work on matrices and pages, and
//! know no models.

mod arithmetic;
mod codes;
mod descriptor;
mod dot;
pub mod format;
pub mod matrix;
pub mod op;
mod sub_dot;
mod tile;

pub use arithmetic::Arithmetic;
pub use format::Format;
pub use matrix::Matrix;
pub use redline_simd::{
    Simd, Tier, Unavailable, processor, set_default_float_environment, vector_extensions,
};
pub use redline_system::{
    Buffer, ClockFn, Exec, FileBytes, OutOfMemory, Pages, Participation, Plain, Stopwatch, Team,
    bind_to_cpus, usable_cpus, with_team,
};
use redline_system::{memory, threads};

/// Rows of f32: `[rows, width]`, where each row begins `stride >= width` values after the previous one. The fields are checked
/// once, at construction, and kernels rely on them.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// At least `(rows - 1) * stride + width` values.
    pub(crate) data: &'a [f32],
    /// Number of rows.
    pub(crate) rows: usize,
    /// Values in a row.
    pub(crate) width: usize,
    /// Distance between the starts of rows.
    pub(crate) stride: usize,
}

/// Writable rows of f32, laid out as [`Rows`].
#[derive(Debug)]
pub struct RowsMut<'a> {
    /// At least `(rows - 1) * stride + width` values.
    pub(crate) data: &'a mut [f32],
    /// Number of rows.
    pub(crate) rows: usize,
    /// Values in a row.
    pub(crate) width: usize,
    /// Distance between the starts of rows.
    pub(crate) stride: usize,
}

/// Whether `rows` rows of `width` values at distance `stride` lie within `len` values.
fn rows_fit(len: usize, rows: usize, width: usize, stride: usize) -> bool {
    rows == 0
        || width <= stride
            && (rows - 1).checked_mul(stride).and_then(|n| n.checked_add(width)).is_some_and(|n| n <= len)
}

impl<'a> Rows<'a> {
    /// Checks that the rows lie within `data`.
    pub fn new(data: &'a [f32], rows: usize, width: usize, stride: usize) -> Self {
        assert!(
            rows_fit(data.len(), rows, width, stride),
            "{rows} rows of {width}/{stride} in {}",
            data.len()
        );
        Self { data, rows, width, stride }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `r`.
    pub fn row(&self, r: usize) -> &'a [f32] {
        &self.data[r * self.stride..][..self.width]
    }

    /// The given consecutive rows.
    pub fn some(&self, rows: std::ops::Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let data = self.data.get(rows.start * self.stride..).unwrap_or(&[]);
        Self { data, rows: rows.len(), ..*self }
    }
}

impl<'a> RowsMut<'a> {
    /// Checks that the rows lie within `data`.
    pub fn new(data: &'a mut [f32], rows: usize, width: usize, stride: usize) -> Self {
        assert!(
            rows_fit(data.len(), rows, width, stride),
            "{rows} rows of {width}/{stride} in {}",
            data.len()
        );
        Self { data, rows, width, stride }
    }

    /// Row `r`.
    pub fn row(&mut self, r: usize) -> &mut [f32] {
        &mut self.data[r * self.stride..][..self.width]
    }
}
