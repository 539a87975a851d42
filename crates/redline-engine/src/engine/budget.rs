//! The memory budget: what it leaves for keys and values, and which requests that can never hold.

use std::fmt;

use redline_kernels::op::kv::PAGE_TOKENS;

use super::Engine;
use crate::error::EngineError;

/// What must fit a memory budget.
pub(super) struct Budget {
    pub(super) weights: u64,
    pub(super) activations: u64,
    /// Bytes of a page of keys and values.
    pub(super) page: u64,
}

impl Budget {
    /// Pages of keys and values that `memory` bytes leave; at least those of a context that was asked for.
    pub(super) fn pages(&self, memory: u64, context: Option<usize>) -> Result<usize, EngineError> {
        let pages = memory.saturating_sub(self.weights + self.activations) / self.page;
        // One page more: where sequences part, each has its own.
        let least = context.unwrap_or(1).div_ceil(PAGE_TOKENS) as u64 + 1;
        if pages >= least {
            return Ok(usize::try_from(pages).unwrap_or(usize::MAX));
        }
        let needed = self.weights + self.activations + least * self.page;
        let of = context.map_or("two pages".to_owned(), |tokens| format!("{tokens} tokens"));
        let fact = format!(
            "a memory budget of {} MiB does not hold {} MiB of weights, {} MiB of activations and {} MiB for keys and \
             values of {of}",
            memory >> 20,
            mib(self.weights),
            mib(self.activations),
            mib(least * self.page)
        );
        let hint = format!(
            "give `--memory {}MiB` or more, a smaller `--max-context` or a smaller `--format`",
            mib(needed)
        );
        Err(EngineError::request(fact, hint))
    }
}

/// Bytes in MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl Engine {
    /// Refuses sequences that would never fit the memory budget together, with `spare` pages besides.
    pub(super) fn check_room(
        &self,
        what: fmt::Arguments<'_>,
        tokens: &[usize],
        spare: usize,
    ) -> Result<(), EngineError> {
        let Some(budget) = self.info.kv_budget_bytes else { return Ok(()) };
        let page = self.info.kv_bytes_per_token * PAGE_TOKENS as u64;
        let pages = tokens.iter().map(|tokens| tokens.div_ceil(PAGE_TOKENS)).sum::<usize>() + spare;
        let needed = pages as u64 * page;
        if needed <= budget {
            return Ok(());
        }
        let fact = format!(
            "{what}: {} tokens need room for {}, in pages of {PAGE_TOKENS}, and the memory budget leaves room for {}",
            tokens.iter().sum::<usize>(),
            pages * PAGE_TOKENS,
            budget / self.info.kv_bytes_per_token
        );
        Err(EngineError::request(fact, "give more `--memory`, or shorten it"))
    }
}
