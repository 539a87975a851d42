"""Engines and tokenizers for the seed's files.

The environment variable REDLINE_SEED_MODEL says which model takes the place of the one that a file names; default: `demo`. The
devices of jax become logical devices of Redline. jax shows two on a machine without accelerators if this module is imported before it.
"""

import dataclasses
import importlib.util
import os
import unittest

import redline

# jax reads this when it is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

NAMED_MODEL = "meta-llama/Llama-3.2-1B-Instruct"
FORMATS = {"bfloat16": "bf16", "float32": "f32", "int8": "w8"}


@dataclasses.dataclass
class ScoreTestConfig:
    """What an engine is built from. `seed` is kept for the files that give one: scores do not depend on it."""

    model: str = NAMED_MODEL
    dtype: str = "bfloat16"
    tp_size: int = 1
    seed: int = 0


class Runner:
    """An engine as the seed's files call it."""

    def __init__(self, engine):
        self._engine = engine
        self.score = engine.score

    def shutdown(self):
        self._engine.close()


class SeedTokenizer:
    """A tokenizer with the method that the seed's files use."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text, add_special_tokens=False):
        return self._tokenizer.encode(text, add_special_tokens)


def _model(name):
    return os.environ.get("REDLINE_SEED_MODEL", "demo") if name == NAMED_MODEL else name


def build_engine(config):
    """An engine for a configuration; an unknown dtype is an error."""
    engine = redline.Engine(_model(config.model), format=FORMATS[config.dtype], tp_size=config.tp_size)
    return Runner(engine)


def get_tokenizer(model):
    return SeedTokenizer(redline.Engine(_model(model)).tokenizer)


def get_label_token_ids(tokenizer, labels):
    """The first token of each label: the seed's own labels, such as ` label0`, have several."""
    return [tokenizer.encode(label)[0] for label in labels]


def skip_if_no_multidevice():
    """Skips a test where jax is not installed or shows one device."""
    if importlib.util.find_spec("jax") is None:
        return unittest.skip("jax is not installed")
    import jax

    return unittest.skipIf(len(jax.devices()) < 2, "jax shows one device")
