//! Fills a matrix from rows of integers and scales as files hold them, strip by strip, without a detour over values.

use std::ops::Range;

use redline_simd::LANES;

use super::pack::StripPlanes;
use super::{Element, Matrix, Plane, planes::QUAD};
use crate::Exec;
use crate::format::{BLOCK, Codes, Format, Minima, Scaling};

/// Rows of integers and scales, sixteen at most.
#[derive(Debug)]
pub struct QuantisedRows {
    rows: usize,
    codes: Vec<i8>,
    scales: Vec<u16>,
    minima: Vec<u16>,
    sub_scales: Vec<i8>,
    sub_minima: Vec<u8>,
}

/// One row of [`QuantisedRows`]. What the format lacks is empty.
#[derive(Debug)]
pub struct QuantisedRow<'a> {
    /// The integers that scales multiply, or for formats with a table their indices.
    pub codes: &'a mut [i8],
    /// One per group of k, as f16 bits; for `mxfp4` the exponents.
    pub scales: &'a mut [u16],
    /// As many minima, as f16 bits; with integer minima, their factors.
    pub minima: &'a mut [u16],
    /// One per sub-group of k.
    pub sub_scales: &'a mut [i8],
    /// One per sub-group of k.
    pub sub_minima: &'a mut [u8],
}

impl QuantisedRows {
    fn new(format: Format, cols: usize) -> Self {
        let groups = format.groups_in(cols);
        let (sub_scales, sub_minima) = match format.scaling() {
            Scaling::Super { sub, minima } => (cols / sub, if minima { cols / sub } else { 0 }),
            _ => (0, 0),
        };
        let minima = if format.minima() == Minima::None { 0 } else { groups };
        Self {
            rows: 0,
            codes: vec![0; cols * LANES],
            scales: vec![0; groups * LANES],
            minima: vec![0; minima * LANES],
            sub_scales: vec![0; sub_scales * LANES],
            sub_minima: vec![0; sub_minima * LANES],
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Row `r`, to be filled.
    pub fn row(&mut self, r: usize) -> QuantisedRow<'_> {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        fn part<T>(all: &mut [T], r: usize) -> &mut [T] {
            let len = all.len() / LANES;
            &mut all[r * len..][..len]
        }
        QuantisedRow {
            codes: part(&mut self.codes, r),
            scales: part(&mut self.scales, r),
            minima: part(&mut self.minima, r),
            sub_scales: part(&mut self.sub_scales, r),
            sub_minima: part(&mut self.sub_minima, r),
        }
    }
}

impl Matrix {
    /// Packs rows `first..first + count` while their integers and scales are read; the format has groups of whole blocks of 32 k. `read`
    /// fills the rows `rows` of `0..count`, and may keep a buffer for the next call on the same thread. It is called on all threads,
    /// for sixteen rows at most. The error is that of the first rows with one; the rows of the matrix are then unspecified.
    pub fn read_quantised_rows<B: Default, E: Send>(
        &mut self,
        exec: Exec<'_>,
        first: usize,
        count: usize,
        read: impl Fn(Range<usize>, &mut QuantisedRows, &mut B) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let format = self.format;
        assert!(format.is_integer() && format.group() != Some(0), "{format} has no scales of groups");
        assert!(self.columns.is_empty() && self.cols % BLOCK == 0, "{} columns of blocks", self.cols);
        let new = |matrix: &Self| (QuantisedRows::new(format, matrix.cols), B::default());
        self.fill(exec, first, count, new, |matrix, range, lane, planes, (rows, buffer)| {
            rows.rows = range.len();
            read(range.clone(), rows, buffer)?;
            if range.len() < LANES {
                for plane in &mut *planes {
                    plane.fill(0);
                }
            }
            for r in 0..range.len() {
                pack_row(matrix, &rows.row(r), lane + r, planes);
            }
            Ok(())
        })
    }
}

/// Stores a row in a lane of a strip.
fn pack_row(matrix: &Matrix, row: &QuantisedRow<'_>, lane: usize, planes: &mut StripPlanes) {
    let [words, scales, minima, sub_scales, sub_minima, _] = planes;
    let codes = matrix.format.codes();
    let mut words = words.iter_mut().skip(lane).step_by(LANES);
    debug_assert_eq!(words.len(), codes.steps(row.codes.len()));
    // Constant chunk sizes let the compiler vectorise `pack`.
    if let Codes::Split { high, offset } = codes {
        for of_block in row.codes.chunks_exact(32 / high) {
            Codes::pack_split((high, offset), of_block, &mut words);
        }
    } else if codes.k_per_step() == 4 {
        words.zip(row.codes.as_chunks::<4>().0).for_each(|(word, of_word)| *word = codes.pack(of_word));
    } else {
        words.zip(row.codes.as_chunks::<8>().0).for_each(|(word, of_word)| *word = codes.pack(of_word));
    }
    let powers = matrix.plane(Plane::Scales).element == Element::Bf16;
    for (group, &scale) in row.scales.iter().enumerate() {
        set_half(scales, group * LANES + lane, if powers { half_of_power(scale) } else { scale });
    }
    for (group, &minimum) in row.minima.iter().enumerate() {
        set_half(minima, group * LANES + lane, minimum);
    }
    for (quad, bytes) in row.sub_scales.as_chunks::<QUAD>().0.iter().enumerate() {
        sub_scales[quad * LANES + lane] = u32::from_le_bytes(bytes.map(i8::cast_unsigned));
    }
    for (quad, bytes) in row.sub_minima.as_chunks::<QUAD>().0.iter().enumerate() {
        sub_minima[quad * LANES + lane] = u32::from_le_bytes(*bytes);
    }
}

fn set_half(words: &mut [u32], at: usize, half: u16) {
    let shift = at % 2 * 16;
    words[at / 2] = words[at / 2] & !(0xffff << shift) | u32::from(half) << shift;
}

/// `2^(exponent - 128)` as bf16; the two smallest are subnormal.
fn half_of_power(exponent: u16) -> u16 {
    let exponent = exponent & 0xff;
    if exponent < 2 { 0x0020 << exponent } else { (exponent - 1) << 7 }
}
