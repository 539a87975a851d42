"""Perplexity and cloze accuracy; `logits` maps tokens `[rows, length]` to logits `[rows, length, vocab]`."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

WINDOW = 512


@torch.no_grad()
def held_out_loss(logits: Callable[[Tensor], Tensor], tokens: list[int], bos: int, window: int = WINDOW) -> float:
    """Mean nats per token: consecutive chunks of `window - 1` tokens, a BOS before each, every token scored once."""
    total = 0.0
    for start in range(0, len(tokens), window - 1):
        chunk = torch.tensor([[bos, *tokens[start : start + window - 1]]])
        rows = logits(chunk)[0, :-1].float()
        total += F.cross_entropy(rows, chunk[0, 1:], reduction="sum").item()
    return total / len(tokens)


def perplexity(logits: Callable[[Tensor], Tensor], text: str, tokenizer: Tokenizer, bos: int) -> float:
    return math.exp(held_out_loss(logits, tokenizer.encode(text, add_special_tokens=False).ids, bos))


@torch.no_grad()
def cloze_accuracy(logits: Callable[[Tensor], Tensor], questions: list[dict], tokenizer: Tokenizer) -> float:
    right = 0
    for question in questions:
        row = logits(torch.tensor([tokenizer.encode(question["context"]).ids]))[0, -1]
        labels = [tokenizer.encode(choice, add_special_tokens=False).ids[0] for choice in question["choices"]]
        right += int(row[labels].argmax()) == question["answer"]
    return right / len(questions)


@torch.no_grad()
def greedy(logits: Callable[[Tensor], Tensor], prompt: list[int], count: int) -> tuple[list[int], float]:
    """The `count` likeliest next tokens, and the smallest lead of a winner over its runner-up in logits."""
    tokens, lead = list(prompt), math.inf
    for _ in range(count):
        best = logits(torch.tensor([tokens]))[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        lead = min(lead, float(best.values[0] - best.values[1]))
    return tokens[len(prompt) :], lead
