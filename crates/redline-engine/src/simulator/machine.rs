//! The stand-in for the model: logits are a digest of the tokens before them and of the adapters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::op::kv::{AttentionMask, ConvInputs, PAGE_TOKENS};
use redline_kernels::{Exec, OutOfMemory, Rows, Simd, Team};
use redline_models::adapter::Adapters;
use redline_models::kv::{KvCache, PageStore, StateShape};
use redline_models::model::{Batch, BatchPart};
use redline_models::row_digests::RowDigests;

use crate::heartbeat::machine::{Machine, Outputs};
use crate::task::RowOutput;
use crate::task::logits::Logits;

/// Number of ids that the digests distinguish.
pub(super) const VOCABULARY: usize = 24;

/// Maximum number of inputs in a page.
const MAX_SLOTS: usize = 8;
/// Number of cells of a page: tokens, then inputs.
const CELLS: usize = PAGE_TOKENS + MAX_SLOTS;

/// Pages that hold the tokens themselves, each with the adapters that it was run with; and the last inputs of a layer that is a
/// convolution, each with its position.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<[u64; CELLS]>);

impl Ledger {
    /// What a page holds of a token.
    pub(crate) fn cell(&mut self, (page, token): (u32, usize)) -> &mut u64 {
        &mut self.0[page as usize][token]
    }
}

impl PageStore for Ledger {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self) -> Result<u32, OutOfMemory> {
        self.0.push([u64::MAX; CELLS]);
        Ok(self.0.len() as u32 - 1)
    }

    fn copy_state(&mut self, from: u32, to: u32) {
        self.0[to as usize] = self.0[from as usize];
    }

    fn clear_state(&mut self, page: u32) {
        self.0[page as usize].fill(0);
    }

    fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let mut page = self.0[from as usize];
        page[tokens..PAGE_TOKENS].fill(u64::MAX);
        self.0[to as usize] = page;
    }

    fn export(&self, page: u32, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend(self.0[page as usize].iter().flat_map(|cell| cell.to_le_bytes()));
    }

    fn import(&mut self, page: u32, bytes: &[u8]) {
        for (cell, bytes) in self.0[page as usize].iter_mut().zip(bytes.as_chunks().0) {
            *cell = u64::from_le_bytes(*bytes);
        }
    }
}

