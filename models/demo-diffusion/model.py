"""Dream in plain PyTorch over the blocks of the autoregressive demo: biases on q, k and v, no causal mask, a head of its
own. Row j of the logits is about token j + 1."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parent.parent))

from demo.model import CONFIG as LLAMA
from demo.model import HEAD, HEADS, HIDDEN, KV_HEADS, Layer, Llama, Norm, angles, linear, rotate

AUTOREGRESSIVE = Path(__file__).resolve().parent.parent / "demo"
BOS, EOS, MASK = LLAMA["bos_token_id"], LLAMA["eos_token_id"], LLAMA["vocab_size"]
VOCAB = MASK + 1

SHARED_KEYS = """attention_dropout bos_token_id eos_token_id hidden_act hidden_size initializer_range intermediate_size
    max_position_embeddings num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps rope_scaling rope_theta
    torch_dtype""".split()

CONFIG = dict(
    sorted(
        {
            **{key: LLAMA[key] for key in SHARED_KEYS},
            "architectures": ["DreamModel"],
            "mask_token_id": MASK,
            "max_window_layers": LLAMA["num_hidden_layers"],
            "model_type": "Dream",
            "pad_token_id": EOS,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "use_cache": True,
            "use_mrope": False,
            "use_sliding_window": False,
            "vocab_size": VOCAB,
        }.items()
    )
)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD)
        self.o_proj = linear(HEADS * HEAD, HIDDEN)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        rows, length, _ = x.shape
        parts = self.q_proj, self.k_proj, self.v_proj
        qkv = F.linear(x, torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts]))
        q, k, v = qkv.split([p.out_features for p in parts], dim=-1)
        q, k, v = (t.view(rows, length, -1, HEAD).transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q, rope), rotate(k, rope)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))


class BothWays(Layer):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(BothWays() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = Norm()

    def forward(self, tokens: Tensor) -> Tensor:
        """States `[rows, length, hidden]` of tokens `[rows, length]`."""
        x, rope = self.embed_tokens(tokens), angles(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, rope)
        return self.norm(x)


class Dream(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Body()
        self.lm_head = linear(HIDDEN, VOCAB)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits `[rows, length, vocab]` of tokens `[rows, length]`, unshifted."""
        return self.lm_head(self.model(tokens))

    def about(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        """Logits `[count, vocab]` about the `wanted` positions `[rows, length]`: from the row before each, 0 from its own."""
        states = self.model(tokens)
        states = torch.cat([states[:, :1], states[:, :-1]], dim=1)
        return self.lm_head(states[wanted])


@torch.no_grad()
def from_autoregressive(folder: Path = AUTOREGRESSIVE) -> Dream:
    """The demo's weights, biases of zero, the head a copy of the embedding; the mask begins as the mean token in both."""
    model, weights = Dream(), load_file(folder / "model.safetensors")
    embedding = weights.pop("model.embed_tokens.weight").float()
    embedding = torch.cat([embedding, embedding.mean(dim=0, keepdim=True)])
    weights |= {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    for name, parameter in model.named_parameters():
        parameter.zero_() if name.endswith(".bias") else parameter.copy_(weights.pop(name))
    assert not weights, sorted(weights)
    return model


def load(folder: Path) -> Dream:
    """The stored bf16 weights, for f32 arithmetic."""
    model = Dream()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()


def save(model: Dream, folder: Path) -> None:
    tensors = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in model.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def load_autoregressive(folder: Path = AUTOREGRESSIVE) -> Llama:
    """The demo itself: what the text of this model is judged by."""
    model = Llama()
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in weights.items()})
    return model.eval()
