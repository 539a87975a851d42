"""Writes a Hugging Face directory as BF16 GGUF, and a BF16 GGUF in another format of llama.cpp.

    python gguf_model.py convert DIR FILE.gguf
    python gguf_model.py quantise FROM.gguf FILE.gguf FORMAT
"""

import ctypes
import json
import math
import re
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy
import torch
from safetensors import safe_open

import rope

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
NAME = re.compile(r"(?:transformer\.|model\.)?(?:(?:h|layers)\.(\d+)\.)?(.+)\.(weight|bias)")
# Causal masks that old checkpoints carry as tensors.
MASK = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")


def renamed(name, names):
    """The GGUF name of a tensor."""
    match = NAME.fullmatch(name)
    if not match or match[2] not in names:
        raise ValueError(f"`{name}` is no tensor of this architecture")
    block = f"blk.{match[1]}." if match[1] else ""
    return f"{block}{names[match[2]]}.{match[3]}"


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


def describe_llama(writer, config):
    heads, head_dim = config["num_attention_heads"], rope.head_dim(config)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def tensors(directory, config):
    """GGUF name, shape and a function that reads the values in f32, of every tensor."""
    gpt2 = config["model_type"] == "gpt2"
    names, tied = (GPT2, True) if gpt2 else (LLAMA, False)
    tied = config.get("tie_word_embeddings", tied)
    heads = {} if gpt2 else {"attn_q": config["num_attention_heads"]}
    if not gpt2:
        heads["attn_k"] = config.get("num_key_value_heads") or config["num_attention_heads"]
        divisors = rope.divisors(config)
        if divisors:
            yield "rope_freqs.weight", (len(divisors),), lambda: numpy.array(divisors, dtype=numpy.float32)
    for path in sorted(Path(directory).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                if MASK.fullmatch(name):
                    continue
                target = renamed(name, names)
                if tied and target == "output.weight":
                    continue
                shape = tuple(file.get_slice(name).get_shape())
                # Conv1D holds [in, out]; llama.cpp wants [out, in].
                turned = gpt2 and target.startswith("blk.") and len(shape) == 2
                count = heads.get(target.split(".")[-2])

                def values(file=file, name=name, turned=turned, count=count):
                    array = file.get_tensor(name).to(torch.float32).numpy()
                    array = interleaved(array, count) if count else array
                    return numpy.ascontiguousarray(array.T if turned else array)

                yield target, shape[::-1] if turned else shape, values


def bf16(values):
    """Rounded to nearest, ties to even."""
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(numpy.uint8)


def convert(directory, path):
    """One tensor in memory at a time: matrices in BF16, the others in F32."""
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(str(path), config["model_type"])
    {"gpt2": describe_gpt2, "llama": describe_llama}[config["model_type"]](writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    for name, shape, _ in tensors(directory, config):
        matrix = len(shape) == 2
        count = math.prod(shape)
        if matrix:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor_info(name, (*shape[:-1], 2 * shape[-1]), numpy.dtype(numpy.uint8), 2 * count, kind)
        else:
            writer.add_tensor_info(name, shape, numpy.dtype(numpy.float32), 4 * count)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, shape, values in tensors(directory, config):
        writer.write_tensor_data(bf16(values()) if len(shape) == 2 else values())
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
