//! The memory budget: how many pages of keys and values it allows, and which requests can never fit.

use std::fmt;

use redline_kernels::Format;
use redline_kernels::op::kv::{KvFormat, KvShape, PAGE_TOKENS};
use redline_models::{Footprint, Loader};
use redline_settings::{Setting, hint};

use super::Engine;
use crate::error::EngineError;
use crate::memory::pages::disk::PAGES_IN_FLIGHT;
use crate::options::Options;
use crate::plan::{Buckets, OUTPUT_ROWS};

/// The room of a model that is about to be loaded: how long sequences may be, and the memory that they share.
pub(super) struct Room {
    /// Maximum sequence length in tokens.
    pub(super) context: usize,
    pub(super) kv_format: KvFormat,
    pub(super) budget: Budget,
    /// Maximum number of pages of keys and values; `None` without a limit.
    pub(super) pages: Option<usize>,
    /// The sizes of passes.
    pub(super) buckets: Buckets,
}

/// The part of a memory budget that the activations of passes larger than [`Buckets::MAX_CHUNK`] may take: one of so many.
const RAISED_PART: u64 = 16;

impl Room {
    /// Computes the room from the sizes of the model. It is an error if the options leave too little.
    pub(super) fn new(loader: &Loader<'_>, options: &Options) -> Result<Self, EngineError> {
        let context = context(options.max_context, loader.context())?;
        let kv_format = kv_format(loader, options);
        let footprint = loader.footprint().clone().with_adapters(options.adapter_limits());
        let page = footprint.page_shape(kv_format);
        check_heads(&page.keys)?;
        let budget = |tokens| Budget::of(loader, &footprint, options, kv_format, tokens);
        let fits = |tokens| {
            let budget = budget(tokens);
            options.memory.is_none_or(|memory| {
                budget.activations <= memory / RAISED_PART
                    && budget.pages(memory, options.max_context).is_ok()
            })
        };
        let buckets = buckets(&footprint, options, fits);
        let budget = budget(buckets.max_chunk());
        let pages = options.memory.map(|memory| budget.pages(memory, options.max_context)).transpose()?;
        Ok(Self { context, kv_format, budget, pages, buckets })
    }
}

/// The format of keys and values. Where they serve a single pass, their bytes cost less precision than those of weights, and attention is
/// up to three times as fast.
fn kv_format(loader: &Loader<'_>, options: &Options) -> KvFormat {
    let natural = match loader.format() {
        Format::F32 => KvFormat::F32,
        format if format.is_integer() && loader.footprint().reuses_kv_buffer() => KvFormat::W8,
        _ => KvFormat::Bf16,
    };
    options.kv_format.unwrap_or(natural)
}

/// Bytes that a model needs at least: for its weights and adapters, the activations of passes of the usual size, and keys and values of two
/// pages, or of the context that is asked for.
pub(super) fn least_memory(loader: &Loader<'_>, options: &Options, context: Option<usize>) -> u64 {
    let footprint = loader.footprint().clone().with_adapters(options.adapter_limits());
    let tokens = options.plans.buckets.max_chunk();
    let budget = Budget::of(loader, &footprint, options, kv_format(loader, options), tokens);
    budget.least(context).iter().fold(0, |sum, part| sum.saturating_add(*part))
}

/// The sizes of passes. If nobody chose the largest one, a model whose batches are cut into micro-batches gets passes with enough of
/// them for all threads, as far as `fits` says that the memory allows.
fn buckets(footprint: &Footprint, options: &Options, fits: impl Fn(usize) -> bool) -> Buckets {
    let Options { threads, tp, ref plans, .. } = *options;
    if !plans.buckets.is_automatic() || tp > 1 || !footprint.cuts_batches() {
        return plans.buckets.clone();
    }
    let most = Buckets::MAX_CHUNK.saturating_mul(threads).min(Buckets::MAX_TOKENS);
    let halves = std::iter::successors(Some(most), |tokens| Some(tokens / 2));
    let raised = halves.take_while(|tokens| *tokens > Buckets::MAX_CHUNK).find(|tokens| fits(*tokens));
    plans.buckets.with_max_chunk(raised.unwrap_or(Buckets::MAX_CHUNK))
}

