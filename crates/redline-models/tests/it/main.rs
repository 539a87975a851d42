//! Models compared with the reference implementation, and their own invariance.

mod adapters;
mod bidirectional;
mod convert;
mod defaults;
mod encoders;
mod experts;
mod families;
mod gguf;
mod gguf_refusals;
mod golden;
mod gpt_oss;
mod interpreted;
mod interrupted;
mod invariance;
mod lfm2;
mod lora;
mod merge;
mod packed_adapters;
mod positions;
mod recurrent;
mod reference;
mod refusals;
mod rewritten;
mod stored;
mod synth;
mod watchers;
