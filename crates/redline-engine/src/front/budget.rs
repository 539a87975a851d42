//! The memory budget: how many pages of keys and values it allows, and which requests can never fit.

use std::fmt;

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_settings::{Setting, hint};

use super::Engine;
use crate::error::EngineError;

/// Bytes that must fit the memory budget.
pub(super) struct Budget {
    pub(super) weights: u64,
    pub(super) activations: u64,
    /// Bytes of a page of keys and values.
    pub(super) page: u64,
    /// Bytes of activations per canvas token, if the model fills masks. A canvas always runs in one pass, so its activations
    /// grow with its length.
    pub(super) canvas_row: Option<u64>,
}

/// Bytes of activations, besides those reserved at load, that passes over `tokens` canvas tokens may need. When the arena
/// grows, the old one is still allocated while the new one is created; hence the factor of two.
pub(super) fn canvas_bytes(activations: u64, row: u64, tokens: usize) -> u64 {
    activations.saturating_add(row.saturating_mul(2 * tokens as u64))
}

impl Budget {
    /// Pages of keys and values that `memory` bytes allow. It is an error if they do not hold a requested context. A model that
    /// fills masks reserves the same number of bytes again for the activations of canvases.
    pub(super) fn pages(&self, memory: u64, context: Option<usize>) -> Result<usize, EngineError> {
        let tokens = context.unwrap_or(1);
        let canvas = self.canvas_row.map(|row| canvas_bytes(self.activations, row, tokens));
        let parts = if canvas.is_some() { 2 } else { 1 };
        let pages = memory.saturating_sub(self.weights + self.activations) / (parts * self.page);
        // One page more, because each sequence has its own page where two of them diverge.
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
    /// Refuses sequences that together, with `spare` additional pages, would never fit the memory budget.
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
