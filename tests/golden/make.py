"""Write the golden checkpoints: tiny random models with reference logits from Hugging Face transformers (f32).

    python make.py              rewrite every checkpoint and manifest.json in this folder
    python make.py --check      build in a temporary folder and compare with what lies here

Needs the packages of requirements.txt, no network and no accelerator. Every checkpoint is an ordinary Hugging Face
directory plus `reference.safetensors`:

    prompt   i64 [P]          token ids
    logits   f32 [P, vocab]   full forward of the prompt, eager attention, no cache; row i predicts token i + 1
    greedy   i64 [G]          greedy continuation of the prompt (temperature 0, end-of-sequence ids ignored)
    margins  f32 [G]          largest minus second largest logit at each greedy step

The weights come from a seed: the first one, counting from 1, for which the largest logit wins by MIN_MARGIN at every
prompt position and every greedy step, the last chosen expert wins over the next one by MIN_ROUTING_MARGIN at every
position of the prompt, and the continuation does not collapse into a few tokens. Before anything is
written down as a reference the script makes sure that

  * the directory, read back from disk by transformers, holds every tensor and gives exactly the same logits;
  * decoding with a key/value cache chooses the same ids as decoding without one;
  * every tensor matters: without it (zeros, or the scale 1 of a norm) the logits move by more than VISIBLE;
  * every config value listed under `matters` matters: with the other value the logits move by more than VISIBLE.
    A reader that ignores such a key (a sliding window, a rope scaling, an epsilon) cannot pass.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import argparse
import copy
import itertools
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from checkpoint import Checkpoint
from families import FAMILIES

HERE = Path(__file__).resolve().parent
PROMPT_TOKENS = 41
GREEDY_TOKENS = 32
MIN_MARGIN = 3e-3
MIN_ROUTING_MARGIN = 2e-2  # rounding to bf16 must choose the same experts
MIN_DISTINCT = 6
MAX_BF16_NMSE = 7e-5  # an engine that rounds matrices and linear inputs to bf16 stays this close
VISIBLE = 1e-3
CACHE_TOLERANCE = 1e-3
CHECK_TOLERANCE = 1e-3
MAX_DIRECTORY_BYTES = 600_000
MAX_TOTAL_BYTES = 28_000_000

LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # 32 rather than 8192: a head of 20 then has unchanged, interpolated and divided frequencies.
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}


CHECKPOINTS = [
    Checkpoint(
        name="gpt2-a",
        style="transformers-5",
        covers="defaults: tied head, inner size 4x, names with the transformer. prefix; head size 12",
        config=dict(
            model_type="gpt2",
            vocab_size=257,
            n_positions=80,
            n_embd=60,
            n_layer=2,
            n_head=5,
            bos_token_id=256,
            eos_token_id=256,
        ),
        matters=[
            {"activation_function": "gelu"},
            {"activation_function": "relu"},
            {"scale_attn_weights": False},
            {"scale_attn_by_inverse_layer_idx": True},
            {"layer_norm_epsilon": 1e-3},
        ],
    ),
    Checkpoint(
        name="gpt2-b",
        style="classic",
        covers="attention scaled by 1/(layer+1), explicit inner size, epsilon 1e-3, names without prefix, "
        "attn.bias (F32, U8, BOOL) and attn.masked_bias buffers; head size 8",
        config={
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1,
            "bos_token_id": 130,
            "embd_pdrop": 0.1,
            "eos_token_id": 130,
            "initializer_range": 0.02,
            "layer_norm_epsilon": 0.001,
            "model_type": "gpt2",
            "n_ctx": 80,
            "n_embd": 56,
            "n_head": 7,
            "n_inner": 100,
            "n_layer": 3,
            "n_positions": 80,
            "reorder_and_upcast_attn": False,
            "resid_pdrop": 0.1,
            "scale_attn_by_inverse_layer_idx": True,
            "scale_attn_weights": True,
            "summary_activation": None,
            "summary_first_dropout": 0.1,
            "summary_proj_to_labels": True,
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            "torch_dtype": "float32",
            "transformers_version": "4.44.2",
            "use_cache": True,
            "vocab_size": 131,
        },
        matters=[
            {"scale_attn_by_inverse_layer_idx": False},
            {"scale_attn_weights": False},
            {"layer_norm_epsilon": 1e-5},
        ],
        legacy_gpt2=True,
    ),
    Checkpoint(
        name="llama-a",
        style="transformers-5",
        covers="attention_bias and mlp_bias, default rope, epsilon 1e-3, untied, three shards; head size 8, 3:1",
        config=dict(
            model_type="llama",
            vocab_size=131,
            hidden_size=72,
            intermediate_size=90,
            num_hidden_layers=3,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=128,
            rms_norm_eps=1e-3,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        matters=[
            {"rms_norm_eps": 1e-6},
            {"hidden_act": "gelu"},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        ],
        shard_size="200KB",
        shards=3,
    ),
    Checkpoint(
        name="llama-b",
        style="classic",
        covers="llama3 rope scaling, tied but with a duplicate lm_head.weight, head_dim key absent; head size 20, 5:1",
        config={
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 128,
            "eos_token_id": [129, 130],
            "hidden_act": "silu",
            "hidden_size": 100,
            "initializer_range": 0.02,
            "intermediate_size": 60,
            "max_position_embeddings": 256,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 5,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": LLAMA3_SCALING,
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "transformers_version": "4.45.0",
            "use_cache": True,
            "vocab_size": 131,
        },
        matters=[
            {"rope_scaling": None},
            {"rope_scaling": LLAMA3_SCALING | {"factor": 32.0}},
            {"rope_scaling": LLAMA3_SCALING | {"low_freq_factor": 0.5}},
            {"rope_scaling": LLAMA3_SCALING | {"high_freq_factor": 8.0}},
            {"rope_scaling": LLAMA3_SCALING | {"original_max_position_embeddings": 256}},
            {"rope_theta": 10000.0},
        ],
        duplicate_head=True,
    ),
    Checkpoint(
        name="mistral-a",
        style="classic",
        covers="sliding window 16, shorter than the prompt; head_dim key absent; head size 8, 7:1, untied",
        config={
            "architectures": ["MistralForCausalLM"],
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 56,
            "initializer_range": 0.02,
            "intermediate_size": 90,
            "max_position_embeddings": 128,
            "model_type": "mistral",
            "num_attention_heads": 7,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0,
            "sliding_window": 16,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "transformers_version": "4.42.0",
            "use_cache": True,
            "vocab_size": 331,
        },
        matters=[{"sliding_window": None}, {"sliding_window": 15}, {"sliding_window": 17}, {"rope_theta": 1e6}],
    ),
    Checkpoint(
        name="mistral-b",
        style="transformers-5",
        covers="no sliding window, head_dim 64 while hidden/heads is 6; 3:1, untied",
        config=dict(
            model_type="mistral",
            vocab_size=257,
            hidden_size=36,
            intermediate_size=60,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            sliding_window=None,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        matters=[
            {"sliding_window": 40},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        ],
    ),
    Checkpoint(
        name="qwen2-a",
        style="classic",
        covers="q/k/v biases, tied, a sliding_window of 12 that use_sliding_window=false turns off; head size 10, 3:1",
        config={
            "architectures": ["Qwen2ForCausalLM"],
            "attention_dropout": 0.0,
            "bos_token_id": 254,
            "eos_token_id": 255,
            "hidden_act": "silu",
            "hidden_size": 60,
            "initializer_range": 0.02,
            "intermediate_size": 100,
            "max_position_embeddings": 128,
            "max_window_layers": 1,
            "model_type": "qwen2",
            "num_attention_heads": 6,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-06,
            "rope_theta": 1000000.0,
            "sliding_window": 12,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "transformers_version": "4.43.1",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": 257,
        },
        matters=[{"use_sliding_window": True}, {"rope_theta": 10000.0}],
        layer_types=["full_attention"] * 3,
    ),
    Checkpoint(
        name="qwen2-b",
        style="transformers-5",
        covers="q/k/v biases, untied, layer 0 full and layers 1 and 2 with a sliding window of 12; head size 6, 7:1",
        config=dict(
            model_type="qwen2",
            vocab_size=131,
            hidden_size=84,
            intermediate_size=72,
            num_hidden_layers=3,
            num_attention_heads=14,
            num_key_value_heads=2,
            max_position_embeddings=128,
            use_sliding_window=True,
            sliding_window=12,
            max_window_layers=1,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        matters=[
            {"use_sliding_window": False},
            {"max_window_layers": 0},
            {"max_window_layers": 2},
            {"sliding_window": 11},
            {"sliding_window": 13},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        ],
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
    ),
    Checkpoint(
        name="qwen3-a",
        style="transformers-5",
        covers="q/k norm, head_dim 40 while hidden/heads is 24, epsilon 1e-4, tied; as many KV heads as heads",
        config=dict(
            model_type="qwen3",
            vocab_size=257,
            hidden_size=72,
            intermediate_size=84,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=40,
            max_position_embeddings=128,
            rms_norm_eps=1e-4,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        matters=[
            {"rms_norm_eps": 1e-6},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        ],
        layer_types=["full_attention"] * 2,
    ),
    Checkpoint(
        name="qwen3-b",
        style="classic",
        covers="q/k norm, head_dim 64 with hidden size 40, which 7 heads do not divide, untied; 7:1",
        config={
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 254,
            "eos_token_id": 256,
            "head_dim": 64,
            "hidden_act": "silu",
            "hidden_size": 40,
            "initializer_range": 0.02,
            "intermediate_size": 72,
            "max_position_embeddings": 128,
            "max_window_layers": 2,
            "model_type": "qwen3",
            "num_attention_heads": 7,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "transformers_version": "4.51.0",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": 257,
        },
        matters=[
            {"rope_theta": 10000},
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0},
        ],
        layer_types=["full_attention"] * 2,
    ),
    *FAMILIES,
]


# ---------------------------------------------------------------------------------------------------------- weights


def build(config_values):
    """A model of this config, f32 and eager; its weights are still to be filled in."""
    config = AutoConfig.for_model(**json.loads(json.dumps(config_values)))  # a copy: the config class edits its input
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are dequantised
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    return with_published_limits(model)


def with_published_limits(model):
    """The model, after Nemotron-H has the limits of its configuration: transformers 5.23 takes for the lower one the smallest step that
    training starts with, which the published model does not."""
    if model.config.model_type == "nemotron_h":
        for module in model.modules():
            if hasattr(module, "time_step_limit"):
                module.time_step_limit = tuple(model.config.time_step_limit)
    return model


def limit_steps(model):
    """Gives steps of Mamba-2 their limits when one token runs from a cache, too: transformers 5.23 applies them to whole texts only."""
    limits = getattr(model.config, "time_step_limit", None)
    if limits is None:
        return  # no layers of Mamba-2
    code = sys.modules[type(model).__module__]
    code.whole_update = getattr(code, "whole_update", code.mamba2_selective_state_update)

    def limited(state, x, dt, *rest, dt_bias, dt_softplus, **others):
        dt = torch.nn.functional.softplus(dt + dt_bias).clamp(*limits)
        return code.whole_update(state, x, dt, *rest, dt_bias=None, dt_softplus=False, **others)

    code.mamba2_selective_state_update = limited


# Corrections of the scores that choose experts, and the weights of routers.
CORRECTIONS = ("expert_bias", "e_score_correction_bias")
ROUTERS = (
    "mlp.gate.weight",
    "mlp.router.weight",
    "feed_forward.gate.weight",
    "block_sparse_moe.router.weight",
    "mixer.gate.weight",
    "router.proj.weight",
)
# Factors of the router of Gemma 4.
FACTORS = ("router.scale", "router.per_expert_scale")


def is_norm_weight(name):
    *_, module, kind = name.split(".")
    return kind == "weight" and (module.removesuffix("_1").removesuffix("_2").endswith("norm") or module in ("ln_1", "ln_2", "ln_f", "norm_f"))


def neutral(model, name):
    """The value of a parameter that does nothing: 0, or 1 for a norm weight, which some families store as the difference to 1."""
    differs = model.config.model_type.startswith(("gemma2", "gemma3", "qwen3_5", "qwen3_next")) and not name.endswith("linear_attn.norm.weight")
    return 1.0 if name.endswith(FACTORS) or is_norm_weight(name) and not differs else 0.0


def fill(model, seed):
    """Seeded weights, large enough that every parameter shows in the logits.

    Uniform numbers only: they need no transcendental function, so they are the same bits on every CPU.
    """
    generator = torch.Generator().manual_seed(seed)
    gpt2 = model.config.model_type == "gpt2"
    with torch.no_grad():
        for name, buffer in sorted(model.named_buffers()):
            if name.endswith("layer_scalar"):
                buffer.copy_(0.8 + 0.4 * torch.rand(buffer.shape, generator=generator))
            elif name.endswith(CORRECTIONS):
                buffer.copy_(0.6 * torch.rand(buffer.shape, generator=generator) - 0.3)
        for name, parameter in sorted(model.named_parameters()):
            if is_norm_weight(name):
                centre, spread = neutral(model, name), 0.2
                # As for q_proj and k_proj below.
                soft = model.config.model_type.startswith(("olmo", "gemma", "qwen3_5", "qwen3_next"))
                if soft and name.split(".")[-2] in ("q_norm", "k_norm"):
                    # Nothing divides the logits of Gemma 4.
                    centre -= 0.7 if model.config.model_type.startswith("gemma4") else 0.4
            elif name.endswith(FACTORS):
                centre, spread = 1.0, 0.3
            elif name.endswith((".bias", "_proj_bias", "dt_bias")):
                centre, spread = 0.0, 0.4
            elif name.endswith("A_log"):
                # States that last for some tokens.
                centre, spread = -1.5, 1.0
            elif name.split(".")[-2] in ("wte", "wpe", "embed_tokens", "embeddings", "lm_head"):
                # Gemma multiplies the embedding by the root of the width: a tied head would predict the last token again and again.
                # Granite multiplies it as well.
                gemma, granite = (model.config.model_type.startswith(family) for family in ("gemma", "granite"))
                scaled = gemma or granite and model.config.tie_word_embeddings
                centre, spread = 0.0, 0.4 / (model.config.hidden_size**0.25 if scaled else 1)
            else:
                # Conv1D keeps [in, out], Linear [out, in], experts [expert, out, in]; spread = sqrt(3) * standard deviation.
                # Those of gpt-oss are [expert, in, out].
                transposed = gpt2 or model.config.model_type == "gpt_oss" and parameter.dim() == 3
                fan_in = parameter.shape[-2] if transposed else parameter.shape[-1]
                # GPT-2's biases and GELU pull every row the same way: larger weights keep its rows apart.
                gain = 1.6 if gpt2 else 1.2
                # Softer attention: a small change of the logits in a softmax stays a small change of its output.
                if name.split(".")[-2] in ("q_proj", "k_proj", "qkv_proj"):
                    gain *= 0.5
                # Of a short convolution, the product of three projections: rounding errors of all three add up.
                if name.endswith("conv.in_proj.weight"):
                    gain *= 0.3
                # The norm after a recurrence makes rounding errors of small outputs large.
                if name.endswith("linear_attn.out_proj.weight"):
                    gain *= 0.1
                if name.endswith(("mamba.out_proj.weight", "mixer.out_proj.weight")):
                    gain *= 0.3 if model.config.model_type.startswith("granite") else 0.1
                # Beside recurrences, whose rounding errors experts would make large.
                recurs = model.config.model_type.startswith(("qwen3_5_moe", "qwen3_next", "granitemoehybrid", "nemotron_h"))
                if recurs and name.endswith(("down_proj", "down_proj.weight")):
                    gain *= 0.4
                # Decided routing.
                if name.endswith(ROUTERS):
                    gain *= 2
                # What it reads was divided by the root of the width.
                if name.endswith("router.proj.weight"):
                    gain *= fan_in**0.5
                centre, spread = 0.0, gain * (3 / fan_in) ** 0.5
            parameter.copy_(centre + spread * (2 * torch.rand(parameter.shape, generator=generator) - 1))


# Those of one sign; the others have the upper bit set.
FOUR_BIT_FLOATS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def is_expert_weight(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def in_blocks(weight):
    """Experts `[expert, in, out]` as blocks `[expert, out, in / 32, 16]` and scales `[expert, out, in / 32]`, values rounded to nearest."""
    values = weight.transpose(1, 2).unflatten(-1, (-1, 32))
    # The least power of two with which none exceeds 6.
    fraction, exponent = torch.frexp(values.abs().amax(-1) / 6)
    scales = exponent - (fraction == 0.5).int()
    scaled = values / torch.exp2(scales.float())[..., None]
    codes = (scaled.abs()[..., None] - FOUR_BIT_FLOATS).abs().argmin(-1) + 8 * (scaled < 0)
    blocks = codes[..., ::2] | codes[..., 1::2] << 4
    return blocks.to(torch.uint8).contiguous(), (scales + 127).to(torch.uint8).contiguous()


def of_blocks(blocks, scales):
    """The weights that blocks stand for, `[expert, in, out]`."""
    table = torch.cat([FOUR_BIT_FLOATS, -FOUR_BIT_FLOATS])
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2).long()
    values = table[codes] * torch.exp2(scales.float() - 127)[..., None]
    return values.flatten(-2).transpose(1, 2).contiguous()


def round_experts(model):
    """Gives every weight of an expert a value that blocks can hold."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_expert_weight(name):
                parameter.copy_(of_blocks(*in_blocks(parameter)))