/// The digest of nothing.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// The digest with one more value (like FNV-1a, over words).
fn extended(digest: u64, value: u64) -> u64 {
    (digest ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
}

/// The digest of a sequence of values.
fn digest(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(EMPTY, extended)
}

/// A number for a combination of adapters, each with its bytes, which are different for each, and its scale; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(u32);

impl Mark {
    pub(super) fn new(uses: impl Iterator<Item = (u64, f32)>) -> Self {
        let add = |sum: u64, (bytes, scale): (u64, f32)| {
            extended(extended(sum, bytes), u64::from(scale.to_bits())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        Self((uses.fold(0, add) >> 32) as u32)
    }

    fn of(uses: &Adapters) -> Self {
        Self::new(uses.iter().map(|one| (one.adapter.bytes(), one.scale)))
    }

    /// What a page holds of a token.
    fn cell(self, token: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(token)
    }

    /// The logits of a row that sees cells with this digest.
    fn logits(self, digest: u64) -> [f32; VOCABULARY] {
        let digest = extended(digest, u64::from(self.0));
        std::array::from_fn(|id| {
            let mixed = (digest ^ (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .wrapping_mul(0xff51_afd7_ed55_8ccd);
            ((mixed >> 40) as f32) / 16_777_216.0 * 8.0 - 4.0
        })
    }
}

/// The stand-in for the model, as a request sees it that runs alone, without pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandIn {
    /// Number of tokens that a row sees.
    pub(super) window: Option<usize>,
    /// The shape of the inputs of a convolution, if there is one.
    pub(super) inputs: Option<ConvInputs>,
    /// The shape of the states of a recurrence, if there is one.
    pub(super) states: Option<StateShape>,
    pub(super) adapters: Mark,
}

/// The input of a convolution at a position.
fn input(cell: u64, position: usize) -> u64 {
    extended(extended(EMPTY, cell), position as u64)
}

impl StandIn {
    /// The logits after these tokens.
    pub(super) fn after(self, tokens: &[u32]) -> [f32; VOCABULARY] {
        let first = self.window.map_or(0, |window| tokens.len().saturating_sub(window));
        let mut seen = digest(tokens[first..].iter().map(|&token| self.adapters.cell(token)));
        if self.states.is_some() {
            // A recurrence has no window.
            let state = tokens.iter().fold(0, |state, &token| extended(state, self.adapters.cell(token)));
            seen = extended(seen, state);
        }
        let Some(ConvInputs { rows, .. }) = self.inputs else { return self.adapters.logits(seen) };
        let last = tokens.len() - 1;
        let inputs = (last.saturating_sub(rows)..last).map(|at| input(self.adapters.cell(tokens[at]), at));
        self.adapters.logits(inputs.fold(seen, extended))
    }

    /// The logits of the row at `position` of a canvas.
    pub(super) fn on_canvas(self, tokens: impl Iterator<Item = u32>, position: usize) -> [f32; VOCABULARY] {
        let all = digest(tokens.map(|token| self.adapters.cell(token)));
        self.adapters.logits(extended(all, position as u64))
    }
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
    /// The inputs of a convolution, if there is one.
    inputs: Option<ConvInputs>,
    /// Whether there is a recurrence.
    recurs: bool,
}

impl Digests {
    pub(crate) fn new(team: Team, clock: Arc<AtomicU64>) -> Self {
        Self { team, simd: Simd::best(), clock, inputs: None, recurs: false }
    }

    /// A machine with a convolution and a recurrence, or without.
    pub(super) fn like(self, model: StandIn) -> Self {
        Self { inputs: model.inputs, recurs: model.states.is_some(), ..self }
    }

    /// For each row of a part of the batch, the state after its token. The first page of a state holds the state and the cells of tokens
    /// after it, its log; the others hold the same state. Stores the state before the drafts, and their cells.
    fn recur(kv: &mut KvCache<Ledger>, part: &BatchPart) -> Vec<u64> {
        let (pages, at) = kv.state(part.sequence);
        let (pages, logged) = (pages.to_vec(), part.start - at);
        let of_tokens = kv.pages(part.sequence).to_vec();
        let store = kv.store_mut();
        let mut state = store.0[pages[0] as usize][0];
        assert!(pages.iter().all(|page| store.0[*page as usize][0] == state), "pages of different states");
        for cell in &store.0[pages[0] as usize][1..=logged] {
            state = extended(state, *cell);
        }
        let (mut log, mut states, mut sure) = (Vec::new(), Vec::new(), state);
        for i in 0..part.tokens {
            let at = part.start + i;
            let cell = store.0[of_tokens[at / PAGE_TOKENS] as usize][at % PAGE_TOKENS];
            state = extended(state, cell);
            states.push(state);
            if i < part.tokens - part.drafts {
                sure = state;
            } else {
                log.push(cell);
            }
        }
        for page in pages {
            let page = &mut store.0[page as usize];
            page[0] = sure;
            page[1..=log.len()].copy_from_slice(&log);
        }
        states
    }

    /// For each row of a part of the batch, the inputs of the rows before it that it reads: those of earlier passes from the pages.
    /// Stores the inputs that later rows need.
    fn convolve(&self, pages: &[u32], store: &mut Ledger, part: &BatchPart) -> Vec<Vec<u64>> {
        let Some(shape) = self.inputs else { return vec![Vec::new(); part.tokens] };
        let (start, end) = (part.start, part.start + part.tokens);
        let place =
            |at: usize| (pages[at / PAGE_TOKENS] as usize, PAGE_TOKENS + at % PAGE_TOKENS % shape.slots);
        let first = start.saturating_sub(shape.rows);
        let mut all: Vec<u64> = (first..start).map(|at| store.0[place(at).0][place(at).1]).collect();
        all.extend((start..end).map(|at| input(store.0[place(at).0][at % PAGE_TOKENS], at)));
        for at in (start..end).filter(|at| shape.holds(*at, end)) {
            store.0[place(at).0][place(at).1] = all[at - first];
        }
        (start..end)
            .map(|at| all[at.saturating_sub(shape.rows).max(first) - first..at - first].to_vec())
            .collect()
    }

    /// For each row of a part of the batch, the digest of all that it reads.
    fn seen(&self, kv: &mut KvCache<Ledger>, part: &BatchPart) -> Vec<u64> {
        let (window, pages) = (kv.window(), kv.pages(part.sequence).to_vec());
        let inputs = self.convolve(&pages, kv.store_mut(), part);
        let states = if self.recurs { Self::recur(kv, part) } else { Vec::new() };
        let store = kv.store_mut();
        let cell = |p: usize| store.0[pages[p / PAGE_TOKENS] as usize][p % PAGE_TOKENS];
        let rows = part.start..part.start + part.tokens;
        let mut digests: Vec<u64> = match (part.attention, window) {
            (AttentionMask::Causal, None) => {
                let mut before = digest((0..part.start).map(cell));
                let next = |position| {
                    before = extended(before, cell(position));
                    before
                };
                rows.map(next).collect()
            }
            (AttentionMask::Causal, Some(window)) => {
                let first = |position: usize| (position + 1).saturating_sub(window);
                rows.map(|position| digest((first(position)..=position).map(cell))).collect()
            }
            (AttentionMask::Bidirectional(keys), _) => {
                let all = digest((0..keys).map(cell));
                rows.map(|position| extended(all, position as u64)).collect()
            }
        };
        for (digest, state) in digests.iter_mut().zip(states) {
            *digest = extended(*digest, state);
        }
        for (digest, inputs) in digests.iter_mut().zip(inputs) {
            *digest = inputs.into_iter().fold(*digest, extended);
        }
        digests
    }
}

impl Machine for Digests {
    type Pages = Ledger;
    type Labels = (Vec<u32>, Mark);

    fn labels(&self, ids: &[u32], adapters: &Adapters) -> Result<(Vec<u32>, Mark), OutOfMemory> {
        Ok((ids.to_vec(), Mark::of(adapters)))
    }

    fn run(
        &mut self,
        kv: &mut KvCache<Ledger>,
        (batch, run): (&Batch, &[usize]),
        outputs: &[Outputs<'_, (Vec<u32>, Mark)>],
        _digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) {
        // Tokens are written first; then each row reads everything before it, as in a pass of a model.
        let mut first = 0;
        for part in batch.parts() {
            let (pages, mark) = (kv.pages(part.sequence).to_vec(), Mark::of(&part.adapters));
            for (i, &token) in batch.tokens()[first..first + part.tokens].iter().enumerate() {
                let position = part.start + i;
                kv.store_mut().0[pages[position / PAGE_TOKENS] as usize][position % PAGE_TOKENS] =
                    mark.cell(token);
            }
            first += part.tokens;
        }
        let (mut digests, mut marks) = (Vec::new(), Vec::new());
        for part in batch.parts() {
            marks.extend(std::iter::repeat_n(Mark::of(&part.adapters), part.tokens));
            digests.extend(self.seen(kv, part));
            kv.store_with_drafts(part.sequence, part.start + part.tokens, part.drafts);
        }
        let exec = Exec { simd: self.simd, team: &self.team };
        for (index, wanted) in outputs.iter().enumerate() {
            let logits = |&row: &usize| {
                let mark = match wanted.output {
                    RowOutput::Labels((_, of_labels)) => *of_labels,
                    RowOutput::Vocabulary | RowOutput::State => marks[run[row]],
                };
                mark.logits(digests[run[row]])
            };
            let rows: Vec<[f32; VOCABULARY]> = wanted.rows.iter().map(logits).collect();
            let sums: Vec<f64> = rows.iter().map(|row| normaliser(row)).collect();
            let (values, width): (Vec<f32>, usize) = match wanted.output {
                RowOutput::Vocabulary | RowOutput::State => (rows.concat(), VOCABULARY),
                RowOutput::Labels((ids, _)) => {
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