/// Refuses a format of keys and values that cannot hold the model's heads.
fn check_heads(shapes: &[KvShape]) -> Result<(), EngineError> {
    let Some(KvShape { format, head_dim, .. }) =
        shapes.iter().find(|shape| !shape.format.holds(shape.head_dim))
    else {
        return Ok(());
    };
    let fact = format!(
        "keys and values in `{}` need a `head_dim` that is a power of two up to 256, and this model's is {head_dim}",
        format.name()
    );
    Err(EngineError::request(
        fact,
        hint!["take ", Setting::KvFormat.to(KvFormat::W8.name()), ", or leave it out"],
    ))
}

/// Maximum sequence length: the requested one, which must not exceed the model's own context.
fn context(requested: Option<usize>, own: usize) -> Result<usize, EngineError> {
    match requested {
        Some(0) => Err(EngineError::Option("a context of 0 tokens cannot hold a prompt".into())),
        Some(n) if n > own => {
            let fact = format!("a context of {n} tokens exceeds the model's own {own}");
            Err(EngineError::request(fact, hint![Setting::MaxContext.unset(), ", or give less"]))
        }
        Some(n) => Ok(n),
        None => Ok(own),
    }
}

/// Bytes that must fit the memory budget.
pub(super) struct Budget {
    pub(super) weights: u64,
    /// Bytes that adapters may take.
    pub(super) adapters: u64,
    pub(super) activations: u64,
    /// Bytes of a page of keys and values.
    pub(super) page: u64,
    /// Number of pages of the state of a sequence; 0 unless a layer is a recurrence.
    pub(super) state_pages: u64,
    /// Number of pages in memory that are being read or written.
    pub(super) pages_in_flight: u64,
    /// Bytes of activations that each further token of a pass needs.
    pub(super) activation_row: u64,
    /// Bytes of activations that each further row of logits needs.
    pub(super) output_row: u64,
    /// Whether rows see later rows: the model fills masks, or is an encoder. Then a sequence always runs in one pass, so activations
    /// grow with its length.
    pub(super) in_one_pass: bool,
}

/// Bytes of activations, besides those reserved at load, that passes over `tokens` canvas tokens may need. When the arena
/// grows, the old one is still allocated while the new one is created; hence the factor of two.
pub(super) fn canvas_bytes(activations: u64, row: u64, tokens: usize) -> u64 {
    activations.saturating_add(row.saturating_mul(2 * tokens as u64))
}

impl Budget {
    /// What a model needs for passes of up to so many tokens.
    fn of(
        loader: &Loader<'_>,
        footprint: &Footprint,
        options: &Options,
        kv_format: KvFormat,
        tokens: usize,
    ) -> Self {
        let arena = |tokens, rows| footprint.arena_size(tokens, rows).bytes();
        let page = footprint.page_shape(kv_format);
        Self {
            weights: footprint.weight_bytes(),
            adapters: options.adapters.map_or(0, |adapters| adapters.memory),
            activations: arena(tokens, OUTPUT_ROWS),
            activation_row: arena(2, 0) - arena(1, 0),
            output_row: arena(0, 2) - arena(0, 1),
            page: page.bytes() as u64,
            state_pages: page.state_pages() as u64,
            pages_in_flight: if options.disk().is_some() { PAGES_IN_FLIGHT } else { 0 },
            in_one_pass: !loader.objective().is_causal(),
        }
    }

    /// Bytes for canvases of this number of tokens, if rows see later rows.
    fn canvas(&self, tokens: usize) -> Option<u64> {
        self.in_one_pass.then(|| canvas_bytes(self.activations, self.activation_row, tokens))
    }

