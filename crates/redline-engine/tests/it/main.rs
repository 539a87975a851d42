//! The engine as a library: scoring rules, generation, invariance, refusals.

mod batch;
mod demo;
mod diffusion;
mod digests;
mod files;
mod generation;
mod invariance;
mod judging;
mod likelihood;
mod models;
mod perplexity;
mod plans;
mod prefix_cache;
mod refusals;
mod score_plans;
mod scoring;
mod simulator;
mod together;