def make_prompt(seed, vocab):
    generator = torch.Generator().manual_seed(1_000_000 + seed)
    prompt = torch.randint(vocab, (PROMPT_TOKENS,), generator=generator)
    prompt[0], prompt[1] = vocab - 1, 0  # both ends of the embedding table
    return prompt


# --------------------------------------------------------------------------------------------------------- forward


@torch.no_grad()
def full_logits(model, ids):
    return model(ids[None], use_cache=False).logits[0]


def top_margin(logits):
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def is_router(module):
    return type(module).__name__.lower().endswith("topkrouter")


@torch.no_grad()
def routing_margin(model, ids):
    """The smallest difference between the logits of the last chosen expert and of the next one."""
    margins = [float("inf")]

    def record(module, inputs, output):
        scores, top_k = output[0], getattr(module, "top_k", None)
        if top_k is None:
            # Gemma 4 returns probabilities.
            scores, top_k = scores.log(), module.config.top_k_experts
        if hasattr(module, "use_expert_bias") or hasattr(module, "e_score_correction_bias"):
            # The slope of a sigmoid is at most a quarter.
            bias = inputs[1] if getattr(module, "use_expert_bias", False) else getattr(module, "e_score_correction_bias", 0)
            scores = 4 * (scores.sigmoid() + bias)
        best = scores.topk(top_k + 1, dim=-1).values
        margins.append(float((best[..., -2] - best[..., -1]).min()))

    routers = [module for module in model.modules() if is_router(module) or type(module).__name__ == "Gemma4TextRouter"]
    hooks = [module.register_forward_hook(record) for module in routers]
    # Nemotron-H has their number without them, too.
    routed = getattr(model.config, "num_experts_per_tok", 0) and "mlp" not in (getattr(model.config, "layer_types", None) or [])
    require(hooks or not routed, "no router was found")
    full_logits(model, ids)
    for hook in hooks:
        hook.remove()
    return min(margins)


