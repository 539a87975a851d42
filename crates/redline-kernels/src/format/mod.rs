//! Weight formats: one file each, one line each in [`Format::ALL`].
//!
//! Every format stores a matrix as strips of sixteen output rows, `[steps][16]` words, so that one vector load
//! brings the same step of sixteen outputs.

pub mod bf16;
pub mod float32;

use redline_simd::{Isa, LANES};

use crate::memory::{Buffer, OutOfMemory};

/// How weights (or keys and values) are held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit floats, as they are.
    F32,
    /// bf16, magnitudes below 2^-55 flushed to +0; inputs are rounded alike.
    Bf16,
}

impl Format {
    /// Every format there is.
    pub const ALL: &[Format] = &[float32::FORMAT, bf16::FORMAT];

    /// The name used by `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Elements of k in one step (one input word).
    pub(crate) fn k_per_step(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
        }
    }

    /// Steps that `k` elements take.
    pub fn steps(self, k: usize) -> usize {
        k.div_ceil(self.k_per_step())
    }

    /// Puts one value at element `k` of a strip's lane; `word` is the word of that step and lane.
    #[inline(always)]
    pub(crate) fn insert(self, word: &mut u32, k: usize, value: f32) {
        match self {
            Self::F32 => float32::insert(word, value),
            Self::Bf16 => bf16::insert(word, k, value),
        }
    }

    /// The value of element `k`, from the word of its step.
    #[inline(always)]
    pub(crate) fn extract(self, word: u32, k: usize) -> f32 {
        match self {
            Self::F32 => float32::extract(word),
            Self::Bf16 => bf16::extract(word, k),
        }
    }
}

/// Multiply-accumulate of one step: what a tile needs to know of a format.
pub(crate) trait Mac: 'static {
    /// u32 words that one strip takes per step.
    const WORDS: usize;
    /// Sixteen weights (or weight pairs) in a register.
    type Weight<S: Isa>: Copy;
    /// One input word in all lanes.
    type Input<S: Isa>: Copy;
    /// # Safety
    /// `p` is valid for reading [`Mac::WORDS`] words.
    unsafe fn weight<S: Isa>(s: S, p: *const u32) -> Self::Weight<S>;
    fn input<S: Isa>(s: S, word: u32) -> Self::Input<S>;
    fn mac<S: Isa>(s: S, acc: S::F, w: Self::Weight<S>, x: Self::Input<S>) -> S::F;
}

/// A weight matrix `[rows = outputs, cols = k]`, packed in strips of sixteen rows; rows beyond the last are zero.
#[derive(Debug)]
pub struct Matrix {
    format: Format,
    rows: usize,
    cols: usize,
    words: Buffer<u32>,
}

/// Columns packed together, so that the words of a strip stay in the first-level cache meanwhile.
const PACK_COLS: usize = 256;

impl Matrix {
    /// A matrix of zeros.
    pub fn zeroed(format: Format, rows: usize, cols: usize) -> Result<Self, OutOfMemory> {
        let strip = format.steps(cols).checked_mul(LANES);
        let words = strip.and_then(|strip| rows.div_ceil(LANES).checked_mul(strip));
        let words = Buffer::zeroed(words.ok_or(OutOfMemory { bytes: usize::MAX })?)?;
        Ok(Self { format, rows, cols, words })
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

    /// Strips of sixteen rows.
    pub fn strips(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    pub(crate) fn steps(&self) -> usize {
        self.format.steps(self.cols)
    }

    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    fn word_at(&self, row: usize, col: usize) -> usize {
        let step = col / self.format.k_per_step();
        (row / LANES * self.steps() + step) * LANES + row % LANES
    }

    /// Packs rows `first..` from `values`, `[count, cols]`, outputs first (`nn.Linear`).
    pub fn set_rows(&mut self, first: usize, values: &[f32]) {
        assert!(
            self.cols > 0 && values.len() % self.cols == 0 && first + values.len() / self.cols <= self.rows
        );
        for start in (0..self.cols).step_by(PACK_COLS) {
            let end = (start + PACK_COLS).min(self.cols);
            for (r, row) in values.chunks_exact(self.cols).enumerate() {
                for col in start..end {
                    let at = self.word_at(first + r, col);
                    self.format.insert(&mut self.words[at], col, row[col]);
                }
            }
        }
    }

    /// Packs rows `first..first + count` from `values`, `[cols, count]`, inputs first (GPT-2's `Conv1D`).
    pub fn set_rows_transposed(&mut self, first: usize, values: &[f32]) {
        assert!(
            self.cols > 0 && values.len() % self.cols == 0 && first + values.len() / self.cols <= self.rows
        );
        let count = values.len() / self.cols;
        for (col, column) in values.chunks_exact(count).enumerate() {
            for (r, &value) in column.iter().enumerate() {
                let at = self.word_at(first + r, col);
                self.format.insert(&mut self.words[at], col, value);
            }
        }
    }

    /// Row `row` as f32, exactly as the linear layer sees it.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.cols,
            "row {row} of {}, {} columns",
            self.rows,
            out.len()
        );
        for (col, value) in out.iter_mut().enumerate() {
            *value = self.format.extract(self.words[self.word_at(row, col)], col);
        }
    }

    /// The rows `ids`, in that order, as a matrix of their own with the same bits.
    pub fn gather(&self, ids: &[u32]) -> Result<Self, OutOfMemory> {
        let mut gathered = Self::zeroed(self.format, ids.len(), self.cols)?;
        for (row, &id) in ids.iter().enumerate() {
            assert!((id as usize) < self.rows, "row {id} of {}", self.rows);
            for step in 0..self.steps() {
                let col = step * self.format.k_per_step();
                let (to, from) = (gathered.word_at(row, col), self.word_at(id as usize, col));
                gathered.words[to] = self.words[from];
            }
        }
        Ok(gathered)
    }
}
