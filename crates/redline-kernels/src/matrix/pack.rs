//! Fills a matrix from rows of f32, strip by strip.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use redline_simd::{LANES, Simd};

use super::quantise::{self, Quantised};
use super::{Matrix, Scales};
use crate::Exec;
use crate::format::{BLOCK, Format};
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

/// Addresses of a matrix's planes. Team members write different strips.
#[derive(Clone, Copy)]
struct Target {
    words: Disjoint<u32>,
    group_scales: Option<Disjoint<u16>>,
    output_scales: Option<Disjoint<f32>>,
    outliers: Option<Disjoint<u32>>,
}

impl Matrix {
    /// Packs rows `first..` from `values`, `[count, cols]`, outputs first (`nn.Linear`). No magnitude may exceed
    /// [`Format::largest`].
    pub fn set_rows(&mut self, exec: Exec<'_>, first: usize, values: &[f32]) {
        assert!(self.cols > 0 && values.len() % self.cols == 0, "whole rows of {}", self.cols);
        self.set(exec, first, values.len() / self.cols, Source::OutIn(values));
    }

    /// Packs rows `first..first + count` while they are read. `read` stores the rows `rows` of `0..count`, `[rows.len(), cols]`,
    /// outputs first, and may keep a buffer for the next call on the same thread. It is called on all threads, for sixteen rows at
    /// most, so no more than that is in memory for each thread. The error is that of the first rows with one; the rows of the matrix
    /// are then unspecified. No magnitude may exceed [`Format::largest`].
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
        assert!(first + count <= self.rows, "rows {first}..{} of {}", first + count, self.rows);
        if count == 0 {
            return Ok(());
        }
        let target = Target {
            words: Disjoint::new(&mut self.words),
            group_scales: match &mut self.scales {
                Scales::Group(scales) => Some(Disjoint::new(scales)),
                _ => None,
            },
            output_scales: match &mut self.scales {
                Scales::Output(scales) => Some(Disjoint::new(scales)),
                _ => None,
            },
            outliers: self.outliers.as_mut().map(|o| Disjoint::new(&mut o.words)),
        };
        let (before, matrix, simd) = (first / LANES, &*self, exec.simd);
        let strips = (first + count).div_ceil(LANES) - before;
        let error: Mutex<Option<(usize, E)>> = Mutex::new(None);
        exec.team.split(strips, 1, 2, |part| {
            let (mut strip, mut state) = (Strip::new(matrix), S::default());
            for s in part.start + before..part.end + before {
                let rows = (s * LANES).max(first)..((s + 1) * LANES).min(first + count);
                // A whole strip overwrites all lanes of its columns.
                let kept = if rows.len() == LANES { matrix.cols } else { 0 };
                strip.lanes[kept..].fill([0.0; LANES]);
                let lane = rows.start % LANES;
                let gathered =
                    gather(rows.start - first..rows.end - first, lane, &mut strip.lanes, &mut state);
                if let Err(new) = gathered {
                    let mut error = error.lock().unwrap_or_else(PoisonError::into_inner);
                    if error.as_ref().is_none_or(|(first, _)| s < *first) {
                        *error = Some((s, new));
                    }
                    return;
                }
                let whole = rows.end == rows.start / LANES * LANES + LANES || rows.end == matrix.rows;
                let lanes = if lane == 0 && whole { 0..LANES } else { lane..lane + rows.len() };
                // SAFETY: strip `s` is written by the one member that owns it.
                unsafe { strip.write(matrix, simd, target, s, lanes) };
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
    words: Vec<u32>,
    quantised: Quantised,
    outliers: Vec<u32>,
}

impl Strip {
    fn new(matrix: &Matrix) -> Self {
        let padded = matrix.cols.next_multiple_of(BLOCK);
        Self {
            lanes: vec![[0.0; LANES]; padded],
            words: vec![0; matrix.steps() * LANES],
            quantised: Quantised::new(matrix.format, matrix.cols),
            outliers: vec![0; matrix.outliers.as_ref().map_or(0, |o| o.steps() * LANES)],
        }
    }

    /// Packs the strip and writes the lanes `keep` of it.
    ///
    /// # Safety
    /// No other thread touches strip `s` meanwhile.
    unsafe fn write(&mut self, matrix: &Matrix, simd: Simd, to: Target, s: usize, keep: Range<usize>) {
        if let Some(outliers) = &matrix.outliers {
            for (i, &col) in outliers.columns.iter().enumerate() {
                let values = std::mem::replace(&mut self.lanes[col as usize], [0.0; LANES]);
                for (lane, value) in values.into_iter().enumerate() {
                    Format::Bf16.insert(&mut self.outliers[i / 2 * LANES + lane], i, value);
                }
            }
        }
        if matrix.format.is_integer() {
            simd.run(quantise::Strip {
                format: matrix.format,
                lanes: &mut self.lanes,
                out: &mut self.quantised,
            });
        }
        let per_step = matrix.format.k_per_step();
        for (step, words) in self.words.chunks_exact_mut(LANES).enumerate() {
            for (k, values) in self.lanes.iter().enumerate().skip(step * per_step).take(per_step) {
                for (word, &value) in words.iter_mut().zip(values) {
                    matrix.format.insert(word, k, value);
                }
            }
        }
        // SAFETY: the planes of strip `s` lie within the matrix; by contract this thread alone writes them.
        unsafe {
            put(to.words, s, &self.words, &keep);
            if let Some(scales) = to.group_scales {
                put(scales, s, &self.quantised.group_scales, &keep);
            }
            if let Some(scales) = to.output_scales {
                put(scales, s, &self.quantised.output_scales, &keep);
            }
            if let Some(words) = to.outliers {
                put(words, s, &self.outliers, &keep);
            }
        }
    }
}

/// Copies the lanes `keep` of one strip's plane, rows of sixteen lanes.
///
/// # Safety
/// Plane `to` holds strip `s`, and no other thread touches it.
unsafe fn put<T: Copy>(to: Disjoint<T>, s: usize, from: &[T], keep: &Range<usize>) {
    // SAFETY: by contract.
    let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(s * from.len()), from.len()) };
    if *keep == (0..LANES) {
        return to.copy_from_slice(from);
    }
    for (to, from) in to.chunks_exact_mut(LANES).zip(from.chunks_exact(LANES)) {
        to[keep.clone()].copy_from_slice(&from[keep.clone()]);
    }
}
