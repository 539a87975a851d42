"""Write a reference dump for `redline parity`: every named activation of a model, step by step, from Hugging Face transformers.

    python parity.py --model DIR --ids 1,2,3 --steps 4 --out DIR
    python parity.py --model DIR --ids 1,2,3 --masks 8 --steps 4 --out DIR

Step 0 runs the prompt; each further step runs the token that the step before found most probable, on a key/value cache.
With a model that fills masks (Dream, LLaDA), step 0 runs the prompt with masks behind it, and each further step all of it again,
after the surest mask was filled as the published samplers do.
The model runs in f32 on the CPU with eager attention. The dump is `parity.json` and `activations.safetensors`, whose names
`docs/parity.md` lists. Works on every Hugging Face directory of a family that Redline runs.

Needs the packages of tests/golden/requirements.txt. What the hooks saw is held against the logits of a plain forward pass
before anything is written.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import argparse
import json
import platform
import sys
from contextlib import contextmanager
from pathlib import Path

import delta_nets
import hybrids
import masked
import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

SCHEMA = "redline.parity/1"
SUPPORTED = (
    *("gpt2", "llama", "mistral", "qwen2", "qwen3"),
    *("gemma2", "gemma3_text", "ministral3", "olmo2", "olmo3", "phi3", "smollm3"),
    *("cohere", "cohere2", "ernie4_5", "exaone4", "gemma4_text", "glm", "glm4", "hunyuan_v1_dense", "seed_oss"),
    *("gpt_oss", "lfm2", "lfm2_moe", "mixtral", "qwen2_moe", "qwen3_moe"),
    *hybrids.SUPPORTED,
    *delta_nets.SUPPORTED,
)
# Steps one at a time on a cache, against one pass over everything: rounding only.
CACHE_NMSE = 1e-9


def fail(message):
    sys.exit(f"error: {message}")


class Recorder:
    """Activations by name; `step` stands before each."""

    def __init__(self, factors):
        self.step = 0
        # Tokens of the step.
        self.tokens = 0
        self.tensors = {}
        # By name, what a value is divided by.
        self.factors = factors

    def take(self, name, value):
        """`value` is [1, tokens, ..]: what lies behind the tokens becomes one row."""
        key = f"step{self.step}.{name}"
        if key in self.tensors:
            fail(f"`{key}` was seen twice: this version of transformers calls a module more than once")
        if value.shape[0] != 1:
            fail(f"`{key}` has a batch of {value.shape[0]}, and 1 was run")
        rows = value.detach().to(torch.float32)[0] / self.factors.get(name.rsplit(".", 1)[-1], 1.0)
        self.tensors[key] = rows.reshape(rows.shape[0], -1).contiguous().clone()

    def output(self, name):
        def hook(_module, _inputs, output):
            self.take(name, output[0] if isinstance(output, tuple) else output)

        return hook

    def input(self, name):
        def hook(_module, inputs, keywords):
            self.take(name, inputs[0] if inputs else keywords["hidden_states"])

        return hook


def hook_gpt2(model, recorder):
    """Hooks of GPT-2, whose projections of query, key and value are one matrix."""
    body = model.transformer
    # The dropout after the sum of tokens and positions: nothing in evaluation.
    body.drop.register_forward_hook(recorder.output("embedding"))
    for index, block in enumerate(body.h):
        prefix = f"layers.{index}"

        def parts(_module, _inputs, output, prefix=prefix):
            for name, part in zip(("query", "key", "value"), output.chunk(3, dim=-1), strict=True):
                recorder.take(f"{prefix}.{name}", part)

        block.ln_1.register_forward_hook(recorder.output(f"{prefix}.attention_norm"))
        block.attn.c_attn.register_forward_hook(parts)
        block.attn.c_proj.register_forward_pre_hook(recorder.input(f"{prefix}.attention"), with_kwargs=True)
        block.attn.c_proj.register_forward_hook(recorder.output(f"{prefix}.attention_output"))
        block.ln_2.register_forward_pre_hook(recorder.input(f"{prefix}.residual_mid"), with_kwargs=True)
        block.ln_2.register_forward_hook(recorder.output(f"{prefix}.mlp_norm"))
        block.mlp.c_proj.register_forward_pre_hook(recorder.input(f"{prefix}.mlp_hidden"), with_kwargs=True)
        block.mlp.c_proj.register_forward_hook(recorder.output(f"{prefix}.mlp_output"))
        block.register_forward_hook(recorder.output(f"{prefix}.residual"))
    body.ln_f.register_forward_hook(recorder.output("final_norm"))


def split(recorder, names, widths):
    """A hook that takes the parts of an output."""

    def hook(_module, _inputs, output):
        for name, part in zip(names, output.split(widths, dim=-1), strict=True):
            recorder.take(name, part)

    return hook


def heads_last(recorder, name):
    """A hook that takes [1, heads, tokens, head_dim]."""

    def hook(_module, _inputs, output):
        recorder.take(name, output.transpose(1, 2))

    return hook


def norms(layer):
    """The norms before and after attention, and before and after the feed-forward part."""
    named = dict(layer.named_children())
    if "pre_feedforward_layernorm" in named:
        names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    elif "post_self_attn_layernorm" in named:
        names = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    elif "post_attention_layernorm" not in named and "operator_norm" not in named:
        names = ("input_layernorm", None, None, None)
    elif "post_feedforward_layernorm" in named:
        names = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
    elif "operator_norm" in named:
        names = ("operator_norm", None, "ffn_norm", None)
    else:
        names = ("input_layernorm", None, "post_attention_layernorm", None)
    return [named[name] if name else None for name in names]


def hook_projections(attention, config, recorder, prefix):
    """Hooks of the projections of query, key and value, which may be one matrix, and of their norms."""
    parts = (("q", "query"), ("k", "key"), ("v", "value"))
    if hasattr(attention, "qkv_proj"):
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        widths = [heads * head for heads in (config.num_attention_heads, *[config.num_key_value_heads] * 2)]
        attention.qkv_proj.register_forward_hook(split(recorder, [f"{prefix}.{name}" for _, name in parts], widths))
        return
    for part, name in parts:
        projection = getattr(attention, f"{part}_proj", None)
        if projection is None:
            # Keys and values of another layer; or values are keys before their norm.
            if not hasattr(attention, "k_proj"):
                continue
            projection = attention.k_proj
        if part == "q" and config.model_type in delta_nets.SUPPORTED:
            projection.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.query", delta_nets.ungated(config, output)))
        else:
            projection.register_forward_hook(recorder.output(f"{prefix}.{name}"))
        norms = (getattr(attention, norm, None) for norm in (f"{part}_norm", f"{part}_layernorm", f"{name}_layernorm"))
        norm = next((norm for norm in norms if norm is not None), None)
        if norm is not None:
            # These move the heads to the front before their norm.
            first = config.model_type in ("exaone4", "gemma3_text", "hunyuan_v1_dense")
            hook = heads_last if first else Recorder.output
            norm.register_forward_hook(hook(recorder, f"{prefix}.{name}_norm"))


def hook_mlp(mlp, config, recorder, prefix):
    """Hooks of the feed-forward part, and of the router of a mixture of experts, whose logits are [tokens, experts]."""
    mlp.register_forward_hook(recorder.output(f"{prefix}.mlp_output"))
    if hasattr(mlp, "experts"):
        router = mlp.router if hasattr(mlp, "router") else mlp.gate
        router.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.router", output[0][None]))
        return
    if hasattr(mlp, "w1"):
        mlp.w1.register_forward_hook(recorder.output(f"{prefix}.gate"))
        mlp.w3.register_forward_hook(recorder.output(f"{prefix}.up"))
        mlp.w2.register_forward_pre_hook(recorder.input(f"{prefix}.mlp_hidden"), with_kwargs=True)
        return
    if hasattr(mlp, "gate_up_proj"):
        inner = config.intermediate_size
        mlp.gate_up_proj.register_forward_hook(split(recorder, [f"{prefix}.gate", f"{prefix}.up"], [inner, inner]))
    else:
        mlp.gate_proj.register_forward_hook(recorder.output(f"{prefix}.gate"))
        mlp.up_proj.register_forward_hook(recorder.output(f"{prefix}.up"))
    mlp.down_proj.register_forward_pre_hook(recorder.input(f"{prefix}.mlp_hidden"), with_kwargs=True)


def hook_experts_beside(layer, recorder, prefix):
    """Hooks of the experts of Gemma 4, which stand beside the feed-forward part and read rows without a batch."""
    layer.post_feedforward_layernorm_1.register_forward_hook(recorder.output(f"{prefix}.dense_output_norm"))
    layer.router.proj.register_forward_pre_hook(lambda _module, inputs: recorder.take(f"{prefix}.router_norm", inputs[0][None]))
    layer.router.proj.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.router", output[None]))
    norm = layer.pre_feedforward_layernorm_2
    norm.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.experts_norm", output[None]))
    layer.post_feedforward_layernorm_2.register_forward_hook(recorder.output(f"{prefix}.experts_output_norm"))


def hook_conv(conv, recorder, prefix):
    """Hooks of a short convolution."""
    conv.in_proj.register_forward_hook(recorder.output(f"{prefix}.conv_input"))
    conv.out_proj.register_forward_pre_hook(recorder.input(f"{prefix}.conv"), with_kwargs=True)
    conv.out_proj.register_forward_hook(recorder.output(f"{prefix}.conv_output"))


def hook_attention(attention, config, recorder, prefix):
    """Hooks of attention."""
    hook_projections(attention, config, recorder, prefix)
    output = attention.out_proj if hasattr(attention, "out_proj") else attention.o_proj
    if config.model_type not in delta_nets.SUPPORTED:
        output.register_forward_pre_hook(recorder.input(f"{prefix}.attention"), with_kwargs=True)
    output.register_forward_hook(recorder.output(f"{prefix}.attention_output"))


def hook_layer_input(layer, recorder, prefix):
    """Hooks of a per-layer input."""
    layer.per_layer_input_gate.register_forward_pre_hook(recorder.input(f"{prefix}.mlp_sum"), with_kwargs=True)
    layer.per_layer_projection.register_forward_pre_hook(recorder.input(f"{prefix}.layer_input"), with_kwargs=True)
    layer.post_per_layer_input_norm.register_forward_hook(recorder.output(f"{prefix}.layer_input_norm"))


def hook_sum(recorder, name, of, added):
    """Hooks of the input of one module plus the output of another, where their sum is no tensor."""
    inputs = []

    def add(_module, _inputs, output):
        recorder.take(name, inputs.pop() + (output[0] if isinstance(output, tuple) else output))

    of.register_forward_pre_hook(lambda _module, args: inputs.append(args[0]))
    added.register_forward_hook(add)


def hook_llama(model, recorder):
    """Hooks of Llama and those built like it: all families but GPT-2."""
    body = model.model
    body.embed_tokens.register_forward_hook(recorder.output("embedding"))
    if hasattr(body, "per_layer_projection_norm"):
        body.per_layer_projection_norm.register_forward_hook(recorder.output("layer_inputs"))
    for index, layer in enumerate(body.layers):
        prefix = f"layers.{index}"
        mlp = layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp
        names = ("attention_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm")
        layer_norms = norms(layer)
        for name, norm in zip(names, layer_norms, strict=True):
            if norm is not None:
                norm.register_forward_hook(recorder.output(f"{prefix}.{name}"))
        if hasattr(layer, "conv"):
            hook_conv(layer.conv, recorder, prefix)
        elif delta_nets.delta_net_of(layer) is not None:
            delta_nets.hook_delta_net(layer.linear_attn, recorder, prefix)
        else:
            hook_attention(layer.self_attn, model.config, recorder, prefix)
        if hasattr(layer, "per_layer_input_gate"):
            hook_layer_input(layer, recorder, prefix)
        elif hasattr(layer, "layer_scalar"):
            hook_sum(recorder, f"{prefix}.mlp_sum", layer.pre_feedforward_layernorm, layer.post_feedforward_layernorm)
        if model.config.model_type.startswith("cohere"):
            hook_sum(recorder, f"{prefix}.residual_mid", layer, layer.self_attn)
        else:
            middle = layer_norms[2] or mlp
            middle.register_forward_pre_hook(recorder.input(f"{prefix}.residual_mid"), with_kwargs=True)
        hook_mlp(mlp, model.config, recorder, prefix)
        if hasattr(layer, "router"):
            hook_experts_beside(layer, recorder, prefix)
        layer.register_forward_hook(recorder.output(f"{prefix}.residual"))
    norm = body.embedding_norm if hasattr(body, "embedding_norm") else body.norm
    norm.register_forward_hook(recorder.output("final_norm"))


def rotates(attention, config):
    """Whether a layer rotates its queries and keys."""
    if config.model_type in ("exaone4", "cohere2") and config.sliding_window is not None:
        return config.layer_types[attention.layer_idx] == "sliding_attention"
    return getattr(attention, "use_rope", True)


def one_by_one(model, recorder, plain):
    """Gemma 4 rotates queries and keys in two calls, [1, tokens, heads, head_dim] each; some layers have no keys of their own."""
    names = [
        f"layers.{index}.{name}_rope"
        for index, layer in enumerate(model.model.layers)
        for name in ("query", "key")
        if name == "query" or hasattr(layer.self_attn, "k_proj")
    ]
    calls = 0

    def rotate(x, *rest, **keywords):
        nonlocal calls
        x = plain(x, *rest, **keywords)
        recorder.take(names[calls % len(names)], x)
        calls += 1
        return x

    return rotate


@contextmanager
def rotations(model, recorder):
    """Queries and keys after rotation, which is a function of the model's source file and no module."""
    if model.config.model_type == "gpt2" or not hybrids.rotates(model):
        yield
        return
    source = sys.modules[type(model.model.layers[0]).__module__]
    plain = source.apply_rotary_pos_emb
    if model.config.model_type == "gemma4_text":
        source.apply_rotary_pos_emb = one_by_one(model, recorder, plain)
        try:
            yield
        finally:
            source.apply_rotary_pos_emb = plain
        return
    # Some families do not rotate in every layer, and not all layers of LFM2 are attention.
    attention = {index: hybrids.attention_of(layer) for index, layer in enumerate(model.model.layers)}
    layers = [index for index, layer in attention.items() if layer is not None and rotates(layer, model.config)]
    calls = 0

    def rotate(query, key, *rest, **keywords):
        nonlocal calls
        query, key = plain(query, key, *rest, **keywords)
        # [1, heads, tokens, head_dim] each.
        layer = layers[calls % len(layers)]
        recorder.take(f"layers.{layer}.query_rope", query.transpose(1, 2))
        recorder.take(f"layers.{layer}.key_rope", key.transpose(1, 2))
        calls += 1
        return query, key

    source.apply_rotary_pos_emb = rotate
    try:
        yield
    finally:
        source.apply_rotary_pos_emb = plain
    if calls == 0 or calls % len(layers):
        fail(f"{calls} rotations in {len(layers)} layers: this version of transformers rotates elsewhere")


