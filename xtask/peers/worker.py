"""A peer in a process of its own: loads once, then answers commands on stdin, one JSON object per line.

    python worker.py torch|llama MODEL

    {"do": "prefill", "threads": T, "prompt": [ids]}              -> {"seconds": S}
    {"do": "decode", "threads": T, "prompt": [ids], "new": N}     -> {"seconds": S}   of N - 1 steps of one token
    {"do": "greedy", "threads": T, "prompt": [ids], "new": N}     -> {"ids": [..], "margins": [..]}

An engine is a class with `version`, `threads(n)`, `reset()` and `step(ids)`, which appends ids to the sequence and
returns the logits of the last one as a numpy array.
"""

import json
import os
import sys
import time

import numpy


def prefill(engine, command):
    start = time.perf_counter()
    engine.reset()
    engine.step(command["prompt"]).argmax()
    return {"seconds": time.perf_counter() - start}


def decode(engine, command):
    engine.reset()
    token = int(engine.step(command["prompt"]).argmax())
    start = time.perf_counter()
    for _ in range(command["new"] - 1):
        token = int(engine.step([token]).argmax())
    return {"seconds": time.perf_counter() - start}


def greedy(engine, command):
    engine.reset()
    logits, ids, margins = engine.step(command["prompt"]), [], []
    for _ in range(command["new"]):
        second, first = numpy.partition(logits, -2)[-2:]
        ids.append(int(logits.argmax()))
        margins.append(float(first - second))
        logits = engine.step(ids[-1:])
    return {"ids": ids, "margins": margins}


def load(name, model):
    if name == "torch":
        from torch_engine import Torch

        return Torch(model)
    from llama_engine import Llama

    return Llama(model)


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    engine = load(*sys.argv[1:3])
    print(json.dumps({"version": engine.version}), file=answers)
    work = {"prefill": prefill, "decode": decode, "greedy": greedy}
    for line in sys.stdin:
        command = json.loads(line)
        engine.threads(command["threads"])
        print(json.dumps(work[command["do"]](engine, command)), file=answers)


if __name__ == "__main__":
    main()
