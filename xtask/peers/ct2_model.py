"""Writes a Hugging Face directory for CTranslate2, with tokens that are the ids in decimal.

    python ct2_model.py DIR OUT bfloat16|int8
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast


def numbered(directory, out):
    """The model of `directory` in `out`, with a tokenizer of that kind."""
    vocab = json.loads((directory / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    for path in [directory / "config.json", *directory.glob("*.safetensors*")]:
        (out / path.name).symlink_to(path.resolve())
    words = {str(number): number for number in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="0", eos_token="1", unk_token="0"
    ).save_pretrained(out)


class Converter(TransformersConverter):
    """Writes all of Llama 3's `rope_scaling`; the base class (CTranslate2 4.8.5) leaves out two of its numbers."""

    def __init__(self, directory):
        super().__init__(str(directory), low_cpu_mem_usage=True)
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self._scaling = config.get("rope_scaling")

    def _load(self):
        spec = super()._load()
        for layer in spec.decoder.layer if self._scaling else []:
            # The engine reads these attributes; the class of the layer does not declare them.
            attributes = vars(layer.self_attention)
            attributes["rotary_scaling_factor"] = numpy.float32(self._scaling["factor"])
            known = self._scaling["original_max_position_embeddings"]
            attributes["original_max_position_embeddings"] = numpy.int32(known)
        return spec


if __name__ == "__main__":
    source, target, quantisation = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        numbered(Path(source), Path(scratch))
        Converter(Path(scratch)).convert(target, quantization=quantisation)