    /// How many times the bytes of pages are reserved.
    fn parts(&self) -> u64 {
        if self.in_one_pass { 2 } else { 1 }
    }

    /// The least number of pages for a context. One page more than it has, and a state more, because each sequence has its own where two of
    /// them diverge.
    fn least_pages(&self, context: Option<usize>) -> u64 {
        let tokens = context.unwrap_or(1);
        let least = tokens.div_ceil(PAGE_TOKENS) as u64 + 1 + 2 * self.state_pages;
        least.max(self.canvas(tokens).unwrap_or(0).div_ceil(self.page))
    }

    /// Bytes that are needed at least for a context: of weights with adapters, of activations, and of the rest.
    fn least(&self, context: Option<usize>) -> [u64; 3] {
        let weights = self.weights.saturating_add(self.adapters);
        let in_flight = self.pages_in_flight * self.page;
        [weights, self.activations, self.parts() * self.least_pages(context) * self.page + in_flight]
    }

    /// Pages of keys and values that `memory` bytes allow. It is an error if they do not hold a requested context. A model that
    /// fills masks reserves the same number of bytes again for the activations of canvases.
    pub(super) fn pages(&self, memory: u64, context: Option<usize>) -> Result<usize, EngineError> {
        let weights = self.weights.saturating_add(self.adapters);
        let in_flight = self.pages_in_flight * self.page;
        let others = weights.saturating_add(self.activations).saturating_add(in_flight);
        let pages = memory.saturating_sub(others) / (self.parts() * self.page);
        let least = self.least_pages(context);
        if pages >= least {
            return Ok(usize::try_from(pages).unwrap_or(usize::MAX));
        }
        let needed = self.least(context);
        let [weights, activations, kv] = summands(needed);
        let adapters = if self.adapters > 0 { " and adapters" } else { "" };
        let what = if self.in_one_pass { "keys, values and canvases" } else { "keys and values" };
        let of = context.map_or("two pages".to_owned(), |tokens| format!("{tokens} tokens"));
        let fact = format!(
            "a memory budget of {} MiB does not hold {weights} MiB of weights{adapters}, {activations} MiB of activations and {kv} MiB \
             for {what} of {of}",
            mib_of_tenths(memory.saturating_mul(10) >> 20),
        );
        let needed: u64 = needed.iter().sum();
        let enough = Setting::Memory.to(format_args!("{}MiB", needed.div_ceil(1 << 20)));
        let (context, format) = (Setting::MaxContext, Setting::Format);
        let hint = hint!["give ", enough, " or more, a smaller ", context, " or a smaller ", format];
        Err(EngineError::request(fact, hint))
    }
}

/// Bytes in MiB with one decimal. Each figure is rounded so that those up to it add up to their sum, rounded up.
fn summands(bytes: [u64; 3]) -> [String; 3] {
    let (mut sum, mut shown) = (0_u64, 0);
    bytes.map(|bytes| {
        sum += bytes;
        let tenths = sum.saturating_mul(10).div_ceil(1 << 20);
        mib_of_tenths(tenths - std::mem::replace(&mut shown, tenths))
    })
}