@torch.no_grad()
def run(model, recorder, prompt, steps):
    """The steps, each a list of token ids; step 0 is the prompt."""
    ran, ids, cache, past = [], list(prompt), None, 0
    with rotations(model, recorder), hybrids.convolutions(model, recorder), delta_nets.attentions(model, recorder):
        for step in range(steps + 1):
            recorder.step, recorder.tokens = step, len(ids)
            told = hybrids.positions(model, past, len(ids))
            out = model(torch.tensor([ids]), past_key_values=cache, use_cache=True, **told)
            past += len(ids)
            recorder.take("logits", out.logits)
            ran.append(ids)
            cache, ids = out.past_key_values, [int(out.logits[0, -1].argmax())]
    return ran


@torch.no_grad()
def run_masked(model, recorder, config, arguments):
    """The steps, each a whole canvas; between two of them the surest mask is filled."""
    filling = masked.Filling(config, arguments.ids, arguments.masks, arguments.masks)
    ran = []
    with rotations(model, recorder):
        for step in range(arguments.steps + 1):
            recorder.step = step
            ran.append(filling.canvas.tolist())
            logits = masked.forward(model, ran[-1]).logits
            recorder.take("logits", logits)
            # The published schedule of Dream fills nothing in its first step.
            while step < arguments.steps and not filling.fill(logits[0])[0]:
                pass
    return ran


