"""JAX on the CPU: GPT-2 and Llama under `jit`, f32, with a static key/value cache."""

import json
import os
import time
from pathlib import Path

import numpy

from stepper import Stepper

# Caches are this many tokens long, or a multiple.
SPAN = 128


class Jax(Stepper):
    """Every shape of work is compiled once, ahead of its first use; `compile_s` adds up what that took."""

    def __init__(self, directory, _, threads):
        # Before JAX is imported: its thread pool is as large as the set of processors.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        import jax_model

        self._jax = jax
        config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
        self._model = jax_model.MODELS[config["model_type"]](config)
        self._weights = jax_model.read(directory)
        self._compiled, self._cache, self._position = {}, None, 0
        self.kv_format = "f32"
        self.version = f"jax {jax.__version__}"

    def prefill(self, prompts):
        length = -(-self.capacity // SPAN) * SPAN
        self._cache = self._model.cache(len(prompts), length)
        self._position = 0
        return self._forward(prompts)

    def step(self, ids):
        return self._forward([[token] for token in ids])

    def _forward(self, rows):
        ids, position = numpy.array(rows, dtype=numpy.int32), numpy.int32(self._position)
        shape = (*ids.shape, self._cache[0][0].shape[2])
        if shape not in self._compiled:
            start = time.perf_counter()
            step = self._jax.jit(self._model.forward, donate_argnums=(1,))
            self._compiled[shape] = step.lower(self._weights, self._cache, ids, position).compile()
            self.compile_s += time.perf_counter() - start
        logits, self._cache = self._compiled[shape](self._weights, self._cache, ids, position)
        self._position += ids.shape[1]
        return numpy.asarray(logits)
