"""Write the diffusion checkpoints: tiny random Dream and LLaDA models with runs of the published samplers (f32).

    python diffusion.py              rewrite every checkpoint and diffusion-manifest.json in this folder
    python diffusion.py --check      build in a temporary folder and compare with what lies here

Runs with the packages of requirements.txt and shares make.py's recipe for weights and its limits. Every checkpoint is
an ordinary directory (config.json as published, model.safetensors) plus two files.

reference.safetensors

    prompt   i64 [P]         token ids, some of them the mask id
    logits   f32 [P, rows]   one forward of the prompt in which every position sees every other. Row j is what the
                             head gives for position j, not shifted; `rows` is the number of rows of the head.

diffusion.json: a list of runs, one pass a line

    name      unique within the file
    options   algorithm, max_new_tokens, steps, eps (absent: 1e-3), temperature (0), top_p (1), top_k (0: off),
              alg_temp (0), block_length (one block), cfg_scale (0), threshold (absent: counts), cache ("none"), seed
    prompts   ids of each request. Several prompts are one batch of the reference, padded on the left.
    passes    one entry per step of the reference, also where it fills nothing:
      rows        "all": a forward of the whole canvas. "block": a forward with cached keys and values, of the rows of
                  the block (cache "dual") or of those from its start to the end of the canvas (cache "prefix").
      canvas      prompt and generation of each request after the step, without padding
      committed   positions that held the mask id before the step and do not after it, ascending. A position that was
                  chosen and given the mask id itself stays masked and is not listed.
    final     the last canvas
    nfe       forward evaluations of the reference. With guidance both halves are one, as they are one batch.

What the runs do
================

P prompt tokens, G = max_new_tokens, N = P + G, positions 0..N-1; S = steps; B = block_length; G / B blocks of
spb = S B / G steps each; a block is [s, e) with e = s + B, the first one has s = P. L is the logits of a pass.

Dream, DiffuCoder ("origin", "maskgit-plus", "topk-margin", "entropy"; no block_length)
    Rows are shifted: L'[0] = L[0], L'[j] = L[j - 1]. Every masked position is a candidate, also in the prompt.
    Per candidate: l / temperature if that is above 0. top_p below 1: of the ids by falling logit all those go that are
    behind the first whose cumulative probability exceeds top_p. top_k: every id below the k-th largest goes. Both
    filters also at temperature 0. p = softmax of what is left. The token is the largest, or drawn if temperature > 0.
    ts = linspace(1, eps, S + 1) in f32; in step i of 0..S-1, r = 1 - ts[i + 1] / ts[i] in f32.
    origin: each candidate is filled if u < r; in the last step each is.
    The others: the k candidates of the largest confidence are filled, k = trunc(f32(masks) * r), in the last step all.
    Confidence: p[token] (maskgit-plus); the largest minus the second of p (topk-margin); sum p ln(p + 1e-10) (entropy).
    alg_temp above 0: the k largest of confidence / alg_temp - ln(-ln max(u, 2^-54)), which is distributed as k draws
    without replacement from softmax(confidence / alg_temp).
    There are always S passes. `masks` is the mean over the batch; no run has a batch with unequal numbers of masks.
    A batch is padded on the left with pad_token_id. Positions are cumsum(attention mask) - 1; a query sees a key where
    neither is padding; attention of a padding row is 0. Every request of a batch gives the same passes alone.

Dream in blocks with a cache (Fast-dLLM; one prompt)
    A block begins with a pass "all", which keeps K and V of every layer. From its shifted rows position s is filled,
    whatever its confidence, and nothing else. Position s needs that: its row is s - 1, which the next passes lack.
    Then passes "block" over x[s:e] (dual: the block's K and V take the place of those rows; all others, also of masks
    and text behind the block, stay as of the pass "all") or over x[s:N] (prefix: K and V of 0..s-1 as of the pass
    "all"; the rest is computed). Positions count from the canvas' start as ever.
    The shift is inside these rows: M'[0] = M[0], M'[j] = M[j - 1], where M[0] is the row of position s. So M'[0] is
    what the model says of s + 1; it is asked for s only where the pass "all" drew the mask id. Candidates are the masks
    of [s, e).
    threshold: confidence is p[token], whatever the algorithm (the runs say maskgit-plus). The best candidate is filled,
    and each other one whose confidence is not below the threshold.
    counts: confidence is the negative entropy, whatever the algorithm. ts = linspace(1, eps, spb + 1). The passes
    "block" have i = 1, 2, ..: k = trunc(f32(masks of [s, e)) * f32(1 - ts[i + 1] / ts[i])) where i < spb - 1, all masks
    where i = spb - 1. The pass "all" stands for i = 0, but it fills one, not what ts[0] and ts[1] would say.
    A block ends after the first pass "block" that leaves no mask in [s, e); with counts also in the pass with i = spb,
    which is run and thrown away. Nothing is tested after the pass "all". So a block has two passes at least; with B = 1
    the second is idle, and with spb = 1 it is thrown away: all positions of the block but s stay masked for good.
    Redline's own, published nowhere: threshold with cache "none". For each block, passes "all" with the shift over the
    canvas and the masks of [s, e) as candidates, until none is left; s is a candidate like others.

LLaDA ("low-confidence", "random")
    No shift. The token is the largest logit; at temperature T above 0 it is drawn from softmax(l / T), which is how
    the published Gumbel formula is distributed. Confidence: softmax(l)[token] without T in f64 (low-confidence), u
    (random). Ids from vocab_size to embedding_size - 1 have rows of the head and may win like others.
    cfg_scale c above 0: l = l0 + (c + 1) (l1 - l0), l0 from the canvas with the mask id for every prompt token.
    A block that starts with m masks fills m / spb candidates in step i, one more if i < m mod spb. Candidates are all
    masks before e, also those left over in earlier blocks. There are always S passes.
    The prompts of a batch are of one length (the published models ignored padding).
    threshold (Fast-dLLM): the best candidate is filled and each other one not below it, until [s, e) has no mask.
    cache (Fast-dLLM): the first pass of a block is "all" and fills as without a cache (its count is that of i = 0);
    K and V as above. The passes "block" go on with i = 1, 2, .. or the threshold; candidates are the masks of [s, e).
    A block ends after the first of them that leaves no mask, so it has two passes even if the first filled everything.

Random numbers are Redline's, a function of the request's seed (u64 arithmetic wraps). Requests of a batch share it.

    mix(z):  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;  z ^ (z >> 31)
    u(seed, step, position, draw) =
        (mix(mix(mix(seed + g) ^ ((step << 34) | (position << 2) | draw)) + g) >> 11) / 2^53,  g = 0x9e3779b97f4a7c15

For example u(0, 0, 0, 0) = 0.33805245419550545 and u(7, 3, 11, 1) = 0.12255220526171517.

step is the number of the pass of the run, from 0 and through all blocks; position is that in the request's own canvas.
draw 0: whether origin fills, and the confidence of random; 1: the token; 2: alg_temp.
A drawn token: probabilities in f64, ids by falling probability, equal ones by rising id; the first whose cumulative sum
exceeds u times the sum of all, else the last.

Ties go to the lowest position and the lowest id; no run has any. Logits, filters and Dream's confidences are f32. The
mask id is a token like any other (run "mask-is-drawn"; in no other run does it fill a position).

Seeds
=====

A checkpoint's seed is the first, counting from 1, whose reference is as safe as in make.py and which fills masks with
many ids. The prompts of a run are the first with which every decision is at least LIMITS away from another outcome and
other option values (`unlike`) give other passes, so that an engine that ignores an option cannot pass.
"""

