"""Bytes and operations of a token, from `config.json`."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """A decoder: `linear` weights are read for every token, `head` weights where logits are wanted."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    dtype: str
    linear: int
    other: int

    @property
    def head(self):
        return self.vocab * self.hidden

    @property
    def parameters(self):
        return self.linear + self.other + self.head * (1 if self.tied else 2)

    def weight_bytes(self, bits_per_weight):
        """Bytes of weights that one step reads, whatever the batch."""
        return (self.linear + self.head) * bits_per_weight / 8

    def kv_bytes(self, context, element):
        """Bytes of keys and values that one token attends to."""
        return 2 * self.layers * self.kv_heads * self.head_dim * context * element

    def operations(self, length, past=0):
        """Of `length` tokens after `past` others, with logits for the last."""
        per_key = 4 * self.layers * self.heads * self.head_dim
        keys = length * past + length * (length + 1) / 2
        return 2 * self.linear * length + per_key * keys + 2 * self.head


def read(directory):
    """The shape of a Hugging Face directory."""
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    readers = {"gpt2": _gpt2, "llama": _llama}
    kind = config.get("model_type")
    if kind not in readers:
        known = " and ".join(readers)
        raise ValueError(f"`model_type` is `{kind}` in {directory}/config.json\n\nhint: {known} can be compared")
    return readers[kind](config)


def _dtype(config):
    return config.get("dtype") or config.get("torch_dtype") or "float32"


def _gpt2(config):
    layers, hidden = config["n_layer"], config["n_embd"]
    intermediate = config.get("n_inner") or 4 * hidden
    biases_and_norms = 9 * hidden + intermediate
    return Shape(
        architecture="gpt2",
        layers=layers,
        hidden=hidden,
        heads=config["n_head"],
        kv_heads=config["n_head"],
        head_dim=hidden // config["n_head"],
        intermediate=intermediate,
        vocab=config["vocab_size"],
        tied=config.get("tie_word_embeddings", True),
        dtype=_dtype(config),
        linear=layers * (4 * hidden * hidden + 2 * hidden * intermediate),
        other=layers * biases_and_norms + 2 * hidden + config["n_positions"] * hidden,
    )


def _llama(config):
    layers, hidden, heads = config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    intermediate = config["intermediate_size"]
    attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
    return Shape(
        architecture="llama",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        vocab=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        dtype=_dtype(config),
        linear=layers * (attention + 3 * hidden * intermediate),
        other=layers * 2 * hidden + hidden,
    )
