"""Writes a Hugging Face directory as BF16 GGUF, and a BF16 GGUF in another format of llama.cpp.

    python gguf_model.py convert DIR FILE.gguf
    python gguf_model.py quantise FROM.gguf FILE.gguf FORMAT
"""

import ctypes
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import llama_cpp
import numpy
import torch
from safetensors import safe_open

import rope
import shapes
from gguf_served import Vocabulary

FORMATS = {
    "F32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}
GPT2 = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
LLAMA = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LFM2 = {
    "embed_tokens": "token_embd",
    "embedding_norm": "token_embd_norm",
    "operator_norm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}
QWEN3_5 = LLAMA | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
GEMMA4 = LLAMA | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}
# Names without `.weight` or `.bias`.
GEMMA4_WHOLE = {"layer_scalar": "layer_output_scale.weight"}
QWEN3_5_WHOLE = {"linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a"}
NAME = re.compile(r"(?:transformer\.|model\.)?(?:(?:h|layers)\.(\d+)\.)?(.+)\.(weight|bias)")
WHOLE = re.compile(r"model\.layers\.(\d+)\.(.+)")
# Causal masks that old checkpoints carry as tensors.
MASK = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")


def renamed(name, family):
    """The GGUF name of a tensor."""
    whole = WHOLE.fullmatch(name)
    if whole and whole[2] in family.whole:
        return f"blk.{whole[1]}.{family.whole[whole[2]]}"
    match = NAME.fullmatch(name)
    if not match or match[2] not in family.names:
        raise ValueError(f"`{name}` is no tensor of this architecture")
    block = f"blk.{match[1]}." if match[1] else ""
    return f"{block}{family.names[match[2]]}.{match[3]}"


def interleaved(weight, heads):
    """Rows of a projection in the order of llama.cpp, which rotates neighbours; Hugging Face rotates halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def describe_gpt2(writer, config):
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def describe_common(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])


def describe_llama(writer, config):
    describe_common(writer, config)
    head_dim = rope.head_dim(config)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config.get("num_key_value_heads") or config["num_attention_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def describe_lfm2(writer, config):
    describe_common(writer, config)
    layers, attending, heads = range(config["num_hidden_layers"]), config["full_attn_idxs"], config["num_key_value_heads"]
    writer.add_feed_forward_length(shapes.lfm2_inner(config))
    writer.add_head_count_kv([heads if layer in attending else 0 for layer in layers])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])


def describe_qwen3_5(writer, config):
    describe_common(writer, config)
    head_dim, rotation = config["head_dim"], config["rope_parameters"]
    layers = range(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * rotation["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(rotation["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(config["full_attention_interval"])
    recurs = [not shapes.qwen3_5_attends(config, layer) for layer in layers]
    writer.add_array(f"{writer.arch}.attention.recurrent_layers", recurs)


def describe_gemma4(writer, config):
    describe_common(writer, config)
    layers, rotations = config["num_hidden_layers"], config["rope_parameters"]
    full, sliding, shared = config["global_head_dim"], config["head_dim"], config["num_kv_shared_layers"]
    wide = 2 if config["use_double_wide_mlp"] else 1
    inner = config["intermediate_size"]
    writer.add_feed_forward_length([inner if layer < layers - shared else wide * inner for layer in range(layers)])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(full)
    writer.add_value_length(full)
    writer.add_key_length_swa(sliding)
    writer.add_value_length_swa(sliding)
    writer.add_rope_dimension_count(full)
    writer.add_rope_dimension_count_swa(sliding)
    writer.add_rope_freq_base(rotations["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rotations["sliding_attention"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([shapes.gemma4_slides(config, layer) for layer in range(layers)])
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])


def changed_gpt2(_):
    """Conv1D holds [in, out]; llama.cpp wants [out, in]."""
    return lambda target, array: array.T if target.startswith("blk.") and array.ndim == 2 else array


def changed_llama(config):
    heads = {"attn_q": config["num_attention_heads"]}
    heads["attn_k"] = config.get("num_key_value_heads") or config["num_attention_heads"]

    def changed(target, array):
        count = heads.get(target.split(".")[-2])
        return interleaved(array, count) if count else array

    return changed


def changed_lfm2(_):
    return lambda target, array: array.squeeze(1) if target.endswith("shortconv.conv.weight") else array


def changed_qwen3_5(config):
    """Norms are stored less one, decays as their logarithms. As many heads of values as of keys: their order is that of
    llama.cpp, too."""
    if config["linear_num_key_heads"] != config["linear_num_value_heads"]:
        raise ValueError("as many heads of values as of keys can be compared")

    def changed(target, array):
        if target.endswith("ssm_a"):
            return -numpy.exp(array)
        if target.endswith("ssm_conv1d.weight"):
            return array.squeeze(1)
        return array + 1 if target.endswith("norm.weight") and not target.endswith("ssm_norm.weight") else array

    return changed


def changed_gemma4(_):
    return lambda target, array: array


@dataclass(frozen=True)
class Family:
    """Its name in llama.cpp, the names of its tensors, its header, and how llama.cpp holds values differently: `turns` says that
    matrices are turned."""

    architecture: str
    names: dict
    describe: Callable
    changed: Callable
    whole: dict = field(default_factory=dict)
    turns: bool = False


FAMILIES = {
    "gpt2": Family("gpt2", GPT2, describe_gpt2, changed_gpt2, turns=True),
    "llama": Family("llama", LLAMA, describe_llama, changed_llama),
    "gemma4_text": Family("gemma4", GEMMA4, describe_gemma4, changed_gemma4, GEMMA4_WHOLE),
    "lfm2": Family("lfm2", LFM2, describe_lfm2, changed_lfm2),
    "qwen3_5_text": Family("qwen35", QWEN3_5, describe_qwen3_5, changed_qwen3_5, QWEN3_5_WHOLE),
}


def tensors(directory, config):
    """GGUF name, shape and a function that reads the values in f32, of every tensor."""
    family = FAMILIES[config["model_type"]]
    tied = config.get("tie_word_embeddings", config["model_type"] in {"gpt2", "lfm2"})
    changed = family.changed(config)
    divisors = rope.divisors(config) if config["model_type"] in {"llama", "gemma4_text"} else None
    if divisors:
        yield "rope_freqs.weight", (len(divisors),), lambda: numpy.array(divisors, dtype=numpy.float32)
    for path in sorted(Path(directory).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                if MASK.fullmatch(name):
                    continue
                target = renamed(name, family)
                if tied and target == "output.weight":
                    continue

                def values(file=file, name=name, target=target):
                    return numpy.ascontiguousarray(changed(target, file.get_tensor(name).to(torch.float32).numpy()))

                shape = tuple(file.get_slice(name).get_shape())
                if family.turns and target.startswith("blk.") and len(shape) == 2:
                    shape = shape[::-1]
                # Convolutions have one input for each channel, which llama.cpp leaves out.
                yield target, shape if len(shape) < 3 else (shape[0], shape[2]), values


def is_matrix(name, shape):
    """Whether llama.cpp multiplies by it, so that it may be quantised."""
    return len(shape) == 2 and "conv1d" not in name and "shortconv.conv." not in name


def bf16(values):
    """Rounded to nearest, ties to even."""
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(numpy.uint8)


def convert(directory, path):
    """One tensor in memory at a time: matrices in BF16, the others in F32."""
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    family = FAMILIES[config["model_type"]]
    writer = gguf.GGUFWriter(str(path), family.architecture)
    family.describe(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    try:
        vocabulary = Vocabulary(Path(directory) / "tokenizer.json")
    except (OSError, ValueError):
        # llama.cpp needs none to run ids; Redline does not read such a file.
        writer.add_tokenizer_model("none")
    else:
        vocabulary.write(writer, config["eos_token_id"])
    for name, shape, _ in tensors(directory, config):
        count = math.prod(shape)
        if is_matrix(name, shape):
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor_info(name, (*shape[:-1], 2 * shape[-1]), numpy.dtype(numpy.uint8), 2 * count, kind)
        else:
            writer.add_tensor_info(name, shape, numpy.dtype(numpy.float32), 4 * count)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape, values in tensors(directory, config):
        writer.write_tensor_data(bf16(values()) if is_matrix(name, shape) else values())
    writer.close()


def quantise(source, path, name):
    """By llama.cpp itself, with its own mixture of formats."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = FORMATS[name]
    status = llama_cpp.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(parameters))
    if status != 0:
        raise RuntimeError(f"llama_model_quantize of {source} to {name} returned {status}")


if __name__ == "__main__":
    {"convert": convert, "quantise": quantise}[sys.argv[1]](*sys.argv[2:])
