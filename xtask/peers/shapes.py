"""Bytes and operations of a token, from `config.json`."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """A decoder: `linear` weights are read for every token, `head` weights where logits are wanted. `attending` layers
    keep keys and values; others keep a `state` of so many numbers for each sequence, all layers together."""

    architecture: str
    attending: int
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
    state: int = 0

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
        """Bytes of keys and values that one token attends to, and of states, which are read and written in f32."""
        return 2 * self.attending * self.kv_heads * self.head_dim * context * element + 8 * self.state

    def operations(self, length, past=0):
        """Of `length` tokens after `past` others, with logits for the last. A token multiplies every number of a state
        three times: decay, what is remembered of its key, and what its query reads."""
        per_key = 4 * self.attending * self.heads * self.head_dim
        keys = length * past + length * (length + 1) / 2
        return (2 * self.linear + 6 * self.state) * length + per_key * keys + 2 * self.head


def read(directory):
    """The shape of a Hugging Face directory."""
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    readers = {"gpt2": _gpt2, "llama": _llama, "lfm2": _lfm2, "qwen3_5_text": _qwen3_5, "gemma4_text": _gemma4}
    kind = config.get("model_type")
    if kind not in readers:
        known = ", ".join(readers)
        raise ValueError(f"`model_type` is `{kind}` in {directory}/config.json\n\nhint: {known} can be compared")
    return readers[kind](config)


def _dtype(config):
    return config.get("dtype") or config.get("torch_dtype") or "float32"


def _shape(config, architecture, **own):
    """A shape with the keys that all but GPT-2 have."""
    heads = config["num_attention_heads"]
    common = {
        "hidden": config["hidden_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "vocab": config["vocab_size"],
        "tied": config.get("tie_word_embeddings", False),
        "dtype": _dtype(config),
    }
    return Shape(architecture=architecture, **common | own)


def _gpt2(config):
    layers, hidden = config["n_layer"], config["n_embd"]
    intermediate = config.get("n_inner") or 4 * hidden
    biases_and_norms = 9 * hidden + intermediate
    return Shape(
        architecture="gpt2",
        attending=layers,
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
    return _shape(
        config,
        "llama",
        attending=layers,
        head_dim=head_dim,
        intermediate=intermediate,
        linear=layers * (attention + 3 * hidden * intermediate),
        other=layers * 2 * hidden + hidden,
    )


def lfm2_inner(config):
    """Width of the feed-forward part: two thirds of what the key says, rounded up."""
    inner = config["block_ff_dim"]
    if config["block_auto_adjust_ff_dim"]:
        inner = int(config["block_ffn_dim_multiplier"] * (2 * inner // 3))
        multiple = config["block_multiple_of"]
        inner = multiple * -(-inner // multiple)
    return inner


def _lfm2(config):
    layers, hidden, heads = config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"]
    attending, kv_heads, head_dim = len(config["full_attn_idxs"]), config["num_key_value_heads"], hidden // heads
    convolving, taps = layers - attending, config["conv_L_cache"]
    attention = 2 * hidden * hidden + 2 * hidden * kv_heads * head_dim
    inner = lfm2_inner(config)
    return _shape(
        config,
        "lfm2",
        attending=attending,
        head_dim=head_dim,
        intermediate=inner,
        tied=config["tie_embedding"],
        linear=attending * attention + convolving * 4 * hidden * hidden + layers * 3 * hidden * inner,
        other=(2 * layers + 1) * hidden + attending * 2 * head_dim + convolving * hidden * taps,
        state=convolving * hidden * (taps - 1),
    )


def qwen3_5_attends(config, layer):
    """Whether a layer has attention, and no recurrence."""
    return (layer + 1) % config["full_attention_interval"] == 0


def _qwen3_5(config):
    layers, hidden, heads = config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"]
    kv_heads, head_dim, inner = config["num_key_value_heads"], config["head_dim"], config["intermediate_size"]
    attending = sum(qwen3_5_attends(config, layer) for layer in range(layers))
    recurring, taps = layers - attending, config["linear_conv_kernel_dim"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    keys, values = key_dim * config["linear_num_key_heads"], value_dim * config["linear_num_value_heads"]
    value_heads = config["linear_num_value_heads"]
    attention = hidden * head_dim * (3 * heads + 2 * kv_heads)
    recurrence = hidden * (2 * keys + 3 * values + 2 * value_heads)
    of_recurrence = (2 * keys + values) * taps + 2 * value_heads + value_dim
    return _shape(
        config,
        "qwen3_5",
        attending=attending,
        head_dim=head_dim,
        intermediate=inner,
        linear=attending * attention + recurring * recurrence + layers * 3 * hidden * inner,
        other=(2 * layers + 1) * hidden + attending * 2 * head_dim + recurring * of_recurrence,
        state=recurring * value_heads * key_dim * value_dim,
    )


def gemma4_slides(config, layer):
    """Whether a layer has a window."""
    return (layer + 1) % 6 != 0 and layer + 1 < config["num_hidden_layers"]


def _gemma4(config):
    """Keys and values count as those of layers with a window, which are most. Layers without keys and values of their own are needed
    for the last row of a prompt only, but count for all rows: a share of the limit above one is no error."""
    layers, hidden, heads = config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"]
    own, inner, width = layers - config["num_kv_shared_layers"], config["intermediate_size"], config["hidden_size_per_layer_input"]
    kv_heads, linear, other = config["num_key_value_heads"], 0, hidden + width
    for layer in range(layers):
        dim = config["head_dim"] if gemma4_slides(config, layer) else config["global_head_dim"]
        wide = 2 if layer >= own and config["use_double_wide_mlp"] else 1
        keys = 2 * kv_heads if layer < own else 0
        linear += hidden * dim * (2 * heads + keys) + 3 * hidden * inner * wide + 2 * hidden * width
        other += 5 * hidden + 1 + dim * (2 if layer < own else 1)
    return _shape(
        config,
        "gemma4",
        attending=own,
        head_dim=config["head_dim"],
        intermediate=inner,
        linear=linear + layers * width * hidden,
        other=other + config["vocab_size"] * layers * width,
    )
