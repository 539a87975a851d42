"""GGUF files of the golden checkpoints and of the demo model, written by llama.cpp's converter.

    python gguf.py PATH/TO/llama.cpp [NAME...]

The converter is that of the source distribution of llama-cpp-python 0.3.36 (`vendor/llama.cpp`); it needs the packages `gguf` 0.19.0 and
`sentencepiece` besides those of requirements.txt. Golden checkpoints become `gguf/NAME.gguf` without a tokenizer; all matrices are bf16.
"""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# One checkpoint of each family that has a name in llama.cpp, and those in which a key matters that the first lacks.
NAMES = [
    "dream-a",
    "gemma2-a",
    "gemma3-a",
    "gemma3-b",
    "gpt2-a",
    "llada-a",
    "llama-a",
    "llama-b",
    "ministral3-a",
    "mistral-a",
    "olmo2-a",
    "olmo3-a",
    "olmo3-b",
    "phi3-a",
    "phi3-b",
    "qwen2-a",
    "qwen3-a",
    "smollm3-a",
]




def prepared(source, folder):
    """A copy of a checkpoint with what the converter asks for and the model does not need."""
    target = pathlib.Path(folder) / source.name
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    # Old configurations of GPT-2 have both.
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]
    (target / "config.json").write_text(json.dumps(config))
    # The converter of Gemma 3 leaves out rows of the embedding beyond the vocabulary.
    vocabulary = {str(i): i for i in range(config.get("vocab_size", 0))}
    tokenizer = {"model": {"vocab": vocabulary}, "added_tokens": []}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    return target


def all_classes(of):
    yield of
    for inner in of.__subclasses__():
        yield from all_classes(inner)


def main():
    # This script is not the package of the same name.
    sys.path.remove(str(HERE))
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    (HERE / "gguf").mkdir(exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            source = prepared(HERE / name, folder)
            config = ModelBase.load_hparams(source, False)
            model_class = get_model_class(get_model_architecture(config, ModelType.TEXT))
            for each in all_classes(ModelBase):
                each.set_vocab = lambda self: None
            target = HERE / "gguf" / f"{name}.gguf"
            # Eager, because the converter's lazy tensors do not support every version of torch.
            file_type = gguf.LlamaFileType.MOSTLY_BF16
            model_class(source, file_type, target, model_name=name, eager=True).write()
            print(name, target.stat().st_size)


if __name__ == "__main__":
    main()
