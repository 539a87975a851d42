"""Greedy generation for engines that are driven token by token."""

import time

import numpy


class Stepper:
    """Needs `prefill(prompts)`, which forgets what was before, and `step(ids)`; both return logits [batch, vocab].
    `capacity` tokens is how long each sequence can become."""

    compile_s, capacity = 0.0, 0

    def generate(self, prompts, new, top):
        self.capacity, compiled = len(prompts[0]) + new, self.compile_s
        start = time.perf_counter()
        logits = self.prefill(prompts)
        chosen = [logits.argmax(axis=1).tolist()]
        prefilled = time.perf_counter()
        answer = {}
        if top:
            answer = {"top": best(logits[0], top), "margins": [margin(logits[0])]}
        began = time.perf_counter()
        for _ in range(new - 1):
            logits = self.step(chosen[-1])
            chosen.append(logits.argmax(axis=1).tolist())
            if top:
                answer["margins"].append(margin(logits[0]))
        ended = time.perf_counter()
        times = {"prefill_s": prefilled - start, "decode_s": ended - began}
        ids = [list(row) for row in zip(*chosen, strict=True)]
        return {"ids": ids, "compile_s": self.compile_s - compiled, **times, **answer}


def best(logits, count):
    """The ids of the largest logits, the best first."""
    count = min(count, len(logits))
    order = numpy.argpartition(-logits, count - 1)[:count]
    return order[numpy.argsort(-logits[order], kind="stable")].tolist()


def margin(logits):
    """How far the largest logit is above the next."""
    second, first = numpy.partition(logits, -2)[-2:]
    return float(first - second)
