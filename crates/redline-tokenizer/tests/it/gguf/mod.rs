//! Tokenizers from the metadata of GGUF files.

mod files;
mod reader;
