//! The stand-in for the model: logits are a digest of the tokens before them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::op::kv::{AttentionMask, PAGE_TOKENS};
use redline_kernels::{Exec, OutOfMemory, Rows, Simd, Team};
use redline_models::adapter::Adapters;
use redline_models::kv::{KvCache, PageStore};
use redline_models::model::Batch;

use crate::heartbeat::machine::{Logits, Machine, Outputs};
use crate::plan::Forbidden;

/// Number of ids that the digests distinguish.
pub(super) const VOCABULARY: usize = 24;

/// Pages that hold the tokens themselves.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<[u32; PAGE_TOKENS]>);

impl PageStore for Ledger {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self) -> Result<u32, OutOfMemory> {
        self.0.push([u32::MAX; PAGE_TOKENS]);
        Ok(self.0.len() as u32 - 1)
    }

    fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let mut page = [u32::MAX; PAGE_TOKENS];
        page[..tokens].copy_from_slice(&self.0[from as usize][..tokens]);
        self.0[to as usize] = page;
    }
}

/// The digest of no tokens.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// The digest with one more token (like FNV-1a, over ids).
fn extended(digest: u64, token: u32) -> u64 {
    (digest ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
}

/// The digest of a sequence of tokens.
pub(super) fn digest(tokens: impl Iterator<Item = u32>) -> u64 {
    tokens.fold(EMPTY, extended)
}

/// The digest of the last tokens, of which a row sees `window`; of all, if there is no window.
pub(super) fn seen_digest(tokens: &[u32], window: Option<usize>) -> u64 {
    let first = window.map_or(0, |window| tokens.len().saturating_sub(window));
    digest(tokens[first..].iter().copied())
}

/// The digest of a canvas as the row at `position` sees it.
pub(super) fn canvas_digest(tokens: impl Iterator<Item = u32>, position: usize) -> u64 {
    digest(tokens.chain([position as u32]))
}

/// The logits after tokens with this digest.
pub(super) fn logits(digest: u64) -> [f32; VOCABULARY] {
    std::array::from_fn(|id| {
        let mixed =
            (digest ^ (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed >> 40) as f32) / 16_777_216.0 * 8.0 - 4.0
    })
}

/// `ln(sum e^logit)`.
pub(super) fn normaliser(logits: &[f32]) -> f64 {
    libm::log(logits.iter().map(|&x| libm::exp(f64::from(x))).sum())
}

/// A machine that computes digests instead of running a model.
pub(crate) struct Digests {
    team: Team,
    simd: Simd,
    clock: Arc<AtomicU64>,
}

impl Digests {
    pub(crate) fn new(team: Team, clock: Arc<AtomicU64>) -> Self {
        Self { team, simd: Simd::best(), clock }
    }
}

impl Machine for Digests {
    type Pages = Ledger;
    type Labels = Vec<u32>;

    fn labels(&self, ids: &[u32], _: &Adapters) -> Result<Vec<u32>, OutOfMemory> {
        Ok(ids.to_vec())
    }

    fn reserve(&mut self, _positions: usize, _rows: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn prepare(&mut self, _tokens: usize, _rows: &[usize]) -> Result<u64, Forbidden> {
        Ok(0)
    }

    fn run(
        &mut self,
        kv: &mut KvCache<Ledger>,
        (batch, run): (&Batch, &[usize]),
        outputs: &[Outputs<'_, Vec<u32>>],
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) {
        // Tokens are written first; then each row reads everything before it, as in a pass of a model.
        let mut first = 0;
        for part in batch.parts() {
            let pages = kv.pages(part.sequence).to_vec();
            for (i, &token) in batch.tokens()[first..first + part.tokens].iter().enumerate() {
                let position = part.start + i;
                kv.store_mut().0[pages[position / PAGE_TOKENS] as usize][position % PAGE_TOKENS] = token;
            }
            first += part.tokens;
        }
        let (window, mut digests) = (kv.window(), Vec::with_capacity(batch.rows()));
        for part in batch.parts() {
            let pages = kv.pages(part.sequence).to_vec();
            let store = kv.store_mut();
            let token = |p: usize| store.0[pages[p / PAGE_TOKENS] as usize][p % PAGE_TOKENS];
            let rows = part.start..part.start + part.tokens;
            match part.attention {
                AttentionMask::Causal => match window {
                    None => {
                        let mut before = digest((0..part.start).map(token));
                        digests.extend(rows.map(|position| {
                            before = extended(before, token(position));
                            before
                        }));
                    }
                    Some(window) => digests.extend(rows.map(|position| {
                        digest(((position + 1).saturating_sub(window)..=position).map(token))
                    })),
                },
                AttentionMask::Bidirectional(keys) => {
                    let all = digest((0..keys).map(token));
                    digests.extend(rows.map(|position| extended(all, position as u32)));
                }
            }
            kv.store(part.sequence, part.start + part.tokens);
        }
        let exec = Exec { simd: self.simd, team: &self.team };
        for (index, wanted) in outputs.iter().enumerate() {
            let rows: Vec<[f32; VOCABULARY]> =
                wanted.rows.iter().map(|&row| logits(digests[run[row]])).collect();
            let sums: Vec<f64> = rows.iter().map(|row| normaliser(row)).collect();
            let (values, width): (Vec<f32>, usize) = match wanted.labels {
                None => (rows.concat(), VOCABULARY),
                Some(ids) => {
                    (rows.iter().flat_map(|row| ids.iter().map(|&id| row[id as usize])).collect(), ids.len())
                }
            };
            let rows = Rows::new(&values, wanted.rows.len(), width, width);
            let zeros = vec![0.0; sums.len()];
            let log_sum_exp = if wanted.normalise { &sums } else { &zeros };
            read(index, Logits { exec, rows, log_sum_exp });
        }
        let nanoseconds = 10_000 + 300 * batch.rows() as u64;
        self.clock.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}
