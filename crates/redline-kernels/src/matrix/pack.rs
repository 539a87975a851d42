//! Fills a matrix from rows of f32, strip by strip.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use redline_simd::{LANES, Simd};

use super::quantise::{self, Quantised};
use super::{Matrix, Plane, PlaneShape};
use crate::Exec;
use crate::format::bf16;
use crate::format::float16::Narrow;
use crate::format::{BLOCK, Codes};
use crate::threads::Disjoint;

/// Number of columns that are transposed together.
const COLUMNS: usize = 64;

/// Rows of f32 in the layout of a checkpoint.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// `[count, cols]`
    OutIn(&'a [f32]),
    /// `[cols, count]`
    InOut(&'a [f32], usize),
}

impl Source<'_> {
    /// Rows `rows` as columns of sixteen lanes, the first in lane `lane`; other lanes stay as they are.
    fn gather(self, rows: Range<usize>, lane: usize, cols: usize, lanes: &mut [[f32; LANES]]) {
        match self {
            Self::OutIn(values) => {
                // Blocks of columns stay in the first-level cache while all rows are written to them.
                for (block, columns) in lanes[..cols].chunks_mut(COLUMNS).enumerate() {
                    for (i, r) in rows.clone().enumerate() {
                        let row = &values[r * cols + block * COLUMNS..][..columns.len()];
                        for (column, &value) in columns.iter_mut().zip(row) {
                            column[lane + i] = value;
                        }
                    }
                }
            }
            Self::InOut(values, count) => {
                for (column, values) in lanes.iter_mut().zip(values.chunks_exact(count)) {
                    column[lane..lane + rows.len()].copy_from_slice(&values[rows.clone()]);
                }
            }
        }
    }
}

/// The planes of one strip, by [`Plane`].
pub(super) type StripPlanes = [Vec<u32>; Plane::ALL.len()];

impl Matrix {
    /// Packs rows `first..` from `values`, `[count, cols]`, outputs first (`nn.Linear`). No magnitude may exceed
    /// [`crate::Format::largest`].
    pub fn set_rows(&mut self, exec: Exec<'_>, first: usize, values: &[f32]) {
        assert!(self.cols > 0 && values.len() % self.cols == 0, "whole rows of {}", self.cols);
        self.set(exec, first, values.len() / self.cols, Source::OutIn(values));
    }

    /// Packs rows `first..first + count` while they are read. `read` stores the rows `rows` of `0..count`, `[rows.len(), cols]`,
    /// outputs first, and may keep a buffer for the next call on the same thread. It is called on all threads, for sixteen rows at
    /// most, so no more than that is in memory for each thread. The error is that of the first rows with one; the rows of the matrix
    /// are then unspecified. No magnitude may exceed [`crate::Format::largest`].
    pub fn read_rows<B: Default, E: Send>(
        &mut self,
        exec: Exec<'_>,
        first: usize,
        count: usize,
        read: impl Fn(Range<usize>, &mut [f32], &mut B) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let cols = self.cols;
        self.pack(exec, first, count, |rows, lane, lanes, (values, buffer): &mut (Vec<f32>, B)| {
            values.resize(rows.len() * cols, 0.0);
            read(rows.clone(), values, buffer)?;
            Source::OutIn(values).gather(0..rows.len(), lane, cols, lanes);
            Ok(())
        })
    }

    /// Packs rows `first..first + count` from `values`, `[cols, count]`, inputs first (GPT-2's `Conv1D`).
    pub fn set_rows_transposed(&mut self, exec: Exec<'_>, first: usize, values: &[f32]) {
        assert!(self.cols > 0 && values.len() % self.cols == 0, "whole columns of {}", self.cols);
        let count = values.len() / self.cols;
        self.set(exec, first, count, Source::InOut(values, count));
    }

    fn set(&mut self, exec: Exec<'_>, first: usize, count: usize, source: Source<'_>) {
        let cols = self.cols;
        let Ok(()) = self.pack(exec, first, count, |rows, lane, lanes, (): &mut ()| {
            source.gather(rows, lane, cols, lanes);
            Ok::<(), Infallible>(())
        });
    }

    /// Packs rows `first..first + count`. `gather` stores some rows of `0..count` as columns of sixteen lanes, the first of them in a
    /// given lane; it keeps its state for the next call on the same thread.
    fn pack<S: Default, E: Send>(
        &mut self,
        exec: Exec<'_>,
        first: usize,
        count: usize,
        gather: impl Fn(Range<usize>, usize, &mut [[f32; LANES]], &mut S) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        assert!(self.format.takes_values(), "{} comes from files only", self.format);
        let new = |matrix: &Self| (Strip::new(matrix), S::default());
        self.fill(exec, first, count, new, |matrix, rows, lane, planes, (strip, state)| {
            // A whole strip overwrites all lanes of its columns.
            let kept = if rows.len() == LANES { matrix.cols } else { 0 };
            strip.lanes[kept..].fill([0.0; LANES]);
            gather(rows, lane, &mut strip.lanes, state)?;
            strip.pack(matrix, exec.simd, planes);
            Ok(())
        })
    }

