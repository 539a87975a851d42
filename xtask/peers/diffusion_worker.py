"""PyTorch fills the masks of a canvas by the published sampler, in a process of its own.

    python diffusion_worker.py MODEL f32|bf16 THREADS RUNS     {"prompt": [ids], "new": N, "steps": N} on stdin

One line out: {"version": TEXT, "load_s": S, "seconds": [S of every run], "canvases": [[ids] before every pass], "passes":
[[[position, token], ..] of every pass], "close": [how close a call each pass was]}. The loop runs every step over the whole canvas and takes the logits of all
rows, as published (Dream's `diffusion_generate`, LLaDA's `generate`): greedy, one block. A run of two steps warms up.
"""

import json
import os
import sys
import time
from pathlib import Path

THREADS = sys.argv[3]
# Before torch is imported: it counts processors when it starts.
os.environ["OMP_NUM_THREADS"] = THREADS
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))

import masked
import torch
import transformers

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@torch.inference_mode()
def fill(model, config, asked, steps):
    """Seconds of the passes, the canvas before each, and what each did."""
    filling = masked.Filling(config, asked["prompt"], asked["new"], asked["steps"])
    canvases, passes, close = [], [], []
    start = time.perf_counter()
    for _ in range(steps):
        canvases.append(filling.canvas.tolist())
        filled, distance = filling.fill(masked.forward(model, canvases[-1]).logits[0])
        passes.append(filled)
        close.append(min(distance, 1e9))
    return time.perf_counter() - start, canvases, passes, close


def main():
    directory, weights, threads, runs = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(int(threads))
    asked, start = json.load(sys.stdin), time.perf_counter()
    config, model = masked.read_config(directory), masked.load(directory, TYPES[weights], "sdpa")
    load_s, seconds = time.perf_counter() - start, []
    fill(model, config, asked, min(2, asked["steps"]))
    for _ in range(int(runs)):
        taken, canvases, passes, close = fill(model, config, asked, asked["steps"])
        seconds.append(taken)
    version = f"torch {torch.__version__}, transformers {transformers.__version__}"
    answer = {"version": version, "load_s": load_s, "seconds": seconds}
    print(json.dumps(answer | {"canvases": canvases, "passes": passes, "close": close}), file=answers)


if __name__ == "__main__":
    main()