@torch.no_grad()
def check(plain, recorder, steps, whole_canvases):
    """A model without hooks gives the same logits: for all tokens in one pass, or for every canvas."""
    seen = torch.cat([recorder.tensors[f"step{step}.logits"] for step in range(len(steps))])
    if whole_canvases:
        whole = torch.cat([masked.forward(plain, ids).logits[0] for ids in steps])
    else:
        ids = [token for step in steps for token in step]
        whole = plain(torch.tensor([ids]), use_cache=False).logits[0]
    error = float(((whole - seen) ** 2).sum() / (whole**2).sum())
    if not error <= CACHE_NMSE:
        fail(f"the logits of the steps and those of one pass differ by NMSE {error:.1e}, at most {CACHE_NMSE:.0e} is rounding")
    bad = [name for name, value in recorder.tensors.items() if not bool(torch.isfinite(value).all())]
    if bad:
        fail(f"{len(bad)} activations are not finite, the first `{bad[0]}`")


def load(directory, is_masked):
    if is_masked:
        return masked.load(directory, torch.float32, "eager")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    return hybrids.prepare(model).eval()


def describe(model, architecture, directory, steps):
    config = model.config
    heads = config.num_attention_heads
    # Layers may differ.
    of_layers = getattr(config, "per_layer_config", None)
    first = of_layers[0] if of_layers else config
    return {
        "schema": SCHEMA,
        "model": {
            "source": Path(directory).resolve().name,
            "architecture": architecture,
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "heads": heads,
            "kv_heads": getattr(first, "num_key_value_heads", None) or heads,
            "head_dim": getattr(first, "head_dim", None) or config.hidden_size // heads,
            "vocab": config.vocab_size,
        },
        "dtype": "f32",
        "steps": [{"tokens": tokens} for tokens in steps],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
        },
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face directory")
    parser.add_argument("--ids", required=True, help="token ids of the prompt: 1,2,3")
    parser.add_argument("--masks", type=int, default=8, help="masks behind the prompt, for models that fill them (8)")
    parser.add_argument("--steps", type=int, default=4, help="greedy steps after the prompt (4)")
    parser.add_argument("--out", required=True, type=Path, help="where the dump goes")
    arguments = parser.parse_args()
    try:
        arguments.ids = [int(word) for word in arguments.ids.split(",")]
    except ValueError:
        parser.error(f"--ids is {arguments.ids!r}; ids are numbers: 1,2,3")
    if arguments.steps < 0:
        parser.error(f"--steps is {arguments.steps}; at least 0")
    if not (arguments.model / "config.json").is_file():
        parser.error(f"{arguments.model} holds no config.json")
    if masked.is_masked(masked.read_config(arguments.model)) and arguments.steps >= arguments.masks:
        parser.error(f"{arguments.steps} steps with {arguments.masks} masks: some would have nothing to fill")
    return arguments


