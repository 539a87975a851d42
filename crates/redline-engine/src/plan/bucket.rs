//! Size buckets: every pass falls into the smallest bucket that holds it.

use std::fmt;

use redline_models::Model;
use redline_models::plan::Site;

/// Maximum number of rows whose logits are evaluated at a time.
pub(crate) const OUTPUT_ROWS: usize = 64;

/// The quantity by which a pass is assigned to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketMode {
    /// Tokens of a pass; determines how the layers run.
    Pass,
    /// Rows of logits over the vocabulary; determines how the head runs.
    Logits,
}

impl BucketMode {
    /// The name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Logits => "logits",
        }
    }

    /// The layers that a plan of this mode covers.
    pub(crate) fn sites(self) -> &'static [Site] {
        match self {
            Self::Pass => Site::OF_LAYER,
            Self::Logits => Site::OF_HEAD,
        }
    }
}

/// A bucket: passes of up to `size` tokens, or logits of up to `size` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    /// The quantity by which a pass is assigned to a bucket.
    pub mode: BucketMode,
    /// The largest quantity in the bucket.
    pub size: usize,
}

impl Bucket {
    /// Bytes of activations of a pass in this bucket, or of its logits.
    pub(crate) fn activation_bytes(self, model: &Model) -> u64 {
        let size = match self.mode {
            BucketMode::Pass => model.arena_size(self.size, 0),
            BucketMode::Logits => model.arena_size(0, self.size),
        };
        size.bytes()
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.mode.name(), self.size)
    }
}

/// The sizes of buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Ascending; the last is the largest pass.
    pass: Vec<usize>,
    /// Ascending; the last is the maximum number of rows of logits that are evaluated at a time.
    logits: Vec<usize>,
    /// The sizes that were asked for, of tokens and of rows, also those above the largest pass.
    asked: [Vec<usize>; 2],
    /// Whether the engine may raise the largest pass.
    automatic: bool,
}

impl Buckets {
    /// Default sizes for prompts, in tokens.
    pub const TOKENS: &[usize] = &[64, 128, 256, 512, 1024, 2048, 4096, 8192];
    /// Default sizes for decoding sequences and for rows of logits.
    pub const ROWS: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
    /// Default for the maximum number of tokens in a pass; of encoders whose batches are cut into micro-batches, for each thread.
    pub const MAX_CHUNK: usize = 512;
    /// Upper bound of the maximum number of tokens in a pass.
    pub const MAX_TOKENS: usize = 8192;

