"""Writes a GGUF again with what llama.cpp's server needs: a vocabulary, and a template that makes it a decision model.

    python gguf_served.py FROM.gguf TOKENIZER.json FILE.gguf

The tensors stay as they are. Byte-level BPE with GPT-2's splitting is understood, which is what `redline synth` writes. llama.cpp
answers `/v1/systemone` for models whose metadata name a kind of decision model: `openjev` reads the logits of one letter per option
after one prompt per question, and computes once what the prompts of a request share. That is what Redline does for any model.
"""

import json
import sys
from pathlib import Path

import gguf

# The prompt of a choice is Redline's; other questions are the bare state and instructions, which is a query and an item.
TEMPLATE = (
    "{bos}{% if type == 'choice' %}State:\n{{ state }}\n\nQuestion: {{ instructions }}\n"
    "{% for o in options %}{{ 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[loop.index0] }}. {{ o.key }}\n{% endfor %}"
    "Reply with one letter.\n\nAnswer:"
    "{% else %}{{ state }}{{ instructions }}{% endif %}"
)
SPLIT = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}


class Vocabulary:
    """Tokens by id, merges and special tokens of a `tokenizer.json`."""

    def __init__(self, path):
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        model, split = document["model"], document["pre_tokenizer"] or {}
        if model["type"] != "BPE" or any(split.get(key) != value for key, value in SPLIT.items()):
            raise ValueError(f"only byte-level BPE split as GPT-2 does can be written to GGUF\n  in `{path}`")
        ids = {id: token for token, id in model["vocab"].items()}
        special = {token["id"]: token["content"] for token in document["added_tokens"]}
        ids |= special
        if sorted(ids) != list(range(len(ids))):
            raise ValueError(f"the ids of {len(ids)} tokens have gaps\n  in `{path}`")
        self.tokens = [ids[id] for id in range(len(ids))]
        self.merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        kinds = gguf.TokenType
        self.kinds = [kinds.CONTROL if id in special else kinds.NORMAL for id in range(len(ids))]
        parts = (document.get("post_processor") or {}).get("single", [])
        begins = parts[0].get("SpecialToken") if parts else None
        self.begin = next((id for id, text in special.items() if begins and text == begins["id"]), None)

    def write(self, writer, end):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        writer.add_token_merges(self.merges)
        writer.add_add_bos_token(self.begin is not None)
        if self.begin is not None:
            writer.add_bos_token_id(self.begin)
        writer.add_eos_token_id(end)


def served(source, tokenizer, path):
    """Copies header and tensors, one tensor in memory at a time."""
    reader, vocabulary = gguf.GGUFReader(source), Vocabulary(tokenizer)
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    writer = gguf.GGUFWriter(path, architecture)
    for field in reader.fields.values():
        name, kind = field.name, field.types[0]
        if name.startswith(("GGUF.", "tokenizer.")) or name == gguf.Keys.General.ARCHITECTURE:
            continue
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    config = json.loads((Path(tokenizer).parent / "config.json").read_text(encoding="utf-8"))
    vocabulary.write(writer, config["eos_token_id"])
    bos = vocabulary.tokens[vocabulary.begin] if vocabulary.begin is not None else ""
    writer.add_chat_template([{"name": "systemone", "template": TEMPLATE.replace("{bos}", bos, 1)}])
    writer.add_string(f"{architecture}.decision.type", "openjev")
    for tensor in reader.tensors:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(tensor.data)
    writer.close()


if __name__ == "__main__":
    served(*sys.argv[1:])
