//! What the engine's thread owns: the model, its cache, its memory, its threads.

use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::{Exec, Matrix, Simd, Team};
use redline_models::Model;
use redline_models::kv::{KvCache, SeqId};
use redline_models::model::Batch;
use redline_models::step::Arena;

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::options::Clock;
use crate::prefix_cache::PrefixCache;

/// Most rows whose logits are evaluated in one pass.
pub(crate) const OUTPUT_ROWS: usize = 64;
/// Most tokens of one pass; longer inputs are run in pieces of this size.
pub(crate) const CHUNK_TOKENS: usize = 512;

pub(crate) struct Core {
    pub(crate) model: Model,
    pub(crate) kv: KvCache,
    pub(crate) arena: Arena,
    pub(crate) team: Team,
    pub(crate) simd: Simd,
    pub(crate) clock: Clock,
    pub(crate) batch: Batch,
    /// What earlier requests left, where it is kept.
    pub(crate) prefixes: Option<PrefixCache<SeqId>>,
}

/// Fewer tokens are not worth the page they would hold.
const LEAST_KEPT: usize = 16;

/// Logits of one row, over the whole vocabulary or over labels.
pub(crate) struct LogitsRow<'a> {
    pub(crate) logits: &'a [f32],
    /// `ln(sum e^logit)`; 0 where it was not asked for.
    pub(crate) log_sum_exp: f64,
}

impl Core {
    /// Seconds since `start` on the engine's clock.
    pub(crate) fn seconds_since(&self, start: u64) -> f64 {
        ((self.clock)().saturating_sub(start)) as f64 * 1e-9
    }

    /// Makes room for `more` tokens of a sequence; what earlier requests left gives way, the least recently used first.
    pub(crate) fn reserve(&mut self, sequence: SeqId, more: usize) -> Result<(), EngineError> {
        let end = self.kv.tokens(sequence) + more;
        self.model.reserve_positions(end)?;
        loop {
            let Err(error) = self.kv.reserve(sequence, more) else { return Ok(()) };
            if !self.give_way() {
                return Err(error.into());
            }
        }
    }

    /// Lets go of what earlier requests left, the least recently used; whether there was anything.
    fn give_way(&mut self) -> bool {
        let kept = self.prefixes.as_mut().and_then(PrefixCache::evict);
        if let Some(kept) = kept {
            self.kv.release(kept);
        }
        kept.is_some()
    }

    /// Makes room for so many pages besides what is in use, if what earlier requests left can give way; whether there is.
    pub(crate) fn make_room(&mut self, pages: usize) -> bool {
        while self.kv.room() < pages {
            if !self.give_way() {
                return false;
            }
        }
        true
    }

    /// How many of these tokens the prefix cache has; `None` where it is off.
    pub(crate) fn cached(&self, salt: &str, tokens: &[u32]) -> Option<usize> {
        self.prefixes.as_ref().map(|prefixes| prefixes.matching(salt, tokens))
    }

    /// A sequence that begins with as many of these tokens as the prefix cache has.
    pub(crate) fn begin(&mut self, salt: &str, tokens: &[u32]) -> SeqId {
        match self.prefixes.as_mut().and_then(|prefixes| prefixes.find(salt, tokens)) {
            Some((kept, matched)) => self.kv.fork(kept, matched),
            None => self.kv.create(),
        }
    }

    /// Keeps what a sequence has stored, of these tokens, for later requests.
    pub(crate) fn keep(&mut self, salt: &str, tokens: &[u32], sequence: SeqId) {
        let tokens = &tokens[..tokens.len().min(self.kv.tokens(sequence))];
        let Some(prefixes) = self.prefixes.as_mut().filter(|_| tokens.len() >= LEAST_KEPT) else { return };
        let kept = self.kv.fork(sequence, tokens.len());
        if let Some(unneeded) = prefixes.insert(salt, tokens, kept) {
            self.kv.release(unneeded);
        }
    }

    /// Runs `tokens` of one sequence without asking for logits; stops early between pieces when `cancel` says so.
    pub(crate) fn fill(
        &mut self,
        sequence: SeqId,
        tokens: &[u32],
        cancel: &Cancel,
    ) -> Result<(), EngineError> {
        for piece in tokens.chunks(CHUNK_TOKENS) {
            if cancel.is_cancelled() {
                break;
            }
            self.batch.clear();
            self.push(sequence, piece)?;
            let exec = Exec { simd: self.simd, team: &self.team };
            self.model.run(exec, &mut self.arena, &mut self.kv, &self.batch, |_, _, _| ());
        }
        Ok(())
    }

    /// Adds tokens of a sequence to the next pass.
    pub(crate) fn push(&mut self, sequence: SeqId, tokens: &[u32]) -> Result<(), EngineError> {
        self.reserve(sequence, tokens.len())?;
        self.batch.push(sequence, self.kv.tokens(sequence), tokens);
        Ok(())
    }

    /// Runs the batch and hands `read` the logits of `rows` (at most [`OUTPUT_ROWS`]), one by one, over `labels` or over
    /// the whole vocabulary.
    pub(crate) fn run(
        &mut self,
        rows: &[usize],
        labels: Option<&Matrix>,
        normalise: bool,
        mut read: impl FnMut(usize, LogitsRow<'_>),
    ) {
        let exec = Exec { simd: self.simd, team: &self.team };
        self.model.run(exec, &mut self.arena, &mut self.kv, &self.batch, |model, x, step| {
            let logits = model.logits(x, rows, labels.unwrap_or_else(|| model.head()), step);
            let values = step.read(logits);
            let mut sums = [0f64; OUTPUT_ROWS];
            if normalise {
                log_sum_exp(exec, values, &mut sums);
            }
            for (r, &log_sum_exp) in sums[..rows.len()].iter().enumerate() {
                read(r, LogitsRow { logits: values.row(r), log_sum_exp });
            }
        });
    }
}
