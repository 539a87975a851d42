"""Dream and LLaDA checkpoints as models of transformers in which every position sees every other.

Dream has the layers of Qwen2 and LLaDA those of Llama; the names of LLaDA's tensors differ. Neither hides anything from a position,
so the models get a mask that hides nothing. The tests of `tests/golden/diffusion.py` hold such models against another forward.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

# By `model_type`: whether the row of position p - 1 says what stands at p.
SHIFTED = {"Dream": True, "llada": False}
LLADA_NAMES = {
    "model.transformer.wte": "model.embed_tokens",
    "model.transformer.ln_f": "model.norm",
    "model.transformer.ff_out": "lm_head",
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


def read_config(directory):
    return json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))


def is_masked(config):
    return config.get("model_type") in SHIFTED


def mask_id(config):
    return config["mask_token_id"]


def causal(config):
    """Kind and values of the config of the model that differs only in what a position sees."""
    if config["model_type"] == "Dream":
        left_out = ("architectures", "auto_map", "mask_token_id", "pad_token_id", "model_type")
        return "qwen2", {key: value for key, value in config.items() if key not in left_out}
    return "llama", {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],
        "hidden_size": config["d_model"],
        "intermediate_size": config["mlp_hidden_size"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config["n_kv_heads"] or config["n_heads"],
        "max_position_embeddings": config["max_sequence_length"],
        "rms_norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_theta"],
        "tie_word_embeddings": config["weight_tying"],
    }


def _renamed(name):
    """A tensor of LLaDA as Llama calls it."""
    module, _, kind = name.rpartition(".")
    if module in LLADA_NAMES:
        return f"{LLADA_NAMES[module]}.{kind}"
    _, _, _, layer, part = module.split(".")
    return f"model.layers.{layer}.{LLADA_NAMES[part]}.{kind}"


def load(directory, dtype, attention):
    """The model with its weights in `dtype`; `attention` is an implementation of transformers."""
    config = read_config(directory)
    kind, values = causal(config)
    theirs = AutoConfig.for_model(kind, **values)
    model = AutoModelForCausalLM.from_config(theirs, dtype=dtype, attn_implementation=attention)
    tensors = {}
    for file in sorted(Path(directory).glob("model*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():
                ours = _renamed(name) if kind == "llama" else name
                tensors[ours] = opened.get_tensor(name).to(dtype)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = ["lm_head.weight"] if theirs.tie_word_embeddings else []
    if unexpected or set(missing) - set(tied):
        raise ValueError(f"{directory}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.eval()


def forward(model, ids):
    """The model's answer to one canvas; its logits are not shifted."""
    width = len(ids)
    nothing_hidden = torch.zeros(1, 1, width, width, dtype=model.dtype)
    return model(torch.tensor([ids]), attention_mask=nothing_hidden, use_cache=False)


def about(logits, shifted):
    """The logits that tell of each position, from those of each row: [positions, vocabulary]."""
    return torch.cat([logits[:1], logits[:-1]]) if shifted else logits


class Filling:
    """The published samplers, greedy, in one block: Dream's `entropy`, LLaDA's `low_confidence`."""

    def __init__(self, config, prompt, new, steps):
        self.shifted, self.mask = SHIFTED[config["model_type"]], mask_id(config)
        self.canvas = torch.tensor(prompt + [self.mask] * new)
        self.steps, self.step = steps, 0
        self._times = torch.linspace(1, 1e-3, steps + 1)
        masks = int((self.canvas == self.mask).sum())
        self._even = [masks // steps + (step < masks % steps) for step in range(steps)]

    def count(self, masks):
        """Masks that this step fills."""
        if not self.shifted:
            return self._even[self.step]
        if self.step == self.steps - 1:
            return masks
        return int(masks * (1 - self._times[self.step + 1] / self._times[self.step]))

    def fill(self, logits):
        """One step from the logits of a pass, [rows, vocabulary]: what was filled, as [position, token], and how close a call it
        was: the least distance between two logits or two confidences that would have decided otherwise."""
        places = (self.canvas == self.mask).nonzero()[:, 0]
        rows = about(logits, self.shifted)[places]
        probabilities = rows.softmax(-1) if self.shifted else rows.double().softmax(-1)
        best, tokens = probabilities.max(-1)
        if self.shifted:
            confidence = (probabilities * torch.log(probabilities + 1e-10)).sum(-1)
        else:
            confidence = best
        count = min(self.count(len(places)), len(places))
        self.step += 1
        if count == 0:
            return [], float("inf")
        chosen = confidence.topk(count).indices
        top = rows[chosen].float().topk(2).values
        close = float((top[:, 0] - top[:, 1]).min())
        if count < len(places):
            ordered = confidence.sort(descending=True).values
            close = min(close, float(ordered[count - 1] - ordered[count]))
        filled = sorted([int(places[index]), int(tokens[index])] for index in chosen)
        for position, token in filled:
            self.canvas[position] = token
        return filled, close
