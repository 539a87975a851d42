"""Requests of every kind, as a function of a seed."""

import random

import client

WORDS = (
    "the king of England spoke and all men heard him while rain fell on fields near a river where old ships came from "
    "far countries with salt wool iron letters news and many people who had not seen their homes for seven years or more"
).split()
CLASSES = ["good", "bad", "neither"]


def text(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def completion(rng):
    body = {"prompt": text(rng, rng.randint(3, 80)), "max_tokens": rng.randint(1, 48)}
    if rng.random() < 0.5:
        body |= {"temperature": 0.9, "top_p": 0.95, "seed": rng.randint(0, 999), "n": rng.randint(1, 3)}
    if rng.random() < 0.3:
        body["logprobs"] = 3
    return "/v1/completions", body


def stream(rng):
    path, body = completion(rng)
    return path, body | {"stream": True, "stream_options": {"include_usage": True}}


def chat(rng):
    messages = [{"role": "user", "content": text(rng, rng.randint(3, 60))}]
    return "/v1/chat/completions", {"messages": messages, "max_tokens": rng.randint(1, 32), "stream": rng.random() < 0.5}


def response(rng):
    return "/v1/responses", {"input": text(rng, rng.randint(3, 60)), "max_output_tokens": rng.randint(1, 24), "stream": rng.random() < 0.5}


def score(rng):
    items = [" " + text(rng, rng.randint(1, 12)) for _ in range(rng.randint(1, 12))]
    return "/v1/score", {"query": text(rng, rng.randint(1, 60)), "items": items, "labels": [" God", " the", " and"]}


def decisions(rng):
    return "/v1/decisions", {"input": text(rng, rng.randint(5, 60)), "questions": [question(rng) for _ in range(rng.randint(1, 8))]}


def rerank(rng):
    documents = [text(rng, rng.randint(2, 30)) for _ in range(rng.randint(1, 8))]
    return "/v1/rerank", {"query": text(rng, rng.randint(2, 8)), "documents": documents}


def classify(rng):
    return "/v1/classify", {"input": [text(rng, rng.randint(2, 30)) for _ in range(rng.randint(1, 8))], "classes": CLASSES}


KINDS = [completion, stream, chat, response, score, decisions, rerank, classify]


def question(rng):
    """A question of a random type."""
    words = text(rng, rng.randint(2, 5))
    kind = rng.choice(["predicate", "choice", "score"])
    if kind == "predicate":
        return {"type": kind, "instructions": words}
    options = [f"{word}{place}" for place, word in enumerate(rng.choices(WORDS, k=rng.randint(2, 4)))]
    if kind == "choice":
        return {"type": kind, "instructions": words, "choices": [{"value": option} for option in options]}
    return {"type": kind, "instructions": words, "levels": [{"label": option} for option in options]}


def mixed(count, seed):
    """So many requests, equally many of each kind, as bytes."""
    rng = random.Random(seed)
    return [client.encoded(*KINDS[place % len(KINDS)](rng)) for place in range(count)]


def long_generation(rng, stream=None):
    """A completion or chat of some hundred tokens, streamed or not."""
    streamed = rng.random() < 0.5 if stream is None else stream
    body = {"prompt": text(rng, 8), "max_tokens": rng.randint(100, 400), "ignore_eos": True, "stream": streamed}
    return client.encoded("/v1/completions", body)