    /// Fills rows `first..first + count`, some strips on each thread. `make` stores some rows of `0..count` in the planes of a strip,
    /// the first of them in a given lane; lanes without rows become zero. It keeps what `new` made for the next call on the same
    /// thread.
    pub(super) fn fill<S, E: Send>(
        &mut self,
        exec: Exec<'_>,
        first: usize,
        count: usize,
        new: impl Fn(&Self) -> S + Sync,
        make: impl Fn(&Self, Range<usize>, usize, &mut StripPlanes, &mut S) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        assert!(first + count <= self.rows, "rows {first}..{} of {}", first + count, self.rows);
        if count == 0 {
            return Ok(());
        }
        let target = self.planes.each_mut().map(|plane| Disjoint::new(plane.as_bytes_mut()));
        let (before, matrix) = (first / LANES, &*self);
        let shapes = matrix.plane_shapes();
        let strips = (first + count).div_ceil(LANES) - before;
        let error: Mutex<Option<(usize, E)>> = Mutex::new(None);
        exec.team.split(strips, 1, 2, |part| {
            let mut planes = shapes.map(|shape| vec![0; shape.bytes / size_of::<u32>()]);
            let mut state = new(matrix);
            for s in part.start + before..part.end + before {
                let rows = (s * LANES).max(first)..((s + 1) * LANES).min(first + count);
                let lane = rows.start % LANES;
                let made = make(matrix, rows.start - first..rows.end - first, lane, &mut planes, &mut state);
                if let Err(new) = made {
                    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                    if error.as_ref().is_none_or(|(first, _)| s < *first) {
                        *error = Some((s, new));
                    }
                    return;
                }
                let whole = rows.end == rows.start / LANES * LANES + LANES || rows.end == matrix.rows;
                let keep = if lane == 0 && whole { 0..LANES } else { lane..lane + rows.len() };
                for ((shape, plane), to) in shapes.iter().zip(&planes).zip(target) {
                    // SAFETY: the planes of strip `s` lie within the matrix, and the one member that owns it writes them.
                    unsafe { put(to, *shape, s, plane, &keep) };
                }
            }
        });
        let error = error.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Memory for packing one strip.
struct Strip {
    /// `[cols padded][16]`
    lanes: Vec<[f32; LANES]>,
    quantised: Quantised,
}

impl Strip {
    fn new(matrix: &Matrix) -> Self {
        let padded = matrix.cols.next_multiple_of(BLOCK);
        let quantised = Quantised::new(matrix.format, matrix.cols);
        Self { lanes: vec![[0.0; LANES]; padded], quantised }
    }

    /// Packs the strip.
    fn pack(&mut self, matrix: &Matrix, simd: Simd, planes: &mut StripPlanes) {
        if let Some(outliers) = matrix.outliers() {
            let words = &mut planes[Plane::Outliers as usize];
            for (i, &col) in outliers.columns.iter().enumerate() {
                let values = std::mem::replace(&mut self.lanes[col as usize], [0.0; LANES]);
                for (lane, value) in values.into_iter().enumerate() {
                    bf16::insert(&mut words[i / 2 * LANES + lane], i, value);
                }
            }
        }
        if matrix.format.is_integer() {
            simd.run(quantise::Strip {
                format: matrix.format,
                lanes: &mut self.lanes,
                out: &mut self.quantised,
            });
            let scales = &mut planes[Plane::Scales as usize];
            if matrix.format.group() == Some(0) {
                scales.iter_mut().zip(&self.quantised.output_scales).for_each(|(to, s)| *to = s.to_bits());
            } else {
                let (pairs, _) = self.quantised.group_scales.as_chunks::<2>();
                let words = pairs.iter().map(|&[even, odd]| u32::from(even) | u32::from(odd) << 16);
                scales.iter_mut().zip(words).for_each(|(to, word)| *to = word);
            }
        }
        let words = &mut planes[Plane::Words as usize];
        match matrix.format.codes() {
            Codes::F16 => simd.run(Narrow { lanes: &self.lanes[..matrix.cols], words }),
            codes => self.words(codes, words),
        }
    }

    /// Packs the values, or integers.
    fn words(&self, codes: Codes, words: &mut [u32]) {
        for (step, words) in words.chunks_exact_mut(LANES).enumerate() {
            let per_step = codes.k_per_step();
            let lanes = &self.lanes[step * per_step..];
            for (lane, word) in words.iter_mut().enumerate() {
                *word = match codes {
                    Codes::F32 | Codes::F16 => lanes[0][lane].to_bits(),
                    Codes::Bf16 => {
                        let [first, second] = [0, 1].map(|k| u32::from(bf16::round(lanes[k][lane])));
                        first << 16 | second
                    }
                    Codes::Bytes | Codes::Nibbles { .. } | Codes::Table(_) | Codes::Split { .. } => {
                        let mut integers = [0; 8];
                        for (integer, lanes) in integers.iter_mut().zip(&lanes[..per_step]) {
                            *integer = lanes[lane] as i8;
                        }
                        codes.pack(&integers[..per_step])
                    }
                };
            }
        }
    }
}

/// Copies the lanes `keep` of one strip's plane, rows of sixteen lanes.
///
/// # Safety
/// Plane `to` holds strip `s`, and no other thread touches it.
unsafe fn put(to: Disjoint<u8>, shape: PlaneShape, s: usize, from: &[u32], keep: &Range<usize>) {
    let PlaneShape { bytes, lane, .. } = shape;
    // SAFETY: by contract; any words are bytes.
    let (to, from) = unsafe {
        let to = std::slice::from_raw_parts_mut(to.get().add(s * bytes), bytes);
        (to, std::slice::from_raw_parts(from.as_ptr().cast::<u8>(), bytes))
    };
    if *keep == (0..LANES) {
        return to.copy_from_slice(from);
    }
    let keep = keep.start * lane..keep.end * lane;
    for (to, from) in to.chunks_exact_mut(LANES * lane).zip(from.chunks_exact(LANES * lane)) {
        to[keep.clone()].copy_from_slice(&from[keep.clone()]);
    }
}
