"""Held-out cloze questions: which of four words comes next? Built by rule, without a look at any model."""

import json
import random
import re
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer

from corpus import Document

QUESTIONS = 200
CONTEXT_WORDS = (60, 110)
SHORTEST_TARGET = 4
ENDINGS = ("ing", "eth", "est", "ed", "ly", "ness", "tion", "s")
FUNCTION_WORDS = frozenset(
    """about above after again against also although among another anything because been before behind being below
    between beyond both came come could does doing done down during each either else ever every from gave give given
    goes gone hath have having hast hence here hers herself himself hither into itself just know like made make many
    mine more most much must myself neither never nevertheless none nothing once only other others ought ours over
    perhaps quite rather said same saying says shall shalt should since some something soon such than that thee their
    them themselves then thence there therefore these they thine this those thou though through thus thyself till
    toward towards under unto until upon very want went were what whatever when whence where wherefore whether which
    while whither whoever whom whose will with within without would your yours yourself already always almost""".split()
)


def ending(word: str) -> str:
    return next((e for e in ENDINGS if word.endswith(e)), "")


def vocabulary(training: list[Document], tokenizer: Tokenizer) -> dict[str, int]:
    """Content words that are one token with their leading space, with their frequency in the training text."""
    counts = Counter(w for d in training for w in re.findall(r"(?<= )[a-z]+(?![\w'-])", d.text))
    words = (w for w in sorted(counts) if len(w) >= SHORTEST_TARGET and w not in FUNCTION_WORDS and counts[w] >= 20)
    return {w: counts[w] for w in words if len(tokenizer.encode(f" {w}", add_special_tokens=False).ids) == 1}


def distractors(word: str, counts: dict[str, int], context: str, rng: random.Random) -> list[str] | None:
    """Three words with the same ending and at most twice or half the frequency, absent from the context."""
    used = set(re.findall(r"[a-z]+", context.lower()))
    pool = [
        w
        for w, n in counts.items()
        if w != word and w not in used and ending(w) == ending(word) and 0.5 <= n / counts[word] <= 2.0
    ]
    return rng.sample(pool, 3) if len(pool) >= 12 else None


def question(document: Document, counts: dict[str, int], tokenizer: Tokenizer, rng: random.Random) -> dict | None:
    words = [m for m in re.finditer(r"(?<= )[a-z]+(?![\w'-])", document.text) if m.group() in counts]
    if not words:
        return None
    target = rng.choice(words)
    starts = [m.start() for m in re.finditer(r"\S+", document.text[: target.start()])]
    length = rng.randint(*CONTEXT_WORDS)
    if len(starts) < CONTEXT_WORDS[0]:
        return None
    context = document.text[starts[-min(length, len(starts))] : target.start() - 1]
    wrong = distractors(target.group(), counts, context, rng)
    if wrong is None:
        return None
    choices = [f" {w}" for w in [target.group(), *wrong]]
    if not all(one_token(context, choice, tokenizer) for choice in choices):
        return None
    rng.shuffle(choices)
    source = f"{document.source}: {document.name}"
    return {"context": context, "choices": choices, "answer": choices.index(f" {target.group()}"), "source": source}


def one_token(context: str, choice: str, tokenizer: Tokenizer) -> bool:
    alone = tokenizer.encode(choice, add_special_tokens=False).ids
    return len(alone) == 1 and tokenizer.encode(context).ids + alone == tokenizer.encode(context + choice).ids


def build(training: list[Document], held_out: list[Document], tokenizer: Tokenizer, seed: int) -> list[dict]:
    """Documents drawn in proportion to their length, at most one question per target word."""
    rng = random.Random(f"{seed} cloze")
    counts = vocabulary(training, tokenizer)
    questions: dict[str, dict] = {}
    while len(questions) < QUESTIONS:
        document = rng.choices(held_out, weights=[len(d.text) for d in held_out])[0]
        asked = question(document, counts, tokenizer, rng)
        if asked:
            questions.setdefault(asked["choices"][asked["answer"]], asked)
    return list(questions.values())


def write(questions: list[dict], path: Path) -> None:
    path.write_text("".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions))