def main():
    arguments = parse()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    config = masked.read_config(arguments.model)
    is_masked = masked.is_masked(config)
    model, plain = load(arguments.model, is_masked), load(arguments.model, is_masked)
    kind = model.config.model_type
    if kind not in SUPPORTED:
        fail(f"model_type {kind!r} is not one of {', '.join(SUPPORTED)}")
    outside = [token for token in arguments.ids if not 0 <= token < model.config.vocab_size]
    if outside:
        fail(f"token id {outside[0]} is not in the vocabulary of {model.config.vocab_size}")
    recorder = Recorder(hybrids.factors(model.config))
    if kind in hybrids.SUPPORTED:
        hybrids.hook(model, recorder, hook_attention)
    else:
        (hook_gpt2 if kind == "gpt2" else hook_llama)(model, recorder)
    if is_masked:
        steps = run_masked(model, recorder, config, arguments)
    else:
        steps = run(model, recorder, arguments.ids, arguments.steps)
    check(plain, recorder, steps, is_masked)
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(recorder.tensors, arguments.out / "activations.safetensors")
    architecture = config["architectures"][0] if is_masked else type(model).__name__
    described = json.dumps(describe(model, architecture, arguments.model, steps), indent=1)
    (arguments.out / "parity.json").write_text(described + "\n", encoding="utf-8")
    size = (arguments.out / "activations.safetensors").stat().st_size
    print(f"{len(recorder.tensors)} activations in {len(steps)} steps, {size} bytes, in {arguments.out}")


if __name__ == "__main__":
    main()
