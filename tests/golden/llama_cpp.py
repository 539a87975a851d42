"""GGUF files, written by llama.cpp.

    python llama_cpp.py PATH/TO/llama.cpp [NAME...]
    python llama_cpp.py PATH/TO/llama.cpp --quantized PATH/TO/llama-quantize

llama.cpp is that of the source distribution of llama-cpp-python 0.3.36 (`vendor/llama.cpp`). Its converter needs the packages `gguf` 0.19.0
and `sentencepiece` besides those of requirements.txt. Golden checkpoints become `gguf/NAME.gguf` without a tokenizer; all matrices are bf16.

Encoders become `gguf/encoders/NAME.gguf`. Those with a tokenizer (vocabularies.py) have it in the folder `gguf/encoders/NAME` too, and
`gguf/encoders/Qwen3-Reranker-tiny` is a whole checkpoint: both forms of a model must answer alike.

The second command makes a Llama with random weights and quantises it: `quantized/q4_k_m.gguf` as users of llama.cpp do, and
`quantized/mixed.gguf` with another type in almost every tensor. Beside them are a prompt and its logits by transformers, which converts all
weights to f32.
"""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
# One checkpoint of each family that has a name in llama.cpp, and those in which a key matters that the first lacks.
NAMES = [
    "bamba-b",
    "cohere-a",
    "cohere2-a",
    "dream-a",
    "ernie4_5-b",
    "exaone4-a",
    "falcon-h1-b",
    "gemma2-a",
    "gemma3-a",
    "gemma3-b",
    "gemma4-a",
    "gemma4-b",
    "gemma4-c",
    "glm4-a",
    "gpt-oss-a",
    "gpt-oss-b",
    "gpt2-a",
    "granite-a",
    "granite4-b",
    "granite4h-a",
    "granite4h-c",
    "hunyuan-a",
    "lfm2-b",
    "lfm2moe-b",
    "llada-a",
    "llama-a",
    "llama-b",
    "ministral3-a",
    "mistral-a",
    "mixtral-a",
    "nemotron-h-b",
    "nemotron-h-c",
    "olmo2-a",
    "olmo3-a",
    "olmo3-b",
    "phi3-a",
    "phi3-b",
    "qwen2-a",
    "qwen2moe-a",
    "qwen3-a",
    "qwen3_5-a",
    "qwen3_5-b",
    "qwen3_5moe-a",
    "qwen3moe-a",
    "seed-oss-a",
    "smollm3-a",
]
# With a layer that predicts further tokens, as the published files of the family have it.
WITH_FURTHER_LAYERS = ["qwen3_5-b"]
# Without experts, whose number the configuration of transformers 5 has all the same.
WITHOUT_EXPERTS = ["nemotron-h-c"]
# Encoders, with other values of their configurations where the converter needs them.
ENCODERS = {
    "bert-a": {},
    "bert-b": {},  # without the pooler, which is refused
    "jina2-a": {},
    "lfm2-embed-b": {"block_auto_adjust_ff_dim": False},
    "modernbert-a": {},
    "modernbert-c": {"id2label": {"0": "other", "1": "same"}},
    # The converter knows the published numbers of positions only, and takes the second. It reads sizes by the names of transformers.
    "nomic-a": {
        "n_positions": 8192,
        "max_trained_positions": 2048,
        "hidden_size": 48,
        "intermediate_size": 76,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "head_dim": 12,
    },
    "roberta-a": {},
    "roberta-b": {},
    "xlmr-a": {},
    "xlmr-b": {},
}
# Their tokenizers in vocabularies.py, and the rules that split text into words there, which the converter knows by a digest.
TOKENIZERS = {"bert-a": ("word_piece", "jina-v2-en"), "roberta-b": ("roberta", "roberta-bpe")}
# Without a tokenizer: the kind of it, by which the files of RoBERTa and XLM-R are told apart from those of BERT.
KINDS = {"roberta": "gpt2", "xlm-roberta": "t5"}
# A reranker of a decoder: the ids of yes and no, whose rows of the head are its classifier.
RERANKER, YES, NO = "qwen3-a", 7, 3
# One with a tokenizer, in which yes and no are tokens.
READING_RERANKER = "Qwen3-Reranker-tiny"


