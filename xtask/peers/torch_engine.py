"""PyTorch eager through transformers, with its own key/value cache."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from stepper import Stepper

transformers.logging.disable_progress_bar()
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Torch(Stepper):
    def __init__(self, directory, weights, threads):
        torch.set_grad_enabled(False)
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=TYPES[weights]).eval()
        self._cache = None
        self.kv_format = weights
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def prefill(self, prompts):
        self._cache = DynamicCache(config=self._model.config)
        return self._forward(prompts)

    def step(self, ids):
        return self._forward([[token] for token in ids])

    def _forward(self, rows):
        output = self._model(
            torch.tensor(rows), past_key_values=self._cache, use_cache=True, logits_to_keep=1
        )
        return output.logits[:, -1].float().numpy()
