"""Whether an arm computes the model, before anything is timed.

The reference is PyTorch through transformers in f32. Arms with 32 bits must choose its ids, token for token, up to the
first close call. Formats with fewer bits may choose differently; the first id after each prompt must be among the
reference's best, of which there are so few that a broken arm would hit them once in 500 prompts. Four bits move the flat
logits of random weights so far that one prompt in four may miss: a broken arm would pass once in 10^14 runs.
"""

from dataclasses import dataclass

import jobs

PROMPTS, PROMPT, NEW = 8, 16, 8
# Below this distance between the two largest logits, engines may choose differently.
MARGIN = 1e-3


def prompts(vocab):
    return [jobs.prompt_ids(PROMPT, vocab, row) for row in range(PROMPTS)]


def few(vocab):
    """How many of the reference's best ids are good enough."""
    return max(8, vocab // 500)


@dataclass(frozen=True)
class Verdict:
    agrees: bool
    fact: str


def judge(arm, answers, reference):
    """`reference` holds a worker's answer per prompt, `answers` the ids of the arm."""
    pairs = list(zip(answers, reference, strict=True))
    equal = sum(ids == answer["ids"][0] for ids, answer in pairs)
    fact = f"{equal} of {len(pairs)} continuations equal the f32 reference"
    if arm.bits < 32:
        wrong = sum(ids[0] not in answer["top"] for ids, answer in pairs)
    else:
        wrong = sum(_differs(ids, answer) for ids, answer in pairs)
    allowed = len(pairs) // 4 if arm.bits < 8 else 0
    complete = all(len(ids) == len(answer["ids"][0]) for ids, answer in pairs)
    return Verdict(complete and wrong <= allowed, fact + (f", {wrong} are wrong" if wrong else ""))


def _differs(ids, answer):
    close = (place for place, margin in enumerate(answer["margins"]) if margin < MARGIN)
    sure = next(close, len(answer["margins"]))
    return ids[:sure] != answer["ids"][0][:sure]
