//! Models against the reference implementation, and their own invariance.

mod golden;
mod invariance;
mod refusals;
mod reference;
mod synth;
