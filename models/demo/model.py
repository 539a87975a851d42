"""The Llama block in plain PyTorch, with Hugging Face's parameter names; only what training needs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 640,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "pad_token_id": None,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 4096,
}

HIDDEN, HEADS, KV_HEADS = CONFIG["hidden_size"], CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
HEAD, WIDE = CONFIG["head_dim"], CONFIG["intermediate_size"]


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (HIDDEN,), self.weight, CONFIG["rms_norm_eps"])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(HIDDEN, HEADS * HEAD)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD)
        self.o_proj = linear(HEADS * HEAD, HIDDEN)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = F.linear(x, torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])).split(
            [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=-1
        )
        q, k, v = (t.view(rows, length, -1, HEAD).transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q, rope), rotate(k, rope)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = linear(HIDDEN, WIDE)
        self.up_proj = linear(HIDDEN, WIDE)
        self.down_proj = linear(WIDE, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.self_attn, self.mlp = Attention(), Mlp()

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = Norm()
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = (2 * CONFIG["num_hidden_layers"]) ** -0.5 if last else 1.0
                nn.init.normal_(parameter, std=CONFIG["initializer_range"] * scale)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits `[rows, length, vocab]` of tokens `[rows, length]`."""
        x, rope = self.embed_tokens(tokens), angles(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, rope)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def angles(length: int) -> tuple[Tensor, Tensor]:
    """(cos, sin), each `[length, head_dim]`."""
    frequency = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD, 2) / HEAD)
    angle = torch.arange(length)[:, None] * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    cos, sin = (t.to(x.dtype) for t in rope)
    return x * cos + torch.cat([-high, low], dim=-1) * sin
