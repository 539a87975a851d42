//! Tokenizers from the metadata of GGUF files.

mod files;
mod metadata;
mod reader;
mod small;
