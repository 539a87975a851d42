//! Tests of the tokenizer against the reference, against its promises and against broken files.

mod decoders;
mod directory;
mod fixtures;
mod golden;
mod hostile;
mod padding;
mod stream;
mod tokens;
