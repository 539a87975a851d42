//! Keys and values of a case in one format, several times, so that they come from memory as in a model of many layers.

use redline_kernels::op::kv::{AttentionMask, KvFormat, KvPages, PAGE_TOKENS, PageShape, Segment};
use redline_kernels::{Exec, Rows};
use redline_models::random::{STEP, mix};

use super::case::Case;
use crate::bench::Result;

/// Tokens whose keys and values are made at a time.
const CHUNK: usize = 512;
/// Seeds of queries, keys and values.
const SEEDS: [u64; 3] = [1, 2, 3];

/// The pages of every sequence.
type Tables = Vec<Vec<u32>>;

pub(super) struct Cache {
    format: KvFormat,
    kv: KvPages,
    /// The same keys and values in different pages.
    copies: Vec<Tables>,
}

impl Cache {
    fn new(case: &Case, format: KvFormat, copies: usize) -> Result<Self> {
        let mut kv =
            KvPages::new(&PageShape::from(&[case.kv_shape(format)][..]), copies * case.batch * case.pages());
        let mut tables = || -> Result<Tables> {
            let mut table = || (0..case.pages()).map(|_| kv.grow()).collect::<Result<Vec<u32>, _>>();
            (0..case.batch).map(|_| Ok(table()?)).collect()
        };
        let copies = (0..copies).map(|_| tables()).collect::<Result<_>>()?;
        Ok(Self { format, kv, copies })
    }

    /// Makes the same keys and values in several formats, each so many times.
    pub(super) fn filled<const N: usize>(
        exec: Exec<'_>,
        case: &Case,
        formats: [(KvFormat, usize); N],
    ) -> Result<Vec<Self>> {
        let caches = formats.map(|(format, copies)| Self::new(case, format, copies));
        let mut caches = caches.into_iter().collect::<Result<Vec<Self>>>()?;
        let width = case.kv_heads * case.head_dim;
        let (mut k, mut v) = (vec![0f32; CHUNK * width], vec![0f32; CHUNK * width]);
        for sequence in 0..case.batch {
            for start in (0..case.context).step_by(CHUNK) {
                let rows = CHUNK.min(case.context - start);
                let first = (sequence * case.context + start) * width;
                normal(SEEDS[1], first, &mut k[..rows * width]);
                normal(SEEDS[2], first, &mut v[..rows * width]);
                let [k, v] = [&k, &v].map(|values| Rows::new(values, rows, width, width));
                for cache in &mut caches {
                    cache.store(exec, sequence, start, rows, k, v);
                }
            }
        }
        caches.iter_mut().for_each(Self::copy);
        Ok(caches)
    }

    /// Stores tokens of the first copy of a sequence.
    fn store(
        &mut self,
        exec: Exec<'_>,
        sequence: usize,
        start: usize,
        rows: usize,
        k: Rows<'_>,
        v: Rows<'_>,
    ) {
        let pages = &self.copies[0][sequence];
        let segments = [Segment { pages, start, first_row: 0, rows, attention: AttentionMask::Causal }];
        self.kv.of_batch(&segments).store(exec, 0, k, v);
    }

    /// Copies the first copy to the others.
    fn copy(&mut self) {
        let Some((first, others)) = self.copies.split_first() else { return };
        for copy in others {
            for (&from, &to) in first.iter().flatten().zip(copy.iter().flatten()) {
                self.kv.copy(from, to, PAGE_TOKENS);
            }
        }
    }

    pub(super) fn format(&self) -> KvFormat {
        self.format
    }

    pub(super) fn kv(&self) -> &KvPages {
        &self.kv
    }

    /// The pages of every sequence of a copy.
    pub(super) fn tables(&self, copy: usize) -> &[Vec<u32>] {
        &self.copies[copy]
    }

    pub(super) fn copies(&self) -> usize {
        self.copies.len()
    }
}

/// Number of copies of a case that fill `bytes` in a format, at least one.
pub(super) fn copies(case: &Case, format: KvFormat, bytes: usize) -> usize {
    bytes.div_ceil(copy_bytes(case, format)).max(1)
}

/// Bytes of the pages of one copy.
pub(super) fn copy_bytes(case: &Case, format: KvFormat) -> usize {
    case.batch * case.pages() * PageShape::from(&[case.kv_shape(format)][..]).bytes()
}

/// The queries of a case.
pub(super) fn queries(case: &Case) -> Vec<f32> {
    let mut q = vec![0f32; case.tokens() * case.width()];
    normal(SEEDS[0], 0, &mut q);
    q
}

/// Values from `first` on of an endless sequence with mean 0 and variance 1, each the scaled sum of four uniform numbers: nearly
/// normal. Sums are exact, so the values are the same on every machine.
fn normal(seed: u64, first: usize, out: &mut [f32]) {
    // The variance of a sum of four numbers from 0 to 65535.
    let scale = 1.0 / (4.0 * (65_536.0f32 * 65_536.0 - 1.0) / 12.0).sqrt();
    for (i, value) in out.iter_mut().enumerate() {
        let bits = mix(STEP.wrapping_mul((first + i) as u64 + 1).wrapping_add(seed << 32));
        let sum: i32 = (0..4).map(|part| (bits >> (16 * part) & 0xffff) as i32).sum();
        *value = (sum - 2 * 65_535) as f32 * scale;
    }
}

#[cfg(test)]
mod tests {
    use redline_kernels::{Simd, Team};

    use super::super::case::tests::CASE;
    use super::*;

    #[test]
    fn values_are_normal_and_can_be_made_in_parts() {
        let mut all = vec![0f32; 40_000];
        normal(3, 0, &mut all);
        let moment = |power: i32| all.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / 4e4;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.02, "{} {}", moment(1), moment(2));
        // Three for a normal distribution, 1.8 for a uniform one.
        assert!((moment(4) - 2.7).abs() < 0.1, "{}", moment(4));
        let mut part = vec![0f32; 100];
        normal(3, 500, &mut part);
        assert_eq!(part, all[500..600]);
        normal(4, 500, &mut part);
        assert_ne!(part, all[500..600]);
    }

    #[test]
    fn copies_fill_the_bytes_in_pages_of_their_own() {
        let one = copy_bytes(&CASE, KvFormat::W8);
        assert_eq!(one, 2 * 5 * 64 * 2 * (64 + 8), "pages are whole");
        assert_eq!([1, one, one + 1].map(|bytes| copies(&CASE, KvFormat::W8, bytes)), [1, 1, 2]);
        let team = Team::new(1).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let caches = Cache::filled(exec, &CASE, [(KvFormat::W8, 3), (KvFormat::F32, 1)]).unwrap();
        let mut pages: Vec<u32> = caches[0].copies.concat().concat();
        assert_eq!((pages.len(), caches[0].kv.len(), caches[1].kv.len()), (30, 30, 10));
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 30);
    }
}