def greedy(model, prompt):
    """Greedy ids and margins, the whole sequence anew for every token."""
    ids, margins = prompt, []
    for _ in range(GREEDY_TOKENS):
        last = full_logits(model, ids)[-1]
        margins.append(top_margin(last))
        ids = torch.cat([ids, last.argmax()[None]])
    return ids[len(prompt) :].clone(), torch.stack(margins)


@torch.no_grad()
def cached_logits(model, prompt, continuation):
    """Last-row logits before each token of the continuation, from a cache: the prompt at once, then one by one."""
    limit_steps(model)
    rows, cache, fed, past = [], None, prompt, 0
    for token in continuation:
        # Bamba counts positions from 0 again if it is not told.
        positions = {"position_ids": torch.arange(past, past + len(fed))[None]} if model.config.model_type == "bamba" else {}
        out = model(fed[None], past_key_values=cache, use_cache=True, **positions)
        past += len(fed)
        cache = out.past_key_values
        rows.append(out.logits[0, -1])
        fed = token[None]
    return torch.stack(rows)


def reference(model, prompt):
    """The four reference tensors, or None where a decision is too close to be a test."""
    logits = full_logits(model, prompt)
    if top_margin(logits).min() < MIN_MARGIN or routing_margin(model, prompt) < MIN_ROUTING_MARGIN:
        return None
    ids, margins = greedy(model, prompt)
    if margins.min() < MIN_MARGIN or len(set(ids.tolist())) < MIN_DISTINCT:
        return None
    if routing_margin(model, torch.cat([prompt, ids])) < MIN_ROUTING_MARGIN / 10:
        return None
    return {"prompt": prompt, "logits": logits.contiguous(), "greedy": ids, "margins": margins}


