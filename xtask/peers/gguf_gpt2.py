"""Writes a Hugging Face GPT-2 directory as F32 GGUF, so that llama.cpp computes the same function.

    python gguf_gpt2.py DIR FILE.gguf
"""

import json
import re
import sys
from pathlib import Path

import gguf
import numpy
from safetensors import safe_open

TOP = {
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}
BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
# Causal masks that old checkpoints carry as tensors.
MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def renamed(name):
    """The GGUF name of a tensor, or None if it is to be left out."""
    name = name.removeprefix("transformer.")
    if name in TOP:
        return TOP[name]
    if MASKS.fullmatch(name):
        return None
    match = re.fullmatch(r"h\.(\d+)\.(.+)\.(weight|bias)", name)
    if not match or match[2] not in BLOCK:
        raise ValueError(f"`{name}` is no tensor of GPT-2")
    return f"blk.{match[1]}.{BLOCK[match[2]]}.{match[3]}"


def convert(directory, path):
    """Reads DIR/config.json and DIR/*.safetensors, writes `path`."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    if config["model_type"] != "gpt2":
        raise ValueError(f"`model_type` is {config['model_type']}, this converter knows gpt2")
    writer = gguf.GGUFWriter(str(path), "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    tied = config.get("tie_word_embeddings", True)
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():
                target = renamed(name)
                if target is None or (tied and target == "output.weight"):
                    continue
                values = tensors.get_tensor(name)
                if values.dtype != numpy.float32:
                    raise ValueError(f"`{name}` is {values.dtype}; the comparison wants f32")
                # Conv1D holds [in, out]; llama.cpp wants [out, in].
                if target.startswith("blk.") and values.ndim == 2:
                    values = values.T
                writer.add_tensor(target, numpy.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    convert(*sys.argv[1:])
