"""PyTorch eager through transformers, f32, with its own key/value cache."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

transformers.logging.disable_progress_bar()


class Torch:
    def __init__(self, directory):
        torch.set_grad_enabled(False)
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self._cache = None
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def threads(self, count):
        torch.set_num_threads(count)

    def reset(self):
        self._cache = DynamicCache(config=self._model.config)

    def step(self, ids):
        output = self._model(
            torch.tensor([ids]), past_key_values=self._cache, use_cache=True, logits_to_keep=1
        )
        return output.logits[0, -1].numpy()
