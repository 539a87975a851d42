"""Hooks of families with Mamba-2 (Granite 4 H, Bamba, Falcon-H1, Nemotron-H), and of Granite, for parity.py."""

import sys
from contextlib import contextmanager

import delta_nets
import torch

SUPPORTED = ("granite", "granitemoehybrid", "bamba", "falcon_h1", "nemotron_h")


def mamba_of(layer):
    """The part of a layer that is Mamba-2, if it has one."""
    mixer = getattr(layer, "mamba", None) or getattr(layer, "mixer", None)
    return mixer if hasattr(mixer, "A_log") else None


def attention_of(layer):
    attention = getattr(layer, "self_attn", None) or getattr(layer, "mixer", None)
    return attention if hasattr(attention, "q_proj") else None


def rotates(model):
    """Whether attention rotates its queries and keys: Nemotron-H and most of Granite 4 H do not."""
    config = model.config
    return config.model_type != "nemotron_h" and getattr(config, "position_embedding_type", "rope") == "rope"


def prepare(model):
    """Gives Nemotron-H the limits of a step of its configuration in prompts, too."""
    for module in model.modules():
        if hasattr(module, "time_step_limit") and model.config.model_type == "nemotron_h":
            module.time_step_limit = tuple(model.config.time_step_limit)
    return model


def positions(model, past, count):
    """What a pass on a cache is told: Bamba counts positions from 0 again."""
    return {"position_ids": torch.arange(past, past + count)[None]} if model.config.model_type == "bamba" else {}


def factors(config):
    """What the reference multiplies activations by before they are seen, where Redline does so later."""
    if config.model_type != "falcon_h1":
        return {}
    of_input = config.attention_in_multiplier
    return {
        **dict.fromkeys(("query", "key", "value", "query_rope", "attention", "attention_output"), of_input),
        "key_rope": of_input * config.key_multiplier,
        "mlp_output": config.mlp_multipliers[1],
    }


def hook_mamba(mixer, recorder, prefix):
    """Hooks of Mamba-2; its convolution is a function ([`convolutions`])."""
    scale = getattr(mixer, "mup_vector", 1.0)
    mixer.in_proj.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.conv_input", output * scale))
    mixer.out_proj.register_forward_pre_hook(recorder.input(f"{prefix}.recurrence"), with_kwargs=True)
    mixer.out_proj.register_forward_hook(recorder.output(f"{prefix}.conv_output"))


def hook_feed_forward(mlp, recorder, prefix):
    """Hooks of what is not named alike in all families: projections of gate and up, side by side or not, or up alone."""
    down = mlp.output_linear if hasattr(mlp, "output_linear") else mlp.down_proj
    if hasattr(mlp, "input_linear"):

        def both(_module, _inputs, output):
            for name, part in zip(("gate", "up"), output.chunk(2, dim=-1), strict=True):
                recorder.take(f"{prefix}.{name}", part)

        mlp.input_linear.register_forward_hook(both)
    elif hasattr(mlp, "gate_proj"):
        mlp.gate_proj.register_forward_hook(recorder.output(f"{prefix}.gate"))
        mlp.up_proj.register_forward_hook(recorder.output(f"{prefix}.up"))
    down.register_forward_pre_hook(recorder.input(f"{prefix}.mlp_hidden"), with_kwargs=True)
    mlp.register_forward_hook(recorder.output(f"{prefix}.mlp_output"))


def hook_experts(experts, router, shared, recorder, prefix):
    """Hooks of a mixture of experts. The sum with what `shared` returns is no tensor where that stands outside."""
    router.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.router", output[0][None]))
    if shared is None:
        experts.register_forward_hook(recorder.output(f"{prefix}.mlp_output"))
        return
    sums = []
    experts.register_forward_hook(lambda _module, _inputs, output: sums.append(output))
    shared.register_forward_hook(lambda _module, _inputs, output: recorder.take(f"{prefix}.mlp_output", sums.pop() + output))


def hook_mlp(layer, recorder, prefix):
    """Hooks of the feed-forward part of a layer, if it has one."""
    if hasattr(layer, "shared_mlp"):
        if layer.has_experts:
            moe = layer.block_sparse_moe
            hook_experts(moe, moe.router, layer.shared_mlp, recorder, prefix)
        else:
            hook_feed_forward(layer.shared_mlp, recorder, prefix)
        return
    mlp = next(part for part in (getattr(layer, name, None) for name in ("feed_forward", "mlp", "mixer")) if part is not None)
    if hasattr(mlp, "experts"):
        hook_experts(mlp, mlp.gate, None, recorder, prefix)
    elif hasattr(mlp, "down_proj"):
        hook_feed_forward(mlp, recorder, prefix)


def hook(model, recorder, hook_attention):
    """Hooks of all layers."""
    body = model.model
    body.layers[0].register_forward_pre_hook(recorder.input("embedding"), with_kwargs=True)
    for index, layer in enumerate(body.layers):
        prefix = f"layers.{index}"
        mixes = attention_of(layer) is not None or mamba_of(layer) is not None
        first = layer.norm if hasattr(layer, "norm") else layer.input_layernorm
        first.register_forward_hook(recorder.output(f"{prefix}.{'attention_norm' if mixes else 'mlp_norm'}"))
        if attention_of(layer) is not None:
            hook_attention(attention_of(layer), model.config, recorder, prefix)
        if mamba_of(layer) is not None:
            hook_mamba(mamba_of(layer), recorder, prefix)
        second = getattr(layer, "post_attention_layernorm", None) or getattr(layer, "pre_ff_layernorm", None)
        if second is not None:
            second.register_forward_pre_hook(recorder.input(f"{prefix}.residual_mid"), with_kwargs=True)
            second.register_forward_hook(recorder.output(f"{prefix}.mlp_norm"))
        hook_mlp(layer, recorder, prefix)
        layer.register_forward_hook(recorder.output(f"{prefix}.residual"))
    final = next(getattr(body, name) for name in ("final_layernorm", "norm_f", "norm") if hasattr(body, name))
    final.register_forward_hook(recorder.output("final_norm"))


@contextmanager
def convolutions(model, recorder):
    """The convolutions of Mamba-2 and of gated delta nets after SiLU, which are functions of the model's source file."""
    layers = model.model.layers if model.config.model_type in (*SUPPORTED, *delta_nets.SUPPORTED) else []
    layers = [index for index, layer in enumerate(layers) if mamba_of(layer) is not None or delta_nets.delta_net_of(layer) is not None]
    source = sys.modules[type(model).__module__]
    plain = {name: getattr(source, name) for name in ("causal_conv1d_fn", "causal_conv1d_update") if layers}
    calls = 0

    def recording(function):
        def convolve(*inputs, **keywords):
            nonlocal calls
            output = function(*inputs, **keywords)
            # [1, channels, tokens], with earlier tokens first when there is a cache.
            rows = output.transpose(1, 2)[:, -recorder.tokens :]
            recorder.take(f"layers.{layers[calls % len(layers)]}.conv", rows)
            calls += 1
            return output

        return convolve

    for name, function in plain.items():
        setattr(source, name, recording(function))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(source, name, function)
