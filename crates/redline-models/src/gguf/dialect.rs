//! What an architecture's GGUF files have of their own, and the keys that all have.

use super::keys::Keys;
use crate::ModelError;

/// How llama.cpp stores the models of an architecture.
#[derive(Clone, Copy, Debug)]
pub struct GgufDialect {
    /// `general.architecture`
    pub architecture: &'static str,
    /// The name for models with mixtures of experts, if it differs.
    pub experts: Option<&'static str>,
    /// `tokenizer.ggml.model`, if it tells the models apart from others whose files name the same architecture.
    pub tokenizer: Option<&'static str>,
    /// Whether the rows of queries and keys are stored in pairs that are rotated together.
    pub pairs_rows: bool,
    /// The name of the norm before the feed-forward part.
    pub mlp_norm: &'static str,
    /// The name of the norm after the last layer.
    pub final_norm: &'static str,
    /// Adds the keys of `config.json` that say the same as the metadata, but for those that every architecture has.
    pub(crate) config: fn(&mut Keys<'_>) -> Result<(), ModelError>,
}

impl GgufDialect {
    /// The dialect of most architectures: rows in order, and llama.cpp's usual names.
    pub(crate) const fn new(
        architecture: &'static str,
        config: fn(&mut Keys<'_>) -> Result<(), ModelError>,
    ) -> Self {
        Self {
            architecture,
            experts: None,
            tokenizer: None,
            pairs_rows: false,
            mlp_norm: "ffn_norm",
            final_norm: "output_norm",
            config,
        }
    }

    /// The names of the architecture in files.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        [Some(self.architecture), self.experts].into_iter().flatten()
    }
}

impl Keys<'_> {
    /// Sets the sizes that encoders have.
    pub(crate) fn set_encoder(&mut self) -> Result<(), ModelError> {
        self.sees_both_sides();
        self.copy_counts(&[
            ("context_length", "max_position_embeddings"),
            ("embedding_length", "hidden_size"),
            ("block_count", "num_hidden_layers"),
            ("feed_forward_length", "intermediate_size"),
            ("attention.head_count", "num_attention_heads"),
        ])?;
        let vocab = self.vocab()?;
        self.config().set("vocab_size", vocab);
        Ok(())
    }

    /// Sets the keys that Llama's family has: sizes, the epsilon of the norms, the rotation, and whether the head is the embedding.
    pub(crate) fn set_common(&mut self) -> Result<(), ModelError> {
        let inner = self.count("feed_forward_length")?;
        self.config().set("intermediate_size", inner);
        self.set_common_but_width()
    }

    /// The same, but for the width of the feed-forward parts.
    pub(crate) fn set_common_but_width(&mut self) -> Result<(), ModelError> {
        let kv_heads = self.kv_heads()?;
        self.set_common_with(kv_heads)
    }

    /// The same, of a model in which layers without KV heads have no attention. Returns whether each layer has attention.
    pub(crate) fn set_hybrid(&mut self) -> Result<Vec<bool>, ModelError> {
        const KV_HEADS: &str = "attention.head_count_kv";
        let of_layers = self.counts(KV_HEADS)?;
        let mut attend = of_layers.iter().filter(|heads| **heads > 0);
        let first = attend.next().copied().unwrap_or(1);
        if attend.any(|heads| *heads != first) {
            return Err(self.refuse(KV_HEADS, "the same number for all layers with attention"));
        }
        self.set_common_with(first)?;
        Ok(of_layers.iter().map(|heads| *heads > 0).collect())
    }

    fn set_common_with(&mut self, kv_heads: u32) -> Result<(), ModelError> {
        let sizes = [
            ("max_position_embeddings", self.count("context_length")?),
            ("hidden_size", self.count("embedding_length")?),
            ("num_hidden_layers", self.count("block_count")?),
            ("num_attention_heads", self.count("attention.head_count")?),
            ("head_dim", self.head_dim()?),
        ];
        for (key, size) in sizes {
            self.config().set(key, size);
        }
        let (vocab, is_tied) = (self.vocab()?, self.is_tied());
        self.config().set("num_key_value_heads", kv_heads);
        self.config().set("vocab_size", vocab);
        self.config().set("tie_word_embeddings", is_tied);
        self.copy_numbers(&[("attention.layer_norm_rms_epsilon", "rms_norm_eps")])?;
        self.set_rotation()
    }
}