# ---------------------------------------------------------------------------------------------------------- checks


def largest_change(logits, reference):
    return float((logits - reference["logits"]).abs().max())


def require(condition, message):
    if not condition:
        sys.exit(f"error: {message}")


def check_cache(model, ref, name):
    rows = cached_logits(model, ref["prompt"], ref["greedy"])
    require(torch.equal(rows.argmax(-1), ref["greedy"]), f"{name}: the cached continuation differs")
    whole = full_logits(model, torch.cat([ref["prompt"], ref["greedy"][:-1]]))[len(ref["prompt"]) - 1 :]
    difference = float((rows - whole).abs().max())
    require(difference < CACHE_TOLERANCE, f"{name}: cached logits differ by {difference}")
    return difference


def check_tensors(model, ref, name):
    """The smallest effect that leaving out one tensor has on the logits."""
    effects = {}
    with torch.no_grad():
        corrections = [(name, buffer) for name, buffer in saved_buffers(model) if name.endswith(CORRECTIONS)]
        for tensor, parameter in [*model.named_parameters(), *corrections]:
            kept = parameter.clone()
            parameter.fill_(neutral(model, tensor))
            effects[tensor] = largest_change(full_logits(model, ref["prompt"]), ref)
            parameter.copy_(kept)
    weakest = min(effects, key=effects.get)
    require(effects[weakest] > VISIBLE, f"{name}: {weakest} hardly matters ({effects[weakest]})")
    return effects[weakest]