/// A number of MiB, given in tenths.
fn mib_of_tenths(tenths: u64) -> String {
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

/// Number of tokens for which a generating sequence needs room at a time, if a row sees `window` keys and a pass has `rows` rows.
/// Its prompt is stored whole. Then it gives back pages that no later row sees; if it is run again, a window and a pass must fit.
/// Of several continuations, each needs that in addition to the prompt, which is held for the others.
pub(crate) fn resident_tokens(
    (prompt, total): (usize, usize),
    window: Option<usize>,
    rows: usize,
    forks: bool,
) -> usize {
    let Some(window) = window.filter(|window| *window < total) else { return total };
    let running = (window + rows).next_multiple_of(PAGE_TOKENS) + PAGE_TOKENS;
    let prompt = prompt.next_multiple_of(PAGE_TOKENS);
    if forks { prompt + running } else { total.min(prompt.max(running)) }
}

impl Engine {
    /// Number of tokens for which a generation needs room at a time.
    pub(super) fn resident(&self, prompt: usize, total: usize, forks: bool) -> usize {
        resident_tokens((prompt, total), self.window, self.info.max_chunk, forks)
    }

    /// Number of tokens that the context and the memory budget leave room for after a prompt; at least 1.
    pub(super) fn room_after(&self, prompt: usize, forks: bool) -> usize {
        let most = self.info.context.saturating_sub(prompt);
        let Some(budget) = self.info.kv_budget_bytes else { return most.max(1) };
        // As `check_room` counts: whole pages, and one to spare for continuations that part from a prompt, each with a state.
        let budget = budget.saturating_sub(2 * self.info.state_bytes);
        let pages = budget / (self.info.kv_bytes_per_token * PAGE_TOKENS as u64);
        let tokens =
            usize::try_from(pages).unwrap_or(usize::MAX).saturating_sub(1).saturating_mul(PAGE_TOKENS);
        let fits = self.resident(prompt, prompt + most, forks) <= tokens;
        if fits { most } else { most.min(tokens.saturating_sub(prompt)) }.max(1)
    }

    /// Refuses sequences that together, with `spare` sequences that need a page of their own besides, would never fit the memory budget.
    pub(super) fn check_room(
        &self,
        what: fmt::Arguments<'_>,
        tokens: &[usize],
        spare: usize,
    ) -> Result<(), EngineError> {
        let Some(budget) = self.info.kv_budget_bytes else { return Ok(()) };
        let page = self.info.kv_bytes_per_token * PAGE_TOKENS as u64;
        let pages = tokens.iter().map(|tokens| tokens.div_ceil(PAGE_TOKENS)).sum::<usize>() + spare;
        let states = (tokens.len() + spare) as u64 * self.info.state_bytes;
        let needed = pages as u64 * page;
        if needed.saturating_add(states) <= budget {
            return Ok(());
        }
        let fact = format!(
            "{what}: {} tokens need room for {}, in pages of {PAGE_TOKENS}, and the memory budget leaves room for {}",
            tokens.iter().sum::<usize>(),
            pages * PAGE_TOKENS,
            budget.saturating_sub(states) / self.info.kv_bytes_per_token
        );
        Err(EngineError::request(fact, hint!["give more ", Setting::Memory, ", or shorten it"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_refusal_add_up_to_its_advice() {
        const MIB: u64 = 1 << 20;
        assert_eq!(summands([8 * MIB, 10 * MIB, MIB / 2]), ["8", "10", "0.5"]);
        // Rounded up alone, these would be 19.2 MiB, and 18 suffice.
        let parts = [7 * MIB + 1, 10 * MIB + 1, MIB - 2];
        assert_eq!(summands(parts), ["7.1", "10", "0.9"]);
        let budget = Budget {
            weights: parts[0],
            adapters: 0,
            pages_in_flight: 0,
            activations: parts[1],
            page: parts[2] / 2,
            state_pages: 0,
            activation_row: 1,
            output_row: 1,
            in_one_pass: false,
        };
        let error = budget.pages(17 * MIB + MIB / 2, None).unwrap_err();
        let fact = "a memory budget of 17.5 MiB does not hold 7.1 MiB of weights, 10 MiB of activations and 0.9 MiB for keys and \
                    values of two pages";
        assert_eq!(error.to_string(), fact);
        assert!(
            error.hint().is_some_and(|hint| hint.to_string().starts_with("give `memory` = 18MiB or more"))
        );
        assert!(budget.pages(18 * MIB, None).is_ok());
        let error = Budget { adapters: MIB, ..budget }.pages(18 * MIB, None).unwrap_err().to_string();
        assert!(error.contains("8.1 MiB of weights and adapters, 10 MiB of activations"), "{error}");
    }
}
