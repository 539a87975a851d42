//! Tests of the tokenizer: against the reference library, against its documentation, and on broken files.

mod chat;
mod corners;
mod decoders;
mod dice;
mod directory;
mod families;
mod fixtures;
mod forms;
mod gguf;
mod golden;
mod hostile;
mod hostile_text;
mod padding;
mod prefix_cache;
mod public;
mod repository;
mod stream;
mod strings;
mod tokens;
mod variations;
mod vocabulary;