def rounded(x):
    return x.bfloat16().float()


@torch.no_grad()
def bf16_nmse(model, ref):
    """Squared error over squared reference when matrices and the inputs of linear layers are rounded to bf16."""
    other = copy.deepcopy(model)
    for name, parameter in other.named_parameters():
        # The taps of a convolution are no matrix.
        if parameter.dim() > 1 and not name.endswith(("conv.conv.weight", "conv1d.weight")):
            parameter.copy_(rounded(parameter))
    for module in other.modules():
        if type(module).__name__ in ("Linear", "Conv1D") or is_router(module):
            module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]), *inputs[1:]))
    error = full_logits(other, ref["prompt"]) - ref["logits"]
    return float(error.square().sum() / ref["logits"].square().sum())


def check_config(checkpoint, model, ref):
    """What each alternative config value does to the logits."""
    effects = {}
    for change in checkpoint.matters:
        other = build(checkpoint.config | change)
        other.load_state_dict(model.state_dict())
        label = json.dumps(change)
        effects[label] = largest_change(full_logits(other, ref["prompt"]), ref)
        require(effects[label] > VISIBLE, f"{checkpoint.name}: {label} hardly matters ({effects[label]})")
    return effects


def read_back(directory, checkpoint, model):
    """The model as transformers reads it from disk; it must be the one that was saved."""
    loaded, info = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    name = checkpoint.name
    unexpected = {key for key in info["unexpected_keys"] if not key.endswith("attn.masked_bias")}
    require(not info["missing_keys"], f"{name}: missing {info['missing_keys']}")
    require(not info["mismatched_keys"], f"{name}: mismatched {info['mismatched_keys']}")
    require(not unexpected, f"{name}: unexpected {unexpected}")
    ours, theirs = dict(model.named_parameters()), dict(loaded.named_parameters())
    require(ours.keys() == theirs.keys(), f"{name}: read back with other parameters")
    require(all(torch.equal(ours[key], theirs[key]) for key in ours), f"{name}: read back with other weights")
    require(
        getattr(loaded.config, "layer_types", None) == checkpoint.layer_types,
        f"{name}: layer types {getattr(loaded.config, 'layer_types', None)}",
    )
    return with_published_limits(loaded).eval()


