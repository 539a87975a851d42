//! The engine as a library: scoring rules, generation, invariance, refusals.

mod adapters;
mod alone;
mod class_ends;
mod convolutions;
mod demo;
mod diffusion;
mod digests;
mod encoding;
mod facts;
mod files;
mod gauges;
mod generation;
mod grammars;
mod guides;
mod hold;
mod identity;
mod invariance;
mod judging;
mod likelihood;
mod masked_adapters;
mod memory;
mod mixture;
mod models;
mod multi_vector;
mod not_finite;
mod peak_memory;
mod perplexity;
mod plans;
mod poison;
mod prefix_cache;
mod prefix_dir;
mod receipts;
mod recurrences;
mod refusals;
mod sampling;
mod score_plans;
mod scoring;
mod sparse;
mod tickets;
mod tight;
mod together;
mod windows;

/// Counts what the process allocates, as the binary does.
#[global_allocator]
static ALLOCATOR: redline_system::memory::CountingAllocator = redline_system::memory::CountingAllocator;
