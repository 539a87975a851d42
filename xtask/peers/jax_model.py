"""GPT-2 and Llama in JAX. A cache is a list of (keys, values), each [batch, KV heads, length, head size]."""

from pathlib import Path

import jax
import jax.numpy as jnp
from safetensors import safe_open

import rope


def read(directory):
    """Tensors by their name in the checkpoint, without its prefix, in f32."""
    tensors = {}
    for path in sorted(Path(directory).glob("*.safetensors")):
        with safe_open(path, framework="flax") as file:
            for name in file.keys():
                short = name.removeprefix("model.").removeprefix("transformer.")
                tensors[short] = file.get_tensor(name).astype(jnp.float32)
    return tensors


def attend(queries, keys, values, cache, position):
    """Causal attention: queries [batch, heads, n, size] at `position`; keys and values join the cache."""
    keys = jax.lax.dynamic_update_slice(cache[0], keys, (0, 0, position, 0))
    values = jax.lax.dynamic_update_slice(cache[1], values, (0, 0, position, 0))
    batch, heads, n, size = queries.shape
    grouped = queries.reshape(batch, keys.shape[1], -1, n, size)
    scores = jnp.einsum("bkgnd,bksd->bkgns", grouped, keys) / size**0.5
    visible = jnp.arange(keys.shape[2])[None, :] <= position + jnp.arange(n)[:, None]
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bkgns,bksd->bkgnd", weights, values).reshape(batch, heads, n, size)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, n, heads * size), (keys, values)


class Gpt2:
    def __init__(self, config):
        self.layers, self.heads = config["n_layer"], config["n_head"]
        self.size = config["n_embd"] // self.heads
        self.epsilon = config["layer_norm_epsilon"]

    def cache(self, batch, length):
        shape = (batch, self.heads, length, self.size)
        return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(self.layers)]

    def _norm(self, x, w, name):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + self.epsilon) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def forward(self, w, cache, ids, position):
        """Logits of the last position of every row [batch, vocab], and the new cache."""
        batch, n = ids.shape
        x = w["wte.weight"][ids] + jax.lax.dynamic_slice_in_dim(w["wpe.weight"], position, n)

        def linear(x, name):
            return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

        written = []
        for layer in range(self.layers):
            block = f"h.{layer}"
            qkv = linear(self._norm(x, w, f"{block}.ln_1"), f"{block}.attn.c_attn")
            qkv = qkv.reshape(batch, n, 3, self.heads, self.size).transpose(2, 0, 3, 1, 4)
            mixed, kept = attend(*qkv, cache[layer], position)
            x = x + linear(mixed, f"{block}.attn.c_proj")
            wide = jax.nn.gelu(linear(self._norm(x, w, f"{block}.ln_2"), f"{block}.mlp.c_fc"), approximate=True)
            x = x + linear(wide, f"{block}.mlp.c_proj")
            written.append(kept)
        head = w.get("lm_head.weight", w["wte.weight"])
        return self._norm(x[:, -1], w, "ln_f") @ head.T, written


class Llama:
    def __init__(self, config):
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.size = rope.head_dim(config)
        self.epsilon = config["rms_norm_eps"]
        self.frequencies = jnp.array(rope.frequencies(config), dtype=jnp.float32)

    def cache(self, batch, length):
        shape = (batch, self.kv_heads, length, self.size)
        return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(self.layers)]

    def _norm(self, x, weight):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * weight

    def _rotated(self, x, position):
        angles = (position + jnp.arange(x.shape[2]))[:, None] * self.frequencies
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def forward(self, w, cache, ids, position):
        """Logits of the last position of every row [batch, vocab], and the new cache."""
        batch, n = ids.shape
        x = w["embed_tokens.weight"][ids]

        def linear(x, name):
            return x @ w[f"{name}.weight"].T

        def split(x, heads):
            return x.reshape(batch, n, heads, self.size).transpose(0, 2, 1, 3)

        written = []
        for layer in range(self.layers):
            block = f"layers.{layer}"
            normed = self._norm(x, w[f"{block}.input_layernorm.weight"])
            queries = split(linear(normed, f"{block}.self_attn.q_proj"), self.heads)
            keys = split(linear(normed, f"{block}.self_attn.k_proj"), self.kv_heads)
            values = split(linear(normed, f"{block}.self_attn.v_proj"), self.kv_heads)
            queries, keys = self._rotated(queries, position), self._rotated(keys, position)
            mixed, kept = attend(queries, keys, values, cache[layer], position)
            x = x + linear(mixed, f"{block}.self_attn.o_proj")
            normed = self._norm(x, w[f"{block}.post_attention_layernorm.weight"])
            gate = jax.nn.silu(linear(normed, f"{block}.mlp.gate_proj"))
            x = x + linear(gate * linear(normed, f"{block}.mlp.up_proj"), f"{block}.mlp.down_proj")
            written.append(kept)
        head = w.get("lm_head.weight", w["embed_tokens.weight"])
        return self._norm(x[:, -1], w["norm.weight"]) @ head.T, written


MODELS = {"gpt2": Gpt2, "llama": Llama}