import itertools
import json
import math
import shutil
import sys
from dataclasses import dataclass, replace

import make  # first: it tells the Hugging Face libraries that there is no network
import torch
import transformers
from make import HERE, require, rounded, significant, size, top_margin, write_json
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(HERE.parents[1] / "xtask/reference"))
import masked

MANIFEST = "diffusion-manifest.json"
MASKED_PROMPT_TOKENS = 9
TRANSFORMERS_TOLERANCE = 1e-5
CACHE_TOLERANCE = 1e-4
MAX_DIRECTORY_BYTES = 500_000
MAX_RUNS_BYTES = 700_000
MAX_PROMPTS = 20_000
MIN_DISTINCT = 5  # ids in 12 or more generated tokens

# How far every decision of a run is from another outcome.
LIMITS = {
    "argmax": 2e-3,  # best minus second logit
    "choice": 2e-5,  # last chosen minus first unchosen confidence, over the former or SMALL, whichever is larger
    "threshold": 1e-4,  # confidence and threshold
    "top_p": 1e-5,  # cumulative probability and top_p
    "filter": 1e-4,  # logits of the last id that a filter keeps and the first that it drops
    "edge": 1e-5,  # uniform number and cumulative probability
    "order": 1e-4,  # a drawn token's probability and its neighbours', relative
    "transfer": 1e-5,  # uniform number and probability of filling
}
SMALL = 0.05


@dataclass
class Run:
    name: str
    lengths: list[int]  # of the prompts
    options: dict
    unlike: list[dict]  # other values with which the passes must be others
    masks: tuple[int, ...]  # positions of the prompt that are to be filled as well
    draws_mask: bool  # whether the mask id is drawn somewhere

    def shows(self, passes):
        """Whether the passes show what the run is for."""
        cached = [one for one in passes if one["rows"] == "block"]
        sizes = [len(one["committed"][0]) for one in cached or passes]
        # Where random numbers go by the number of the pass, none is idle: an engine may leave such a pass out.
        if {"seed", "cache"} <= self.options.keys() and 0 in sizes:
            return False
        if self.options.get("threshold", 0) < 0.1 or self.options["block_length"] == 1:
            return True
        return sizes.count(1) > 1 and sum(size > 1 for size in sizes) > 1  # the threshold decides both ways


@dataclass
class Checkpoint:
    name: str
    family: str
    covers: str
    config: dict
    matters: list[dict]
    runs: list[Run]


def runs_of(new_tokens):
    """A function that describes a run with so many new tokens, unless it says otherwise."""

    def run(name, lengths, algorithm, steps=None, unlike=(), masks=(), draws_mask=False, new=new_tokens, **options):
        head = {"algorithm": algorithm, "max_new_tokens": new} | ({"steps": steps} if steps else {})
        return Run(name, lengths, head | options, list(unlike), masks, draws_mask)

    return run


NO_CACHE, PREFIX, DUAL = ({"cache": cache} for cache in ("none", "prefix", "dual"))
MASKGIT, MARGIN, ENTROPY, RANDOM = (
    {"algorithm": name} for name in ("maskgit-plus", "topk-margin", "entropy", "random")
)