    /// Creates the buckets from `tokens` and `rows`, up to `max_chunk`, which is always one of them; longer inputs run in
    /// several passes. A pass in which every sequence takes one token falls into a bucket of `rows`, so both lists apply to
    /// passes.
    pub fn new(tokens: &[usize], rows: &[usize], max_chunk: usize) -> Self {
        let sizes = |all: &mut dyn Iterator<Item = usize>, most: usize| {
            let mut sizes: Vec<usize> = all.filter(|&size| size > 0 && size < most).collect();
            sizes.push(most);
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        let max_chunk = max_chunk.max(1);
        Self {
            pass: sizes(&mut tokens.iter().chain(rows).copied(), max_chunk),
            logits: sizes(&mut rows.iter().copied(), OUTPUT_ROWS.min(max_chunk)),
            asked: [tokens.to_vec(), rows.to_vec()],
            automatic: false,
        }
    }

    /// Creates the buckets from `tokens` and `rows`. The largest pass has [`Buckets::MAX_CHUNK`] tokens, unless the engine, which
    /// knows the model, the threads and the memory, takes a larger one.
    pub fn automatic(tokens: &[usize], rows: &[usize]) -> Self {
        Self { automatic: true, ..Self::new(tokens, rows, Self::MAX_CHUNK) }
    }

    /// The buckets of other sizes, with the same largest pass.
    pub fn with_sizes(&self, tokens: &[usize], rows: &[usize]) -> Self {
        Self { automatic: self.automatic, ..Self::new(tokens, rows, self.max_chunk()) }
    }

    /// Whether the engine may raise the largest pass.
    pub(crate) fn is_automatic(&self) -> bool {
        self.automatic
    }

    /// The same sizes with a largest pass of `max_chunk` tokens.
    pub(crate) fn with_max_chunk(&self, max_chunk: usize) -> Self {
        let [tokens, rows] = &self.asked;
        Self::new(tokens, rows, max_chunk)
    }

    /// Maximum number of tokens in a pass.
    pub fn max_chunk(&self) -> usize {
        self.pass.last().copied().unwrap_or(Self::MAX_CHUNK)
    }

    /// All buckets: every size that the model can be run at.
    pub fn all(&self) -> Vec<Bucket> {
        let of =
            |mode, sizes: &[usize]| sizes.iter().map(move |&size| Bucket { mode, size }).collect::<Vec<_>>();
        [of(BucketMode::Pass, &self.pass), of(BucketMode::Logits, &self.logits)].concat()
    }

    /// The smallest bucket that holds `rows`, or the largest bucket of all.
    pub(crate) fn of(&self, mode: BucketMode, rows: usize) -> Bucket {
        let sizes = match mode {
            BucketMode::Pass => &self.pass,
            BucketMode::Logits => &self.logits,
        };
        let size = sizes.iter().copied().find(|&size| size >= rows).or(sizes.last().copied());
        Bucket { mode, size: size.unwrap_or(rows) }
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self::automatic(Self::TOKENS, Self::ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_fall_into_the_smallest_bucket() {
        let buckets = Buckets::default();
        let names: Vec<String> = buckets.all().iter().map(ToString::to_string).collect();
        assert_eq!(names[..3], ["pass/1", "pass/2", "pass/4"]);
        assert_eq!(names.len(), 10 + 7);
        assert_eq!((buckets.max_chunk(), names.last().unwrap().as_str()), (512, "logits/64"));
        let of = |mode, rows| buckets.of(mode, rows).size;
        assert_eq!([1, 3, 64, 65, 500, 512].map(|n| of(BucketMode::Pass, n)), [1, 4, 64, 128, 512, 512]);
        assert_eq!([1, 33, 64].map(|n| of(BucketMode::Logits, n)), [1, 64, 64]);
    }

    #[test]
    fn the_largest_pass_is_always_a_bucket() {
        let buckets = Buckets::new(&[64, 128], &[1, 2], 100);
        let sizes: Vec<usize> = buckets.all().iter().map(|bucket| bucket.size).collect();
        assert_eq!(sizes, [1, 2, 64, 100, 1, 2, 64]);
        assert_eq!(Buckets::new(&[], &[], 7).all().len(), 2);
        assert_eq!(Buckets::new(&[], &[5, 5, 0], 3).of(BucketMode::Logits, 2).size, 3);
    }

    #[test]
    fn a_larger_largest_pass_takes_in_the_sizes_below_it() {
        let buckets = Buckets::automatic(&[64, 1024, 2048], &[1, 600]);
        assert_eq!(buckets.pass, [1, 64, 512]);
        let raised = buckets.with_max_chunk(1500);
        assert_eq!((&raised.pass[..], &raised.logits[..]), (&[1, 64, 600, 1024, 1500][..], &[1, 64][..]));
        assert!(
            buckets.is_automatic() && buckets.with_sizes(&[7], &[]).is_automatic() && !raised.is_automatic()
        );
        assert_eq!(raised.with_sizes(&[7], &[]), Buckets::new(&[7], &[], 1500));
    }

    /// A canvas runs in one pass, however long it is.
    #[test]
    fn a_pass_that_is_larger_than_every_bucket_falls_into_the_largest() {
        let buckets = Buckets::default();
        for rows in [513, 5000] {
            let size = Buckets::MAX_CHUNK;
            assert_eq!(buckets.of(BucketMode::Pass, rows), Bucket { mode: BucketMode::Pass, size });
        }
        assert_eq!(buckets.of(BucketMode::Logits, 65).size, OUTPUT_ROWS);
    }
}
