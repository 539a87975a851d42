//! The memory budget: what it leaves for keys and values, and which requests that can never hold.

use std::fmt;

use redline_hint::{Setting, hint};
use redline_kernels::op::kv::PAGE_TOKENS;

use super::Engine;
use crate::error::EngineError;

/// What must fit a memory budget.
pub(super) struct Budget {
    pub(super) weights: u64,
    pub(super) activations: u64,
    /// Bytes of a page of keys and values.
    pub(super) page: u64,
    /// Bytes of activations that a token of a canvas takes, where the model fills masks: canvases are run in one pass, whatever
    /// they take.
    pub(super) canvas_row: Option<u64>,
}

/// Bytes that passes over so many tokens of canvases may take besides the activations that are set aside at load. Their
/// memory grows by being taken anew while the old is still there, which had as many.
pub(super) fn canvas_bytes(activations: u64, row: u64, tokens: usize) -> u64 {
    activations.saturating_add(row.saturating_mul(2 * tokens as u64))
}

impl Budget {
    /// Pages of keys and values that `memory` bytes leave; at least those of a context that was asked for. Canvases have as
    /// many bytes again for their activations.
    pub(super) fn pages(&self, memory: u64, context: Option<usize>) -> Result<usize, EngineError> {
        let tokens = context.unwrap_or(1);
        let canvas = self.canvas_row.map(|row| canvas_bytes(self.activations, row, tokens));
        let parts = if canvas.is_some() { 2 } else { 1 };
        let pages = memory.saturating_sub(self.weights + self.activations) / (parts * self.page);
        // One page more: where sequences part, each has its own.
        let least = tokens.div_ceil(PAGE_TOKENS) as u64 + 1;
        let least = least.max(canvas.unwrap_or(0).div_ceil(self.page));
        if pages >= least {
            return Ok(usize::try_from(pages).unwrap_or(usize::MAX));
        }
        let needed = self.weights + self.activations + parts * least * self.page;
        let what = if canvas.is_some() { "keys, values and canvases" } else { "keys and values" };
        let of = context.map_or("two pages".to_owned(), |tokens| format!("{tokens} tokens"));
        let fact = format!(
            "a memory budget of {} MiB does not hold {} MiB of weights, {} MiB of activations and {} MiB for {what} \
             of {of}",
            memory >> 20,
            mib(self.weights),
            mib(self.activations),
            mib(parts * least * self.page)
        );
        let enough = Setting::Memory.to(format_args!("{}MiB", mib(needed)));
        let (context, format) = (Setting::MaxContext, Setting::Format);
        let hint = hint!["give ", enough, " or more, a smaller ", context, " or a smaller ", format];
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
        Err(EngineError::request(fact, hint!["give more ", Setting::Memory, ", or shorten it"]))
    }
}