def add_further_layer(file, attention):
    """Adds a layer that predicts further tokens, with the tensors of a layer with attention, to a checkpoint of Qwen3.5."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    start = f"model.layers.{attention}."
    layer = {f"mtp.layers.0.{name.removeprefix(start)}": values.clone() for name, values in tensors.items() if name.startswith(start)}
    norm = tensors["model.norm.weight"]
    layer |= {f"mtp.{name}.weight": norm.clone() for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    layer["mtp.fc.weight"] = torch.ones(len(norm), 2 * len(norm))
    save_file(tensors | layer, file, {"format": "pt"})


def prepared(source, folder, name=None, changes=()):
    """A copy of a checkpoint with what the converter asks for and the model does not need."""
    target = pathlib.Path(folder) / (name or source.name)
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    # Old configurations of GPT-2 have both.
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]
    config |= dict(changes)
    if source.name in WITH_FURTHER_LAYERS:
        config["mtp_num_hidden_layers"] = 1
        add_further_layer(target / "model.safetensors", config["num_hidden_layers"] - 1)
    (target / "config.json").write_text(json.dumps(config))
    # The converter of Gemma 3 leaves out rows of the embedding beyond the vocabulary.
    vocabulary = {str(i): i for i in range(config.get("vocab_size", 0))}
    tokenizer = {"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": []}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    return target


def find_answers(model_class):
    """Gives the converter the ids of yes and no, which it would look up in the tokenizer."""

    def find(self):
        self.is_rerank, self.token_true_id, self.token_false_id = True, YES, NO
        self.is_tied_embeddings = self.hparams.get("tie_word_embeddings", False)

    model_class._find_rerank_config = find


def set_kind(model):
    """Writes the kind of the tokenizer and the padding token, as the converter does for a model that has a tokenizer."""
    kind = KINDS.get(model.hparams["model_type"])
    if kind:
        model.gguf_writer.add_tokenizer_model(kind)
        model.gguf_writer.add_pad_token_id(model.hparams["pad_token_id"])


def knows_words(rule):
    """Tells the converter which rule splits text into words."""

    def prepare(model_class):
        model_class.get_vocab_base_pre = lambda self, tokenizer: rule

    return prepare


def save_tokenizer(name, size, target):
    import vocabularies

    tokenizer = getattr(vocabularies, name)(size)
    tokenizer.save_pretrained(target)


def set_random(model, scale, embedding=None):
    """Sets norms to values around one, and all other parameters to noise of this scale; the embedding may have its own."""
    import torch

    with torch.no_grad():
        for name, values in model.named_parameters():
            noise = torch.randn_like(values)
            factor = embedding if embedding and "embed" in name else scale
            values.copy_(1 + 0.1 * noise if "norm" in name else factor * noise)


def random_reranker(folder):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(5)
    config = Qwen3Config(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=420,
        max_position_embeddings=1024,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    set_random(model, 0.25)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def as_transformers_5(model_class):
    """Tells the converter of Granite 4 which layers are `attention`, which transformers 5 calls `full_attention`."""
    if hasattr(model_class, "get_attn_layers"):
        of_class = model_class.get_attn_layers

        def of_either(self):
            kinds = self.hparams.get("layer_types") or []
            return [i for i, kind in enumerate(kinds) if kind in ("attention", "full_attention")] if kinds else of_class(self)

        model_class.get_attn_layers = of_either


def published_keys(source):
    """Reads the keys of a configuration only. transformers 5 adds those of experts to a model without them."""

    def load(*_, **__):
        return json.loads((source / "config.json").read_text())

    return staticmethod(load)


def all_classes(of):
    yield of
    for inner in of.__subclasses__():
        yield from all_classes(inner)


MIXED = {
    "blk.0.attn_q": "q5_k",
    "blk.0.attn_k": "q2_k",
    "blk.0.attn_v": "q3_k",
    "blk.0.attn_output": "q4_0",
    "blk.0.ffn_gate": "iq4_nl",
    "blk.0.ffn_up": "q5_1",
    "blk.0.ffn_down": "mxfp4",
    "blk.1.attn_q": "iq4_xs",
    "blk.1.attn_k": "q8_0",
    "blk.1.attn_v": "f16",
    "blk.1.attn_output": "bf16",
    "blk.1.ffn_gate": "q6_k",
    "blk.1.ffn_up": "q3_k",
    "blk.1.ffn_down": "q2_k",
}


def random_llama(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    set_random(model, 0.08, embedding=1)
    model.save_pretrained(folder)


def set_small_vocabulary(model):
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(96)])
    writer.add_token_types([1] * 96)
    writer.add_token_merges(["t 1"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_reference(target):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target.parent, gguf_file=target.name, dtype=torch.float32)
    prompt = torch.randint(0, 96, (1, 40), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        logits = model.eval()(prompt).logits[0]
    save_file({"prompt": prompt[0], "logits": logits.contiguous()}, target.with_suffix(".safetensors"))


def quantized(convert, program):
    (HERE / "quantized").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, whole = pathlib.Path(folder) / "model", pathlib.Path(folder) / "whole.gguf"
        random_llama(source)
        convert(source, whole, "ALL_F32", set_small_vocabulary)
        mixed = ["--token-embedding-type", "q5_0", "--output-tensor-type", "q4_1"]
        for name, of in MIXED.items():
            mixed += ["--tensor-type", f"{name}={of}"]
        for name, flags in [("q4_k_m", []), ("mixed", mixed)]:
            target = HERE / "quantized" / f"{name}.gguf"
            subprocess.run([program, *flags, whole, target, "Q4_K_M"], check=True, stdout=subprocess.DEVNULL)
            write_reference(target)


def main():
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def convert(source, target, file_type, set_vocabulary=None, prepare=lambda model_class: None, no_mtp=False):
        config = ModelBase.load_hparams(source, False)
        model_class = get_model_class(get_model_architecture(config, ModelType.TEXT))
        # Eager, because the converter's lazy tensors do not support every version of torch.
        file_type = getattr(gguf.LlamaFileType, file_type)
        with contextlib.ExitStack() as changes:
            for each in all_classes(ModelBase) if set_vocabulary else []:
                changes.enter_context(mock.patch.object(each, "set_vocab", set_vocabulary, create=True))
            if source.name in WITHOUT_EXPERTS:
                changes.enter_context(mock.patch.object(ModelBase, "load_hparams", published_keys(source)))
            prepare(model_class)
            model_class.no_mtp = no_mtp
            model_class(source, file_type, target, model_name=target.stem, eager=True).write()

    if "--quantized" in sys.argv:
        return quantized(convert, sys.argv[-1])
    (HERE / "gguf" / "encoders").mkdir(exist_ok=True, parents=True)
    for name in sys.argv[2:] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            source = prepared(HERE / name, folder)
            no_further = name not in WITH_FURTHER_LAYERS
            convert(source, HERE / "gguf" / f"{name}.gguf", "MOSTLY_BF16", lambda self: None, as_transformers_5, no_mtp=no_further)
    if sys.argv[2:]:
        return
    encoders = HERE / "gguf" / "encoders"
    for name, changes in ENCODERS.items():
        with tempfile.TemporaryDirectory() as folder:
            source, target = prepared(HERE / "encoders" / name, folder, changes=changes), encoders / f"{name}.gguf"
            if name not in TOKENIZERS:
                convert(source, target, "MOSTLY_BF16", set_kind)
                continue
            tokenizer, rule = TOKENIZERS[name]
            size = json.loads((source / "config.json").read_text())["vocab_size"]
            save_tokenizer(tokenizer, size, encoders / name)
            shutil.copytree(encoders / name, source, dirs_exist_ok=True)
            convert(source, target, "MOSTLY_BF16", prepare=knows_words(rule))
    random_reranker(encoders / READING_RERANKER)
    save_tokenizer("qwen", 420, encoders / READING_RERANKER)
    target = encoders / f"{READING_RERANKER}.gguf"
    convert(encoders / READING_RERANKER, target, "MOSTLY_BF16", prepare=knows_words("qwen2"))
    with tempfile.TemporaryDirectory() as folder:
        source = prepared(HERE / RERANKER, folder, name="Qwen3-Reranker-tiny")
        target = encoders / "qwen3-reranker-a.gguf"
        convert(source, target, "MOSTLY_BF16", lambda self: None, find_answers)


if __name__ == "__main__":
    main()
