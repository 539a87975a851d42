"""Hooks of Qwen3.5 and Qwen3-Next, with a gate on attention and with gated delta nets, for parity.py."""

import sys
from contextlib import contextmanager

import torch

SUPPORTED = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")


def delta_net_of(layer):
    """The part of a layer that is a gated delta net, if it has one."""
    return getattr(layer, "linear_attn", None)


def ungated(config, output):
    """The queries of a projection that has a gate behind the query of each head."""
    heads = output.unflatten(-1, (config.num_attention_heads, -1))
    return heads.chunk(2, dim=-1)[0]


def hook_delta_net(mixer, recorder, prefix):
    """Hooks of a gated delta net; its convolution is a function. Qwen3-Next projects the parts of each key head side by side."""
    projected = []

    def collect(last):
        def hook(_module, _inputs, output):
            projected.append(output)
            if not last:
                return
            parts = mixer.fix_query_key_value_ordering(*projected) if len(projected) == 2 else projected
            recorder.take(f"{prefix}.conv_input", torch.cat([part.flatten(2) for part in parts], dim=-1))
            projected.clear()

        return hook

    names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a") if hasattr(mixer, "in_proj_qkv") else ("in_proj_qkvz", "in_proj_ba")
    for name in names:
        getattr(mixer, name).register_forward_hook(collect(name == names[-1]))

    def normed(norm, inputs):
        heads = inputs[0].float()
        heads = norm.weight * heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + norm.variance_epsilon)
        recorder.take(f"{prefix}.recurrence", heads.reshape(1, recorder.tokens, -1))

    mixer.norm.register_forward_pre_hook(normed)
    mixer.out_proj.register_forward_hook(recorder.output(f"{prefix}.conv_output"))


@contextmanager
def attentions(model, recorder):
    """Attention before its gate, which is a function of the model's source file."""
    if model.config.model_type not in SUPPORTED:
        yield
        return
    source = sys.modules[type(model).__module__]
    plain = source.eager_attention_forward

    def attend(module, *inputs, **keywords):
        output = plain(module, *inputs, **keywords)
        recorder.take(f"layers.{module.layer_idx}.attention", output[0])
        return output

    source.eager_attention_forward = attend
    try:
        yield
    finally:
        source.eager_attention_forward = plain
