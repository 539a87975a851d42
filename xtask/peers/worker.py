"""A peer in a process of its own: loads once, then answers commands on stdin, one JSON object per line.

    python worker.py ENGINE FORMAT MODEL THREADS

First line out: {"version": TEXT, "kv_format": TEXT, "load_s": S}. After it:

    {"prompts": [[ids], ..], "new": N, "top": K}
    -> {"ids": [[..], ..], "prefill_s": S, "decode_s": S, "compile_s": S, "margins": [..], "top": [..]}
    {"query": [ids], "items": [[ids], ..], "labels": [ids], "warm": BOOL}
    -> {"scores": [[..], ..], "seconds": S}    softmax over the labels; warm: the query was run before
    -> {"unavailable": WHY}          where the engine does not do this kind of work

The first of N tokens belongs to prefill. `margins` (how far the first prompt's choices were from the next best) and
`top` (the K best first ids of the first prompt) are there for K > 0, from engines that show their logits. Between
commands a worker waits for the pipe.
"""

import importlib
import json
import os
import sys
import time

ENGINES = {
    "llama.cpp": ("llama_engine", "Llama"),
    "ctranslate2": ("ct2_engine", "CTranslate2"),
    "openvino": ("openvino_engine", "OpenVino"),
    "torch": ("torch_engine", "Torch"),
    "jax": ("jax_engine", "Jax"),
}


def answered(engine, command):
    if "query" not in command:
        return engine.generate(command["prompts"], command["new"], command["top"])
    if not hasattr(engine, "score"):
        raise NotImplementedError("items after a common query are not scored in one batch")
    return engine.score(command["query"], command["items"], command["labels"], command["warm"])


def main():
    name, weights, model, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    # Before the engine is imported: libraries count processors when they start.
    os.environ["OMP_NUM_THREADS"] = threads
    module, kind = ENGINES[name]
    start = time.perf_counter()
    engine = getattr(importlib.import_module(module), kind)(model, weights, int(threads))
    load_s = time.perf_counter() - start
    hello = {"version": engine.version, "kv_format": engine.kv_format, "load_s": load_s}
    print(json.dumps(hello), file=answers)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = answered(engine, command)
        except NotImplementedError as why:
            answer = {"unavailable": str(why)}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
