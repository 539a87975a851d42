//! The shapes that `synth` can write, one line each, beside their configurations.

use redline_kernels::Format;
use redline_weights::ConfigFile;

use crate::spec::DecoderSpec;
use crate::{ModelError, arch};

/// A model's shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The name on the command line.
    pub name: &'static str,
    /// Number of rows of the embedding, to which the tokenizer is padded.
    pub vocab: usize,
    /// End-of-sequence id, inside the demo tokenizer's own vocabulary.
    pub eos: u32,
    /// Format of the real checkpoint.
    pub format: Format,
    /// `config.json` without its dtype and special tokens.
    pub(super) config: &'static str,
}

impl Shape {
    /// Its tensors and how they are used.
    pub fn spec(&self) -> Result<DecoderSpec, ModelError> {
        Ok(arch::specification(&ConfigFile::from_bytes(self.name, self.config.as_bytes())?)?.1)
    }
}

/// Finds a shape by name.
pub fn find(name: &str) -> Result<&'static Shape, ModelError> {
    SHAPES.iter().find(|s| s.name == name).ok_or_else(|| unknown(name.into()))
}

/// The error about a shape that does not exist.
pub(super) fn unknown(name: String) -> ModelError {
    ModelError::UnknownShape { name, known: SHAPES.iter().map(|shape| shape.name).collect() }
}

/// A shape whose configuration is in the file of its name.
macro_rules! shape {
    ($name:literal, $vocab:literal, $eos:literal, $format:expr) => {
        Shape {
            name: $name,
            vocab: $vocab,
            eos: $eos,
            format: $format,
            config: include_str!(concat!("shapes/", $name, ".json")),
        }
    };
}

/// All shapes: three common benchmark sizes, then published models with the values of their `config.json`. `dream-0.5b` is not
/// a published model but Qwen2.5-0.5B in Dream's form: bidirectional, with an untied head. `qwen3-moe-1b` is a small Qwen3-30B-A3B with as
/// many experts; `gpt-oss-6b` is gpt-oss-20b with six layers. The experts of both are blocks of four-bit floats, as published.
pub const SHAPES: &[Shape] = &[
    shape!("small", 32000, 1, Format::Bf16),
    shape!("medium", 32000, 1, Format::Bf16),
    shape!("large", 32000, 1, Format::Bf16),
    shape!("gpt2", 50257, 1, Format::F32),
    shape!("gpt2-xl", 50257, 1, Format::F32),
    shape!("tinyllama-1.1b", 32000, 1, Format::Bf16),
    shape!("llama-3.2-1b", 128256, 1, Format::Bf16),
    shape!("llama-3.2-3b", 128256, 1, Format::Bf16),
    shape!("llama-3.1-8b", 128256, 1, Format::Bf16),
    shape!("mistral-7b", 32000, 1, Format::Bf16),
    shape!("qwen2.5-0.5b", 151936, 1, Format::Bf16),
    shape!("qwen2.5-1.5b", 151936, 1, Format::Bf16),
    shape!("qwen3-0.6b", 151936, 1, Format::Bf16),
    shape!("qwen3-4b", 151936, 1, Format::Bf16),
    shape!("qwen3.5-0.8b", 248320, 1, Format::Bf16),
    shape!("gemma-4-e2b", 262144, 1, Format::Bf16),
    shape!("gemma-4-26b-a4b", 262144, 1, Format::Bf16),
    shape!("dream-0.5b", 151936, 1, Format::Bf16),
    shape!("dream-7b", 152064, 1, Format::Bf16),
    shape!("llada-8b", 126464, 1, Format::Bf16),
    shape!("qwen3-30b-a3b", 151936, 1, Format::Bf16),
    shape!("qwen3-moe-1b", 32000, 1, Format::Bf16),
    shape!("qwen1.5-moe-a2.7b", 151936, 1, Format::Bf16),
    shape!("mixtral-8x7b", 32000, 1, Format::Bf16),
    shape!("gpt-oss-20b", 201088, 1, Format::Bf16),
    shape!("gpt-oss-6b", 201088, 1, Format::Bf16),
    shape!("lfm2-350m", 65536, 7, Format::Bf16),
    shape!("lfm2-1.2b", 65536, 7, Format::Bf16),
    shape!("lfm2-8b-a1b", 65536, 7, Format::W4 { group: 64 }),
    shape!("granite-4-h-micro", 100352, 100257, Format::Bf16),
    shape!("granite-4-h-tiny", 100352, 100257, Format::Bf16),
    shape!("falcon-h1-0.5b", 32784, 11, Format::Bf16),
    shape!("nemotron-3-nano-30b-a3b", 131072, 11, Format::Bf16),
    shape!("bge-small", 30522, 1, Format::F32),
    shape!("bge-base", 30522, 1, Format::F32),
    shape!("deberta-v3-base", 128100, 1, Format::F32),
];