# fmt: off
def dream_runs(n, fewer, more, block, threshold, lengths):
    """n new tokens in n, fewer and more steps; threshold: one that decides both ways."""
    run, one, three, blocks = runs_of(n), lengths[:1], lengths, n // block
    surest = {"block_length": block, "threshold": threshold}
    return [
        run("origin", one, "origin", n, seed=1, unlike=[{"seed": 2}]),
        run("origin-batch", three, "origin", fewer, seed=11),
        run("origin-sampled-batch", three, "origin", fewer - 1, temperature=0.9, top_k=20, seed=5,
            unlike=[{"top_k": 0}]),
        run("maskgit-plus", one, "maskgit-plus", fewer, unlike=[ENTROPY, MARGIN]),
        run("maskgit-plus-batch", three, "maskgit-plus", n),
        run("topk-margin", one, "topk-margin", more, unlike=[MASKGIT, ENTROPY]),
        run("topk-margin-batch", three, "topk-margin", fewer),
        run("entropy", one, "entropy", n, unlike=[MASKGIT, MARGIN]),
        run("entropy-batch", three, "entropy", fewer + 2, new=n - 3),
        run("entropy-more-steps", one, "entropy", more, new=n - 5),
        run("infill", [10], "entropy", 9, new=6, masks=(0, 3, 4, 8)),
        run("infill-fewer-steps", [12], "maskgit-plus", 4, new=5, masks=(1, 2, 3, 7, 10, 11)),
        run("top-p", one, "entropy", n, top_p=0.9, unlike=[{"top_p": 1.0}]),
        run("top-k", one, "entropy", n, top_k=5, unlike=[{"top_k": 0}]),
        run("top-p-top-k", one, "entropy", fewer, top_p=0.9, top_k=5, unlike=[{"top_k": 0}]),
        run("top-p-top-k-both-cut", one, "entropy", n, top_p=0.5, top_k=7, unlike=[{"top_p": 1.0}, {"top_k": 0}]),
        run("margin-top-p", one, "topk-margin", fewer, top_p=0.9, unlike=[{"top_p": 1.0}]),
        run("sampled", one, "maskgit-plus", n, temperature=0.7, top_p=0.9, seed=7,
            unlike=[{"top_p": 1.0}, {"temperature": 1.0}, {"seed": 8}]),
        run("alg-temp", one, "entropy", fewer, alg_temp=0.5, seed=3,
            unlike=[{"alg_temp": 0}, {"alg_temp": 1.0}, {"seed": 4}]),
        run("eps", one, "maskgit-plus", fewer, eps=0.1, unlike=[{"eps": 1e-3}]),
        run("mask-is-drawn", one, "maskgit-plus", fewer, temperature=1.3, seed=13, draws_mask=True),
        run("threshold", one, "maskgit-plus", **surest, unlike=[{"block_length": n}]),
        run("threshold-prefix", one, "maskgit-plus", **surest, **PREFIX, unlike=[NO_CACHE, DUAL]),
        run("threshold-dual", one, "maskgit-plus", **surest, **DUAL, unlike=[NO_CACHE, PREFIX]),
        run("threshold-dual-sampled", one, "maskgit-plus", **surest, **DUAL, temperature=0.8, top_p=0.95, seed=17,
            unlike=[{"temperature": 0}, {"top_p": 1.0}]),
        run("counts-prefix", one, "entropy", n, block_length=block, **PREFIX, unlike=[DUAL]),
        run("counts-dual", one, "entropy", n // 2, block_length=block, **DUAL, unlike=[PREFIX]),
        run("counts-dual-top-p", one, "entropy", n, block_length=block, **DUAL, top_p=0.9, unlike=[{"top_p": 1.0}]),
        run("counts-dual-more-steps", one, "entropy", blocks * (block + 3), block_length=block, **DUAL),
        run("counts-prefix-one-step", one, "entropy", blocks, block_length=block, **PREFIX),
        run("blocks-of-one", one, "maskgit-plus", new=5, block_length=1, threshold=threshold, **DUAL),
    ]


def llada_runs(n, block, steps_a_block, threshold, lengths):
    """n new tokens in blocks of some steps that do not divide them; threshold: one that decides both ways."""
    run, one, two, three, blocks = runs_of(n), lengths[:1], lengths[1:2], lengths[:1] * 3, n // block
    fewer, whole = blocks * steps_a_block, {"block_length": n}
    surest = {"block_length": block, "threshold": threshold}
    return [
        run("low-confidence", one, "low-confidence", n, unlike=[RANDOM]),
        run("low-confidence-fewer-steps", two, "low-confidence", n * 3 // 7),
        run("low-confidence-blocks", two, "low-confidence", n, block_length=block, unlike=[whole]),
        run("low-confidence-blocks-fewer-steps", one, "low-confidence", fewer, block_length=block, unlike=[whole]),
        run("low-confidence-more-steps", one, "low-confidence", blocks * (block + 2), block_length=block),
        run("low-confidence-batch", three, "low-confidence", fewer, block_length=block),
        run("random", one, "random", n, seed=1, unlike=[{"seed": 2}]),
        run("random-blocks", two, "random", fewer, block_length=block, seed=2, unlike=[whole]),
        run("random-batch", three, "random", n * 2 // 3, seed=11),
        run("guided", one, "low-confidence", n, cfg_scale=1.5, unlike=[{"cfg_scale": 0}, {"cfg_scale": 0.5}]),
        run("guided-blocks", one, "low-confidence", fewer, block_length=block, cfg_scale=1.5,
            unlike=[{"cfg_scale": 0}]),
        run("sampled", one, "low-confidence", n, temperature=0.8, seed=7, unlike=[{"temperature": 0.5}, {"seed": 8}]),
        run("sampled-random", one, "random", fewer, block_length=block, temperature=0.8, seed=5, unlike=[{"seed": 6}]),
        run("sampled-batch", three, "low-confidence", fewer, block_length=block, temperature=0.8, seed=9),
        run("sampled-guided", one, "low-confidence", fewer, block_length=block, temperature=0.8, cfg_scale=1.5, seed=3,
            unlike=[{"cfg_scale": 0}]),
        run("mask-is-drawn", one, "low-confidence", fewer, block_length=block, temperature=1.2, seed=13,
            draws_mask=True),
        run("threshold", one, "low-confidence", **surest, unlike=[whole]),
        run("threshold-prefix", one, "low-confidence", **surest, **PREFIX, unlike=[NO_CACHE, DUAL]),
        run("threshold-dual", two, "low-confidence", **surest, **DUAL, unlike=[NO_CACHE, PREFIX]),
        run("threshold-dual-sampled", one, "low-confidence", **surest, **DUAL, temperature=0.8, seed=17,
            unlike=[{"temperature": 0}]),
        run("threshold-prefix-all-at-once", one, "low-confidence", block_length=block, threshold=0.01, **PREFIX),
        run("counts-prefix", one, "low-confidence", fewer, block_length=block, **PREFIX, unlike=[NO_CACHE, DUAL]),
        run("counts-dual", one, "low-confidence", n, block_length=block, **DUAL, unlike=[NO_CACHE, PREFIX]),
        run("counts-dual-two-steps", one, "low-confidence", 2 * blocks, block_length=block, **DUAL, unlike=[PREFIX]),
        run("counts-dual-random", one, "random", fewer, block_length=block, **DUAL, seed=19, unlike=[PREFIX]),
    ]
# fmt: on


def dream_config(**values):
    return {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "auto_map": {"AutoConfig": "configuration_dream.DreamConfig", "AutoModel": "modeling_dream.DreamModel"},
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 256,
        "model_type": "Dream",
        "rope_scaling": None,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.46.2",
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
    } | values


def llada_config(**values):
    return {
        "activation_type": "silu",
        "alibi": False,
        "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "auto_map": {
            "AutoConfig": "configuration_llada.LLaDAConfig",
            "AutoModel": "modeling_llada.LLaDAModelLM",
            "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        },
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "embedding_dropout": 0.0,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_cutoff_factor": None,
        "init_device": "meta",
        "init_fn": "mitchell",
        "init_std": 0.02,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "max_sequence_length": 256,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rope": True,
        "rope_full_precision": True,
        "scale_logits": False,
        "transformers_version": "4.46.3",
        "use_cache": False,
    } | values


CHECKPOINTS = [
    Checkpoint(
        name="dream-a",
        family="dream",
        covers="q/k/v biases, untied, ids behind the mask id; head size 16, 3:1",
        config=dream_config(
            bos_token_id=151,
            eos_token_id=151,
            hidden_size=96,
            intermediate_size=36,
            mask_token_id=154,
            max_window_layers=2,
            num_attention_heads=6,
            num_hidden_layers=2,
            num_key_value_heads=2,
            pad_token_id=151,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            vocab_size=157,
        ),
        matters=[{"rms_norm_eps": 1e-4}, {"rope_theta": 10000.0}],
        runs=dream_runs(n=16, fewer=5, more=21, block=4, threshold=0.22, lengths=[7, 4, 9]),
    ),
    Checkpoint(
        name="dream-b",
        family="dream",
        covers="epsilon 1e-5, theta 1e4, the mask id last; head size 8, as many KV heads as heads",
        config=dream_config(
            bos_token_id=1,
            eos_token_id=2,
            hidden_size=48,
            intermediate_size=70,
            mask_token_id=130,
            max_window_layers=1,
            num_attention_heads=6,
            num_hidden_layers=2,
            num_key_value_heads=6,
            pad_token_id=0,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            vocab_size=131,
        ),
        matters=[{"rms_norm_eps": 1e-3}, {"rope_theta": 1000000.0}],
        runs=dream_runs(n=24, fewer=11, more=31, block=8, threshold=0.2, lengths=[9, 13, 5]),
    ),
    Checkpoint(
        name="llada-a",
        family="llada",
        covers="n_kv_heads null, untied, more embedding rows than tokens; head size 10, as many KV heads as heads",
        config=llada_config(
            d_model=50,
            embedding_size=151,
            eos_token_id=140,
            mask_token_id=143,
            mlp_hidden_size=76,
            n_heads=5,
            n_kv_heads=None,
            n_layers=3,
            pad_token_id=140,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            vocab_size=145,
            weight_tying=False,
        ),
        matters=[{"rms_norm_eps": 1e-3}, {"rope_theta": 10000.0}],
        runs=llada_runs(n=24, block=8, steps_a_block=5, threshold=0.2, lengths=[9, 6, 11]),
    ),
    Checkpoint(
        name="llada-b",
        family="llada",
        covers="tied, epsilon 1e-4, theta 1e4, as many embedding rows as tokens; head size 14, 2:1",
        config=llada_config(
            d_model=56,
            embedding_size=173,
            eos_token_id=2,
            mask_token_id=5,
            mlp_hidden_size=90,
            n_heads=4,
            n_kv_heads=2,
            n_layers=2,
            pad_token_id=1,
            rms_norm_eps=1e-4,
            rope_theta=10000.0,
            vocab_size=173,
            weight_tying=True,
        ),
        matters=[{"rms_norm_eps": 1e-2}, {"rope_theta": 500000.0}],
        runs=llada_runs(n=18, block=6, steps_a_block=4, threshold=0.15, lengths=[7, 10, 5]),
    ),
]


# --------------------------------------------------------------------------------------------------------- forward

# Names on disk by family; {} is the layer. Qwen2 and Llama in transformers have Dream's.
LAYER_TENSORS = {
    "dream": {
        "attention_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    "llada": {
        "attention_norm": "attn_norm",
        "q": "q_proj",
        "k": "k_proj",
        "v": "v_proj",
        "o": "attn_out",
        "mlp_norm": "ff_norm",
        "gate": "ff_proj",
        "up": "up_proj",
        "down": "ff_out",
    },
}
TENSORS = {
    "dream": {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "layer": "model.layers.{}."},
    "llada": {
        "embedding": "model.transformer.wte",
        "norm": "model.transformer.ln_f",
        "head": "model.transformer.ff_out",
        "layer": "model.transformer.blocks.{}.",
    },
}


def tensor_name(family, part, layer=None):
    outer = TENSORS[family]
    return outer[part] if layer is None else outer["layer"].format(layer) + LAYER_TENSORS[family][part]


def renamed(tensors, layers, old, new):
    """The tensors under another family's names."""
    parts = [(part, None) for part in ("embedding", "norm", "head")]
    parts += [(part, layer) for layer in range(layers) for part in LAYER_TENSORS[old]]
    names = {tensor_name(old, *part): tensor_name(new, *part) for part in parts}
    split = {name: name.rpartition(".") for name in tensors}
    return {f"{names[module]}.{kind}": tensors[name] for name, (module, _, kind) in split.items()}


@dataclass
class Net:
    """A decoder in which every position sees every other."""

    family: str
    tensors: dict
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    ids: int  # below which a tokenizer's ids are
    mask: int
    pad: int
    bf16: bool = False  # round matrices and the inputs of linear layers

    @classmethod
    def of(cls, config, tensors):
        if config["model_type"] == "Dream":
            family, hidden, layers = "dream", config["hidden_size"], config["num_hidden_layers"]
            heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        else:
            family, hidden, layers = "llada", config["d_model"], config["n_layers"]
            heads, kv_heads = config["n_heads"], config["n_kv_heads"] or config["n_heads"]
        return cls(
            family=family,
            tensors=tensors,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=hidden // heads,
            eps=config["rms_norm_eps"],
            theta=config["rope_theta"],
            ids=config["vocab_size"],
            mask=config["mask_token_id"],
            pad=config["pad_token_id"],
        )

    @torch.no_grad()
    def forward(self, ids, positions, allowed=None, cache=None, at=0):
        """Logits [B, T, rows] and keys and values of every layer, a pair [B, KV heads, N, head size] each.

        allowed: [B, T, N], whether a query sees a key; None: all do. A query that sees nothing gets 0.
        cache: keys and values of N positions; those from `at` on give way to the ones of `ids`. None: N = T.
        """
        x = self.tensors[f"{tensor_name(self.family, 'embedding')}.weight"][ids]
        rotation = self.rotation(positions)
        kept = []
        for layer in range(self.layers):
            h = self.norm(x, "attention_norm", layer)
            q, k, v = (self.split(self.linear(h, part, layer)) for part in "qkv")
            q, k = rotate(q, *rotation), rotate(k, *rotation)
            if cache is not None:
                k, v = (put(old, new, at) for old, new in zip(cache[layer], (k, v)))
            kept.append((k, v))
            x = x + self.linear(self.attention(q, k, v, allowed), "o", layer)
            h = self.norm(x, "mlp_norm", layer)
            h = torch.nn.functional.silu(self.linear(h, "gate", layer)) * self.linear(h, "up", layer)
            x = x + self.linear(h, "down", layer)
        x = self.norm(x, "norm")
        tied = f"{tensor_name(self.family, 'head')}.weight" not in self.tensors
        return self.linear(x, "embedding" if tied else "head"), kept

    def logits(self, ids):
        """[T, rows] of one sequence."""
        return self.forward(ids[None], torch.arange(len(ids))[None])[0][0]

    def norm(self, x, part, layer=None):
        weight = self.tensors[f"{tensor_name(self.family, part, layer)}.weight"]
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * weight

    def linear(self, x, part, layer=None):
        name = tensor_name(self.family, part, layer)
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        if self.bf16:
            x, weight = rounded(x), rounded(weight)
        return torch.nn.functional.linear(x, weight, bias)

    def split(self, x):
        """[B, T, heads * head size] as [B, heads, T, head size]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def rotation(self, positions):
        frequencies = 1.0 / self.theta ** (torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim)
        angles = positions[:, None, :, None].float() * frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    def attention(self, q, k, v, allowed):
        k, v = (kv.repeat_interleave(self.heads // self.kv_heads, dim=1) for kv in (k, v))
        scores = q @ k.transpose(2, 3) * self.head_dim**-0.5
        if allowed is not None:
            scores = scores.masked_fill(~allowed[:, None], -torch.inf)
        return (scores.softmax(-1).nan_to_num(0.0) @ v).transpose(1, 2).flatten(2)


def rotate(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def put(old, new, at):
    """`old` with the rows from `at` on replaced, and lengthened where `new` reaches further."""
    return torch.cat([old[:, :, :at], new, old[:, :, at + new.shape[2] :]], dim=2)


# -------------------------------------------------------------------------------------------------- one run's state


class TooClose(Exception):
    """Another engine's rounding might decide otherwise."""


class Margins:
    """The smallest distance of each kind of decision from another outcome."""

    def __init__(self, limits=LIMITS):
        self.limits = limits
        self.least = {}

    def see(self, kind, distance):
        distance = float(distance)
        if distance < self.limits.get(kind, -math.inf):
            raise TooClose(f"{kind} {distance}")
        self.least[kind] = min(distance, self.least.get(kind, math.inf))


class Canvas:
    """Prompts of a batch, padded on the left, and masks behind them; what has happened to them."""

    def __init__(self, net, prompts, new_tokens):
        width = max(len(prompt) for prompt in prompts)
        self.net = net
        self.start = width
        self.pads = [width - len(prompt) for prompt in prompts]
        rows = [[net.pad] * pads + prompt + [net.mask] * new_tokens for pads, prompt in zip(self.pads, prompts)]
        self.ids = torch.tensor(rows)
        self.positions = torch.arange(width + new_tokens).expand(len(prompts), -1)
        self.allowed = None
        if any(self.pads):
            real = torch.arange(width + new_tokens) >= torch.tensor(self.pads)[:, None]
            self.positions = (real.cumsum(-1) - 1).masked_fill(~real, 1)
            self.allowed = real[:, None, :] & real[:, :, None]
        self.passes = []
        self.masks_drawn = 0

    def forward(self, ids=None):
        return self.net.forward(self.ids if ids is None else ids, self.positions, self.allowed)

    def forward_rows(self, begin, end, cache):
        """A forward of some rows with the keys and values of others."""
        return self.net.forward(self.ids[:, begin:end], self.positions[:, begin:end], cache=cache, at=begin)[0]

    def masked(self, request, begin=0, end=None):
        """Places that hold the mask id, ascending."""
        found = (self.ids[request, begin:end] == self.net.mask).nonzero()[:, 0] + begin
        return found.tolist()

    def fill(self, request, places, tokens):
        for place, token in zip(places, tokens):
            self.ids[request, place] = token
            self.masks_drawn += int(token) == self.net.mask

    def end_pass(self, rows, masked_before):
        """Writes the pass down; `masked_before`: masked places of each request before it."""
        committed = [
            [place - pads for place in before if self.ids[request, place] != self.net.mask]
            for request, (pads, before) in enumerate(zip(self.pads, masked_before))
        ]
        canvas = [row[pads:] for row, pads in zip(self.ids.tolist(), self.pads)]
        self.passes.append({"rows": rows, "canvas": canvas, "committed": committed})

    def all_masked(self):
        return [self.masked(request) for request in range(len(self.pads))]


def trace(canvas):
    return {"passes": canvas.passes, "final": canvas.passes[-1]["canvas"], "nfe": len(canvas.passes)}


# ------------------------------------------------------------------------------------------------- random and choice

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
TRANSFER, TOKEN, ORDER = 0, 1, 2  # draws


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def number(seed, counter):
    """In [0, 1)."""
    return (mix((mix(mix((seed + GOLDEN) & WORD) ^ counter) + GOLDEN) & WORD) >> 11) / 2**53


def uniform(seed, step, position, draw):
    return number(seed, (step << 34) | (position << 2) | draw)


@dataclass
class Draws:
    """Uniform numbers of one request in one pass."""

    seed: int
    step: int
    pads: int

    def __call__(self, place, draw):
        return uniform(self.seed, self.step, place - self.pads, draw)


def draws(options, step, canvas, request):
    return Draws(options.get("seed", 0), step, canvas.pads[request])


def without(rows, dropped, margins):
    """`rows` without some ids."""
    if dropped.any():
        kept = rows.masked_fill(dropped, torch.inf).amin(-1)
        gone = rows.masked_fill(~dropped, -torch.inf).amax(-1)
        margins.see("filter", (kept - gone).min())
    return rows.masked_fill(dropped, torch.finfo(rows.dtype).min)


def filtered(rows, options, margins):
    """top_p, then top_k."""
    top_p, top_k = options.get("top_p", 1.0), options.get("top_k", 0)
    if top_p < 1:
        ordered, index = rows.sort(dim=-1, descending=True, stable=True)
        cumulative = ordered.softmax(-1).cumsum(-1)
        margins.see("top_p", (cumulative - top_p).abs().min())
        behind = (cumulative > top_p).roll(1, dims=-1)
        behind[:, 0] = False
        rows = without(rows, torch.zeros_like(behind).scatter(-1, index, behind), margins)
    if top_k > 0:
        least = rows.topk(min(top_k, rows.shape[-1])).values[:, -1:]
        rows = without(rows, rows < least, margins)
    return rows


def drawn(probabilities, u, margins):
    """The id on which u falls, by falling probability."""
    probabilities, ids = probabilities.sort(descending=True, stable=True)
    cumulative = probabilities.cumsum(-1)
    edges = cumulative[probabilities > 0]
    target = u * edges[-1]
    margins.see("edge", (edges - target).abs().min())
    at = min(int((edges <= target).sum()), len(edges) - 1)
    p = probabilities[max(at - 1, 0) : min(at + 2, len(edges))]
    if len(p) > 1:
        margins.see("order", ((p[:-1] - p[1:]) / probabilities[at]).min())
    return int(ids[at])


def tokens_of(rows, places, options, draw, margins):
    """A token for each row of logits [M, rows], and the distribution it is from."""
    if not places:
        return torch.empty(0, dtype=torch.int64), rows
    temperature = options.get("temperature", 0)
    if temperature > 0:
        rows = rows / temperature
    rows = filtered(rows, options, margins)
    probabilities = rows.softmax(-1)
    if temperature > 0:
        picks = [drawn(row.double().softmax(-1), draw(at, TOKEN), margins) for row, at in zip(rows, places)]
        return torch.tensor(picks, dtype=torch.int64), probabilities
    margins.see("argmax", top_margin(rows).min())
    return rows.argmax(-1), probabilities


def confidence(algorithm, probabilities, tokens):
    if algorithm == "topk-margin":
        best = probabilities.topk(2, dim=-1).values
        return best[:, 0] - best[:, 1]
    if algorithm == "entropy":
        return (probabilities * (probabilities + 1e-10).log()).sum(-1)
    require(algorithm == "maskgit-plus", f"algorithm {algorithm}")
    return probabilities.gather(-1, tokens[:, None])[:, 0]


def best(confidences, count, margins):
    """Indices of the `count` largest; the lowest position first among equal ones."""
    order = sorted(range(len(confidences)), key=lambda i: -confidences[i])
    if 0 < count < len(order):
        last, other = confidences[order[count - 1]], confidences[order[count]]
        margins.see("choice", (last - other) / max(abs(last), SMALL))
    return order[:count]


def best_and_above(confidences, threshold, margins):
    """The index of the largest and all that are not below the threshold."""
    for value in confidences:
        margins.see("threshold", abs(value - threshold))
    first = best(confidences, 1, margins)
    return [i for i, value in enumerate(confidences) if i in first or value >= threshold]


def picked(items, indices):
    return [items[i] for i in indices]


# ---------------------------------------------------------------------------------------------------------- samplers


def shifted(logits):
    return torch.cat([logits[:, :1], logits[:, :-1]], dim=1)


def share(times, step):
    """The part of the masks that Dream fills in a step, f32."""
    return 1 - times[step + 1] / times[step]


def dream(canvas, options, margins):
    steps, algorithm = options["steps"], options["algorithm"]
    times = torch.linspace(1, options.get("eps", 1e-3), steps + 1)
    for step in range(steps):
        logits = shifted(canvas.forward()[0])
        masked = canvas.all_masked()
        final = step == steps - 1
        mean = torch.tensor(sum(map(len, masked))) / len(masked)
        count = int(mean) if final else int(mean * share(times, step))
        for request, places in enumerate(masked):
            draw = draws(options, step, canvas, request)
            if algorithm == "origin":
                places = transferred(places, 1.0 if final else float(share(times, step)), draw, margins)
            elif count == 0:
                continue
            tokens, probabilities = tokens_of(logits[request, places], places, options, draw, margins)
            if algorithm != "origin":
                values = confidence(algorithm, probabilities, tokens).tolist()
                chosen = best(noisy(values, places, options, draw), count, margins)
                places, tokens = picked(places, chosen), picked(tokens, chosen)
            canvas.fill(request, places, tokens)
        canvas.end_pass("all", masked)


def transferred(places, p, draw, margins):
    numbers = [draw(place, TRANSFER) for place in places]
    for u in numbers:
        margins.see("transfer", abs(u - p))
    return [place for place, u in zip(places, numbers) if u < p]


def noisy(confidences, places, options, draw):
    """Keys whose largest are distributed as draws without replacement by softmax(confidence / alg_temp)."""
    alg_temp = options.get("alg_temp", 0)
    if alg_temp == 0:
        return confidences
    numbers = [max(draw(place, ORDER), 2.0**-54) for place in places]
    return [value / alg_temp - math.log(-math.log(u)) for value, u in zip(confidences, numbers)]


def dream_blocks(canvas, options, margins):
    """Dream in blocks; one request."""
    length, end = options["block_length"], canvas.ids.shape[1]
    blocks = (end - canvas.start) // length
    per_block = options.get("steps", end - canvas.start) // blocks
    for start in range(canvas.start, end, length):
        if options.get("cache", "none") == "none":
            dream_block_without_cache(canvas, start, start + length, options, margins)
        else:
            dream_block(canvas, start, start + length, per_block, options, margins)


def dream_block_without_cache(canvas, start, end, options, margins):
    while places := canvas.masked(0, start, end):
        rows = shifted(canvas.forward()[0])[0, places]
        fill_by_threshold(canvas, rows, places, "all", options, margins)


def dream_block(canvas, start, end, steps, options, margins):
    masked = canvas.all_masked()
    logits, cache = canvas.forward()
    draw = draws(options, len(canvas.passes), canvas, 0)
    tokens, _ = tokens_of(shifted(logits)[0, start : start + 1], [start], options, draw, margins)
    canvas.fill(0, [start], tokens)
    canvas.end_pass("all", masked)
    last_row = end if options["cache"] == "dual" else canvas.ids.shape[1]
    times = torch.linspace(1, options.get("eps", 1e-3), steps + 1)
    for step in itertools.count(1):
        places = canvas.masked(0, start, end)
        rows = shifted(canvas.forward_rows(start, last_row, cache))[0, [place - start for place in places]]
        if "threshold" in options:
            fill_by_threshold(canvas, rows, places, "block", options, margins)
        elif step == steps:
            canvas.end_pass("block", canvas.all_masked())
            break
        else:
            masks = torch.tensor(float(len(places)))
            count = int(masks) if step == steps - 1 else int(masks * share(times, step))
            fill_by_entropy(canvas, rows, places, count, options, margins)
        if not canvas.masked(0, start, end):
            break


def fill_by_threshold(canvas, rows, places, name, options, margins):
    masked = canvas.all_masked()
    draw = draws(options, len(canvas.passes), canvas, 0)
    tokens, probabilities = tokens_of(rows, places, options, draw, margins)
    values = confidence("maskgit-plus", probabilities, tokens).tolist()
    chosen = best_and_above(values, options["threshold"], margins)
    canvas.fill(0, picked(places, chosen), picked(tokens, chosen))
    canvas.end_pass(name, masked)
    bounded(canvas)


def fill_by_entropy(canvas, rows, places, count, options, margins):
    masked = canvas.all_masked()
    if count > 0:
        draw = draws(options, len(canvas.passes), canvas, 0)
        tokens, probabilities = tokens_of(rows, places, options, draw, margins)
        values = confidence("entropy", probabilities, tokens).tolist()
        chosen = best(noisy(values, places, options, draw), count, margins)
        canvas.fill(0, picked(places, chosen), picked(tokens, chosen))
    canvas.end_pass("block", masked)


def bounded(canvas):
    """A model that keeps giving the mask id would go on for ever."""
    if len(canvas.passes) > 4 * canvas.ids.shape[1]:
        raise TooClose("no end")


def llada(canvas, options, margins):
    width = canvas.ids.shape[1]
    length = options.get("block_length", width - canvas.start)
    blocks = (width - canvas.start) // length
    per_block = options.get("steps", width - canvas.start) // blocks
    prompt = canvas.ids != canvas.net.mask
    for start in range(canvas.start, width, length):
        llada_block(canvas, prompt, start, start + length, per_block, options, margins)


def llada_block(canvas, prompt, start, end, steps, options, margins):
    cached = options.get("cache", "none") != "none"
    last_row = end if options.get("cache") == "dual" else canvas.ids.shape[1]
    requests = range(len(canvas.pads))
    masks = len(canvas.masked(0, start, end))
    counts = [masks // steps + (step < masks % steps) for step in range(steps)]
    for step in itertools.count():
        whole = step == 0 or not cached
        masked = canvas.all_masked()
        if whole:
            logits, cache = guided(canvas, prompt, options)
        else:
            logits = canvas.forward_rows(start, last_row, cache)
        first = 0 if whole else start
        for request in requests:
            places = canvas.masked(request, first, end)
            draw = draws(options, len(canvas.passes), canvas, request)
            rows = logits[request, [place - first for place in places]]
            if "threshold" not in options and step >= steps:
                raise TooClose("the published code has no count for this pass")
            count = None if "threshold" in options else counts[step]
            fill_llada(canvas, request, places, rows, count, options, draw, margins)
        canvas.end_pass("all" if whole else "block", masked)
        bounded(canvas)
        done = not any(canvas.masked(request, start, end) for request in requests)
        if cached:
            finished = done and step > 0
        else:
            finished = done if "threshold" in options else step == steps - 1
        if finished:
            break


def guided(canvas, prompt, options):
    logits, cache = canvas.forward()
    scale = options.get("cfg_scale", 0)
    if scale > 0:
        unconditional, _ = canvas.forward(canvas.ids.masked_fill(prompt, canvas.net.mask))
        logits = unconditional + (scale + 1) * (logits - unconditional)
    return logits, cache


def fill_llada(canvas, request, places, rows, count, options, draw, margins):
    if count == 0 or not places:
        return
    tokens, _ = tokens_of(rows, places, {"temperature": options.get("temperature", 0)}, draw, margins)
    if options["algorithm"] == "random":
        values = [draw(place, TRANSFER) for place in places]
    else:
        values = rows.double().softmax(-1).gather(-1, tokens[:, None])[:, 0].tolist()
    if count is None:
        chosen = best_and_above(values, options["threshold"], margins)
    else:
        chosen = best(values, count, margins)
    canvas.fill(request, picked(places, chosen), picked(tokens, chosen))


def sample(net, prompts, options, margins):
    canvas = Canvas(net, prompts, options["max_new_tokens"])
    if net.family == "llada":
        llada(canvas, options, margins)
    elif "block_length" in options:
        dream_blocks(canvas, options, margins)
    else:
        dream(canvas, options, margins)
    return canvas


# ------------------------------------------------------------------------------------------------------------- runs


def make_prompts(net, run, seed):
    generator = torch.Generator().manual_seed(2_000_000 + seed)
    prompts = [torch.randint(net.ids - 1, (length,), generator=generator).tolist() for length in run.lengths]
    prompts = [[token + (token >= net.mask) for token in prompt] for prompt in prompts]  # every id but the mask
    for place in run.masks:
        prompts[0][place] = net.mask
    return prompts


def safe_canvas(net, run, prompts, margins):
    """The run of these prompts, or None where they do not make a test."""
    try:
        canvas = sample(net, prompts, run.options, margins)
    except TooClose:
        return None
    if (canvas.masks_drawn > 0) != run.draws_mask:
        return None
    if not run.shows(canvas.passes) or not varied(canvas):
        return None
    for change in run.unlike:
        try:
            other = sample(net, prompts, run.options | change, Margins(limits={}))
        except TooClose:
            continue
        if trace(other) == trace(canvas):
            return None
    return canvas


def varied(canvas):
    """No generation collapses into a few tokens."""
    for generated in canvas.ids[:, canvas.start :].tolist():
        filled = [token for token in generated if token != canvas.net.mask]
        if len(set(filled)) < min(MIN_DISTINCT, len(filled) // 3):
            return False
    return True


def make_run(net, run):
    """The run and its manifest entry, with the first prompts that make it a test."""
    for seed in range(1, MAX_PROMPTS):
        margins = Margins()
        prompts = make_prompts(net, run, seed)
        canvas = safe_canvas(net, run, prompts, margins)
        if canvas is not None:
            break
    require(canvas is not None, f"{run.name}: no prompts make it a test")
    if len(prompts) > 1:
        for request, prompt in enumerate(prompts):
            alone = trace(sample(net, [prompt], run.options, Margins(limits={})))
            for one, both in zip(alone["passes"], canvas.passes, strict=True):
                same = one["canvas"][0] == both["canvas"][request] and one["committed"][0] == both["committed"][request]
                require(same, f"{run.name}: request {request} differs alone")
    entry = {
        "prompt_seed": seed,
        "passes": len(canvas.passes),
        "margins": {kind: significant(least) for kind, least in sorted(margins.least.items())},
    }
    return {"name": run.name, "options": run.options, "prompts": prompts} | trace(canvas), entry


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def write_runs(path, runs):
    """One pass a line."""
    written = []
    for run in runs:
        head = ",\n".join(f"{compact(key)}:{compact(run[key])}" for key in ("name", "options", "prompts"))
        passes = ",\n".join(compact(one) for one in run["passes"])
        tail = ",\n".join(f"{compact(key)}:{compact(run[key])}" for key in ("final", "nfe"))
        written.append(f'{{{head},\n"passes":[\n{passes}\n],\n{tail}}}')
    path.write_text("[\n" + ",\n".join(written) + "\n]\n", encoding="utf-8")
    require(json.loads(path.read_text(encoding="utf-8")) == runs, f"{path}: reads back differently")


# ---------------------------------------------------------------------------------------------------------- weights


def causal_config(checkpoint):
    """The config of the model in transformers that differs only in what a position sees."""
    kind, values = masked.causal(checkpoint.config)
    return values | {"model_type": kind}


def named_tensors(model, checkpoint, layers):
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return renamed(tensors, layers, "dream", checkpoint.family)


def make_reference_prompt(net, seed):
    generator = torch.Generator().manual_seed(1_000_000 + seed)
    prompt = torch.randint(net.ids, (make.PROMPT_TOKENS,), generator=generator)
    places = 2 + torch.randperm(make.PROMPT_TOKENS - 2, generator=generator)[:MASKED_PROMPT_TOKENS]
    prompt[places] = net.mask
    prompt[0], prompt[1] = net.ids - 1, 0  # both ends of the embedding table
    return prompt


def bf16_nmse(net, ref):
    tensors = {name: rounded(tensor) if tensor.dim() > 1 else tensor for name, tensor in net.tensors.items()}
    error = replace(net, tensors=tensors, bf16=True).logits(ref["prompt"]) - ref["logits"]
    return float(error.square().sum() / ref["logits"].square().sum())


def reference(net, prompt):
    """The reference tensors, or None where they are no test."""
    ref = {"prompt": prompt, "logits": net.logits(prompt).contiguous()}
    safe = top_margin(ref["logits"]).min() >= make.MIN_MARGIN and bf16_nmse(net, ref) <= make.MAX_BF16_NMSE
    return ref if safe else None


# ----------------------------------------------------------------------------------------------------------- checks


def largest_change(logits, ref):
    return float((logits - ref["logits"]).abs().max())


@torch.no_grad()
def check_transformers(model, net, ref, name):
    """Largest difference to transformers with a mask that hides nothing, and with one that hides padding."""
    prompt, width = ref["prompt"], len(ref["prompt"])
    whole = model(prompt[None], attention_mask=torch.zeros(1, 1, width, width), use_cache=False).logits[0]
    difference = largest_change(whole, ref)
    canvas = Canvas(net, [prompt.tolist(), prompt[5:].tolist()], 3)
    hidden = torch.zeros(canvas.allowed.shape).masked_fill(~canvas.allowed, torch.finfo(torch.float32).min)
    theirs = model(canvas.ids, attention_mask=hidden[:, None], position_ids=canvas.positions, use_cache=False).logits
    ours = canvas.forward()[0]
    for request, pads in enumerate(canvas.pads):
        difference = max(difference, float((theirs - ours)[request, pads:].abs().max()))
    require(difference < TRANSFORMERS_TOLERANCE, f"{name}: differs from transformers by {difference}")
    return difference


def check_cache(net, ref, name):
    """Rows with keys and values of a forward of the same canvas are those of that forward; of another, they are not."""
    ids = ref["prompt"]
    canvas = Canvas(net, [ids.tolist()], 0)
    _, cache = canvas.forward()
    canvas.ids = canvas.ids.clone()
    difference = 0.0
    for begin, end in ((11, 19), (11, len(ids)), (0, 7), (len(ids) - 1, len(ids))):
        rows = canvas.forward_rows(begin, end, cache)[0]
        difference = max(difference, float((rows - ref["logits"][begin:end]).abs().max()))
    require(difference < CACHE_TOLERANCE, f"{name}: rows with a cache differ by {difference}")
    canvas.ids[0, 11:19] = net.mask
    stale, fresh = canvas.forward_rows(11, 19, cache), canvas.forward()[0][:, 11:19]
    effect = float((stale - fresh).abs().max())
    require(effect > make.VISIBLE, f"{name}: stale keys and values hardly matter ({effect})")
    return difference


def check_tensors(net, ref, name):
    """The smallest effect that leaving out one tensor has on the logits."""
    effects = {}
    for tensor, value in net.tensors.items():
        neutral = torch.ones_like(value) if value.dim() == 1 and tensor.endswith("weight") else torch.zeros_like(value)
        other = replace(net, tensors=net.tensors | {tensor: neutral})
        effects[tensor] = largest_change(other.logits(ref["prompt"]), ref)
    weakest = min(effects, key=effects.get)
    require(effects[weakest] > make.VISIBLE, f"{name}: {weakest} hardly matters ({effects[weakest]})")
    return effects[weakest]


def check_config(checkpoint, net, ref):
    """What other config values, and seeing only what came before, do to the logits."""
    effects = {}
    for change in checkpoint.matters:
        other = Net.of(checkpoint.config | change, net.tensors)
        effects[json.dumps(change)] = largest_change(other.logits(ref["prompt"]), ref)
    width = len(ref["prompt"])
    causal = torch.ones(1, width, width).tril().bool()
    effects["causal"] = largest_change(net.forward(ref["prompt"][None], torch.arange(width)[None], causal)[0][0], ref)
    for label, effect in effects.items():
        require(effect > make.VISIBLE, f"{checkpoint.name}: {label} hardly matters ({effect})")
    return effects


# ----------------------------------------------------------------------------------------------------------- files


def read_net(directory):
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return Net.of(config, load_file(directory / "model.safetensors"))


def is_lively(net):
    """Whether the model fills masks with many ids."""
    run = runs_of(16)("trial", [9, 9, 9], "entropy" if net.family == "dream" else "low-confidence", 8)
    return varied(sample(net, make_prompts(net, run, 1), run.options, Margins(limits={})))


def seeded(checkpoint):
    """The first seed that makes a test, the model in transformers, ours and its reference."""
    model = make.build(causal_config(checkpoint))
    for seed in itertools.count(1):
        make.fill(model, seed)
        net = Net.of(checkpoint.config, named_tensors(model, checkpoint, model.config.num_hidden_layers))
        ref = reference(net, make_reference_prompt(net, seed))
        if ref is not None and is_lively(net):
            return seed, model, net, ref


def save(directory, checkpoint, net):
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    write_json(directory / "config.json", dict(sorted(checkpoint.config.items())))
    save_file(net.tensors, directory / "model.safetensors", {"format": "pt"})


def shape_summary(net, ref, config):
    return {
        "layers": net.layers,
        "hidden": net.heads * net.head_dim,
        "heads": net.heads,
        "kv_heads": net.kv_heads,
        "head_dim": net.head_dim,
        "intermediate": config.get("intermediate_size") or config["mlp_hidden_size"],
        "vocab": net.ids,
        "head_rows": ref["logits"].shape[1],
        "mask": net.mask,
        "tied": config.get("tie_word_embeddings") or config.get("weight_tying", False),
    }


def least_margins(entries):
    kinds = sorted({kind for entry in entries.values() for kind in entry["margins"]})
    return {kind: min(entry["margins"].get(kind, math.inf) for entry in entries.values()) for kind in kinds}


def make_checkpoint(checkpoint, out):
    """Write one checkpoint and return its manifest entry."""
    name, directory = checkpoint.name, out / checkpoint.name
    seed, model, built, ref = seeded(checkpoint)
    save(directory, checkpoint, built)
    net = read_net(directory)
    require(largest_change(net.logits(ref["prompt"]), ref) == 0.0, f"{name}: logits after reading")
    to_transformers = check_transformers(model, net, ref, name)
    cache_difference = check_cache(net, ref, name)
    tensor_effect = check_tensors(net, ref, name)
    config_effects = check_config(checkpoint, net, ref)
    save_file(ref, directory / "reference.safetensors")
    made = {run.name: make_run(net, run) for run in checkpoint.runs}
    require(len(made) == len(checkpoint.runs), f"{name}: two runs of one name")
    write_runs(directory / "diffusion.json", [run for run, _ in made.values()])
    entries = {run: entry for run, (_, entry) in made.items()}
    require(size(directory) <= MAX_DIRECTORY_BYTES, f"{name}: {size(directory)} bytes")
    entry = {
        "architecture": checkpoint.config["model_type"],
        "compared_with": type(model).__name__,
        "covers": checkpoint.covers,
        "seed": seed,
        "shape": shape_summary(net, ref, checkpoint.config),
        "parameters": sum(tensor.numel() for tensor in net.tensors.values()),
        "prompt_tokens": len(ref["prompt"]),
        "masked_prompt_tokens": int((ref["prompt"] == net.mask).sum()),
        "min_margin": significant(top_margin(ref["logits"]).min()),
        "logits_std": significant(ref["logits"].std()),
        "bf16_nmse": significant(bf16_nmse(net, ref)),
        "difference_to_transformers": significant(to_transformers),
        "least_effect_of_a_tensor": significant(tensor_effect),
        "effect_of_other_config_values": {label: significant(effect) for label, effect in config_effects.items()},
        "least_margins_of_runs": least_margins(entries),
        "runs": entries,
        "bytes": {path.name: path.stat().st_size for path in sorted(directory.iterdir())},
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    print(
        f"{name:8} seed {seed:2}  {size(directory)} bytes, {entry['bytes']['diffusion.json']} of runs  "
        f"transformers differs by {to_transformers:.1e}, cache by {cache_difference:.1e}"
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
                same = x.keys() == y.keys() and all(x[key].shape == y[key].shape for key in x)
                if not same or not torch.equal(x["prompt"], y["prompt"]):
                    yield f"{label}: other tensors or ids"
                elif not torch.allclose(x["logits"], y["logits"], rtol=0, atol=make.CHECK_TOLERANCE):
                    yield f"{label}: logits differ by {float((x['logits'] - y['logits']).abs().max())}"
            elif a.read_bytes() != b.read_bytes():
                yield f"{label}: other bytes"
    manifests = [json.loads((folder / MANIFEST).read_text(encoding="utf-8")) for folder in (ours, theirs)]
    if manifests[0].keys() != manifests[1].keys():
        yield f"{MANIFEST}: other checkpoints"
    # Without the version of transformers: of its making are only the parameters' names, else it is compared with.
    stable = ("architecture", "covers", "seed", "shape", "parameters", "bytes", "torch")
    for name in sorted(manifests[0].keys() & manifests[1].keys()):
        for key in stable:
            if manifests[0][name].get(key) != manifests[1][name].get(key):
                yield f"{MANIFEST}: {name}: other {key}"
        seeds = [{run: entry["prompt_seed"] for run, entry in one[name]["runs"].items()} for one in manifests]
        if seeds[0] != seeds[1]:
            yield f"{MANIFEST}: {name}: other prompts"


def make_all(out):
    manifest = {checkpoint.name: make_checkpoint(checkpoint, out) for checkpoint in CHECKPOINTS}
    write_json(out / MANIFEST, manifest)
    total = sum(entry["bytes"]["diffusion.json"] for entry in manifest.values())
    require(total <= MAX_RUNS_BYTES, f"{total} bytes of runs")
    print(f"{len(manifest)} checkpoints, {sum(size(out / name) for name in manifest)} bytes, {total} of runs")


if __name__ == "__main__":
    make.command(__doc__, make_all, differences)