# ----------------------------------------------------------------------------------------------------------- files


def of_first_layer(config):
    """The configuration of the first layer, where layers differ."""
    of_layers = getattr(config, "per_layer_config", None)
    return of_layers[0] if of_layers else config


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def add_legacy_gpt2_buffers(tensors, positions):
    """Old names, and the causal-mask buffers that transformers stored until 4.x, in the types they have had."""
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    mask = torch.ones(positions, positions).tril()[None, None]
    layers = {name.split(".")[1] for name in tensors if name.startswith("h.")}
    for layer, dtype in zip(sorted(layers), itertools.cycle([torch.float32, torch.uint8, torch.bool])):
        tensors[f"h.{layer}.attn.bias"] = mask.to(dtype).clone()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return tensors


def save(model, checkpoint, directory):
    if directory.exists():
        shutil.rmtree(directory)
    sharding = {"max_shard_size": checkpoint.shard_size} if checkpoint.shard_size else {}
    model.save_pretrained(directory, **sharding)
    require(len(list(directory.glob("*.safetensors"))) == checkpoint.shards, f"{checkpoint.name}: number of shards")
    if checkpoint.style == "classic":
        write_json(directory / "config.json", checkpoint.config)
        (directory / "generation_config.json").unlink()
    weights = directory / "model.safetensors"
    if checkpoint.legacy_gpt2:
        save_file(add_legacy_gpt2_buffers(load_file(weights), model.config.n_positions), weights, {"format": "pt"})
    if checkpoint.four_bits:
        tensors = load_file(weights)
        for name in [name for name in tensors if is_expert_weight(name)]:
            tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = in_blocks(tensors.pop(name))
        save_file(tensors, weights, {"format": "pt"})
    if checkpoint.stacked_experts:
        tensors = load_file(weights)
        of_expert = re.compile(r"(.*\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w3|w2)\.weight")
        parts = {match.groups(): tensors.pop(name) for name in list(tensors) if (match := of_expert.fullmatch(name))}
        for module in {module for module, _, _ in parts}:
            order = ("w1", "w3", "w2") if (module, "0", "w1") in parts else ("gate_proj", "up_proj", "down_proj")
            each = [[parts[module, str(i), part] for part in order] for i in range(model.config.num_experts)]
            tensors[f"{module}.gate_up_proj"] = torch.stack([torch.cat(expert[:2]) for expert in each])
            tensors[f"{module}.down_proj"] = torch.stack([expert[2] for expert in each])
        save_file(tensors, weights, {"format": "pt"})
    if checkpoint.unread_keys:
        tensors = load_file(weights)
        for layer in checkpoint.unread_keys:
            for part in ("k_proj", "v_proj", "k_norm"):
                own = tensors[f"model.layers.{layer % 2}.self_attn.{part}.weight"]
                tensors[f"model.layers.{layer}.self_attn.{part}.weight"] = own + 1
        save_file(tensors, weights, {"format": "pt"})
    if checkpoint.duplicate_head:
        tensors = load_file(weights)
        require("lm_head.weight" not in tensors, f"{checkpoint.name}: already has a head")
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        save_file(tensors, weights, {"format": "pt"})


