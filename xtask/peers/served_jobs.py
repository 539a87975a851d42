"""What servers are asked: the same texts for all, in the form in which each answers them fastest.

- Redline: one request with all items, questions or documents.
- llama.cpp, `/v1/systemone`: one request with a question per item, whose common beginning llama.cpp computes once and whose ends run in one
  batch. It needs a model that is marked as one for decisions (`gguf_served.py`).
- llama.cpp, `/completion`: what works with every model: one request with a prompt per item, one new token each and the probabilities of
  the labels, all in one slot, so that each prompt takes its beginning from the one before. Without the slot they would run side by side,
  and each would compute the beginning again.
"""

import json
import random
from dataclasses import dataclass

WORDS = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not "
    "what all were we when your can said there use an each which she do how their if will up other about out many then"
).split()
SYSTEMONE, COMPLETION = "systemone", "completion"
OPTIONS = ["yes", "no"]
RERANK = "Does the document answer the query? Reply with yes or no.\n\nQuery: {}\n\nDocument: "
# Large enough to put the labels before all other tokens, and small enough to keep their distance in f32.
BIAS = 100
QUESTION_WORDS = 8


@dataclass(frozen=True)
class Job:
    """`shared` words are the same for `parts` parts of `own` words."""

    name: str
    kind: str
    shared: int
    parts: int
    own: int


JOBS = [
    Job("decisions-1", "decisions", 1000, 1, QUESTION_WORDS),
    Job("decisions-8", "decisions", 1000, 8, QUESTION_WORDS),
    Job("score-16", "score", 128, 16, 8),
    Job("rerank-16", "rerank", 8, 16, 64),
]


@dataclass(frozen=True)
class Texts:
    """The shared text, and those of the parts."""

    shared: str
    parts: list


def words(count, seed):
    """Other words for every seed, so that no text is in a prefix cache."""
    chooser = random.Random(seed)
    return " ".join(chooser.choice(WORDS) for _ in range(count))


def texts(job, seed, tokens_per_word=1.0):
    """Sizes are in tokens, about."""

    def some(count, part):
        return words(max(round(count / tokens_per_word), 1), f"{seed}/{job.name}/{part}")

    own = [some(job.own, index) for index in range(job.parts)]
    # An item continues its query, so its first word has a space before it.
    return Texts(some(job.shared, "shared"), [f" {text}" for text in own] if job.kind == "score" else own)


def redline(job, asked, labels):
    """Route and body."""
    if job.kind == "decisions":
        choices = [{"value": name} for name in OPTIONS]
        questions = [{"type": "choice", "instructions": text, "choices": choices} for text in asked.parts]
        return "/v1/decisions", {"input": asked.shared, "questions": questions}
    if job.kind == "score":
        body = {"query": asked.shared, "items": asked.parts, "label_token_ids": labels, "apply_softmax": True}
        return "/v1/score", body
    return "/v1/rerank", {"query": asked.shared, "documents": asked.parts}


def systemone(job, asked):
    """Route and body for llama.cpp's decision models. What is no choice is the bare text of state and instructions."""
    choice = {"type": "choice", "criteria": dict.fromkeys(OPTIONS)}
    kind = choice if job.kind == "decisions" else {"type": "noul"}
    head, tail = _frame(job, asked.shared)
    questions = {f"q{index}": kind | {"instructions": text + tail} for index, text in enumerate(asked.parts)}
    return "/v1/systemone", {"state": head, "questions": questions}


def completion(job, asked, labels):
    """Route and body for llama.cpp with any model."""
    head, tail = _frame(job, asked.shared)
    if job.kind == "decisions":
        options = "".join(f"{label}. {name}\n" for label, name in zip("AB", OPTIONS))
        tail = f"\n{options}Reply with one letter.\n\nAnswer:"
        head = f"State:\n{head}\n\nQuestion: "
    sampling = {"n_probs": len(labels), "post_sampling_probs": True, "samplers": ["top_k"], "top_k": len(labels)}
    bias = {"logit_bias": [[label, BIAS] for label in labels]}
    prompts = [head + text + tail for text in asked.parts]
    return "/completion", {"prompt": prompts, "n_predict": 1, "cache_prompt": True, "id_slot": 0} | sampling | bias


def _frame(job, shared):
    """The text before a part and the one behind it."""
    return (RERANK.format(shared), "\n\nAnswer:") if job.kind == "rerank" else (shared, "")


def probabilities(answer, labels):
    """Of the first label, by part, in an answer about scores."""
    if isinstance(answer, dict) and "scores" in answer:
        return [row[0] for row in answer["scores"]]
    if isinstance(answer, dict) and "answers" in answer:
        return [answer["answers"][f"q{index}"]["noul"] for index in range(len(answer["answers"]))]
    rows = answer if isinstance(answer, list) else [answer]
    found = [row["completion_probabilities"][0]["top_probs"] for row in sorted(rows, key=lambda row: row["index"])]
    return [next((top["prob"] for top in tops if top["id"] == labels[0]), 0.0) for tops in found]


def label_ids(tokenizer):
    """The ids of the letters A and B, with which llama.cpp labels the first two options."""
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    return [vocabulary["A"], vocabulary["B"]]