def size(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def saved_buffers(model):
    """Factors at the end of layers and corrections of routers, which are no parameters in transformers."""
    return [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(("layer_scalar", *CORRECTIONS))]


def shape_summary(config):
    heads, first = config.num_attention_heads, of_first_layer(config)
    gpt2 = config.model_type == "gpt2"
    return {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": heads,
        "kv_heads": heads if gpt2 else first.num_key_value_heads,
        "head_dim": getattr(first, "head_dim", None) or config.hidden_size // heads,
        "intermediate": (config.n_inner or 4 * config.n_embd) if gpt2 else getattr(config, "intermediate_size", None) or config.moe_intermediate_size,
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "tied": config.tie_word_embeddings,
    }


def significant(value):
    return float(f"{float(value):.4g}")


def make(checkpoint, out):
    """Write one checkpoint and return its manifest entry."""
    model = build(checkpoint.config)
    for seed in itertools.count(1):
        fill(model, seed)
        if checkpoint.four_bits:
            round_experts(model)
        ref = reference(model, make_prompt(seed, model.config.vocab_size))
        if ref is not None and bf16_nmse(model, ref) <= MAX_BF16_NMSE:
            break
    directory = out / checkpoint.name
    save(model, checkpoint, directory)
    loaded = read_back(directory, checkpoint, model)
    require(largest_change(full_logits(loaded, ref["prompt"]), ref) == 0.0, f"{checkpoint.name}: logits after reading")
    cache_difference = check_cache(loaded, ref, checkpoint.name)
    tensor_effect = check_tensors(loaded, ref, checkpoint.name)
    config_effects = check_config(checkpoint, loaded, ref)
    save_file(ref, directory / "reference.safetensors")
    require(size(directory) <= MAX_DIRECTORY_BYTES, f"{checkpoint.name}: {size(directory)} bytes")
    entry = {
        "architecture": checkpoint.config["model_type"],
        "class": type(loaded).__name__,
        "config_style": checkpoint.style,
        "covers": checkpoint.covers,
        "seed": seed,
        "shape": shape_summary(loaded.config),
        "parameters": sum(values.numel() for _, values in [*loaded.named_parameters(), *saved_buffers(loaded)]),
        "prompt_tokens": len(ref["prompt"]),
        "greedy_tokens": len(ref["greedy"]),
        "distinct_greedy_ids": len(set(ref["greedy"].tolist())),
        "min_margin": {
            "prompt": significant(top_margin(ref["logits"]).min()),
            "greedy": significant(ref["margins"].min()),
        },
        "logits_std": significant(ref["logits"].std()),
        "bf16_nmse": significant(bf16_nmse(loaded, ref)),
        "least_effect_of_a_tensor": significant(tensor_effect),
        "effect_of_other_config_values": {label: significant(effect) for label, effect in config_effects.items()},
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    print(
        f"{checkpoint.name:10} seed {seed:2}  {size(directory):7} bytes  margin {entry['min_margin']}  "
        f"distinct {entry['distinct_greedy_ids']}  cache differs by {cache_difference:.1e}"
    )
    return entry


# ------------------------------------------------------------------------------------------------------------- main


def differences(ours, theirs):
    """What differs between two golden folders: bytes, except for numbers that depend on the CPU's rounding."""
    for checkpoint in CHECKPOINTS:
        names = {path.name for folder in (ours, theirs) for path in (folder / checkpoint.name).glob("*")}
        for name in sorted(names):
            a, b = ours / checkpoint.name / name, theirs / checkpoint.name / name
            label = f"{checkpoint.name}/{name}"
            if not (a.is_file() and b.is_file()):
                yield f"{label}: only in one of the folders"
            elif name == "reference.safetensors":
                x, y = load_file(a), load_file(b)
                for key in sorted(x.keys() | y.keys()):
                    if key not in x or key not in y or x[key].shape != y[key].shape:
                        yield f"{label}: {key} has another shape"
                    elif key in ("prompt", "greedy") and not torch.equal(x[key], y[key]):
                        yield f"{label}: other ids in {key}"
                    elif not torch.allclose(x[key], y[key], rtol=0, atol=CHECK_TOLERANCE):
                        yield f"{label}: {key} differs by {float((x[key] - y[key]).abs().max())}"
            elif a.read_bytes() != b.read_bytes():
                yield f"{label}: other bytes"
    manifests = [json.loads((folder / "manifest.json").read_text(encoding="utf-8")) for folder in (ours, theirs)]
    stable = ("architecture", "config_style", "covers", "seed", "shape", "parameters", "torch", "transformers")
    if manifests[0].keys() != manifests[1].keys():
        yield "manifest.json: other checkpoints"
    for name in sorted(manifests[0].keys() & manifests[1].keys()):
        for key in stable:
            if manifests[0][name].get(key) != manifests[1][name].get(key):
                yield f"manifest.json: {name}: other {key}"


def make_all(out):
    manifest = {checkpoint.name: make(checkpoint, out) for checkpoint in CHECKPOINTS}
    write_json(out / "manifest.json", manifest)
    total = sum(size(out / name) for name in manifest)
    require(total <= MAX_TOTAL_BYTES, f"{total} bytes in all")
    print(f"{len(manifest)} checkpoints, {total} bytes")


def command(description, make_all, differences):
    """Writes what lies here, or with --check makes it elsewhere and tells what differs."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files here instead of writing them")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if not arguments.check:
        make_all(HERE)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_all(Path(folder))
        found = list(differences(Path(folder), HERE))
    for line in found:
        print(line)
    require(not found, f"{len(found)} differences")
    print("no differences")


if __name__ == "__main__":
    command(__doc__, make_all, differences)
