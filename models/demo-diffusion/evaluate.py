"""What the demo diffusion model is worth on held-out text: likelihood bound, masked tokens, and the text it writes.

    python models/demo-diffusion/evaluate.py [DIR]

Prints the figures of `expected.json`; exits 1 where they differ from it.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from generate import generate, text
from model import AUTOREGRESSIVE, BOS, EOS, MASK, Dream, load, load_autoregressive

SEED = 20240229
WINDOW = 256
ROWS = 8  # windows per pass
DRAWS = 8  # per window, for the bound
RATIOS = (0.15, 0.5, 0.85)
BEGINNINGS, BEGIN, CONTINUE = 40, 32, 64
TEMPERATURES = (0.0, 0.5)
NEW_TOKENS = 32  # for the prompts with their canvases


def windows(tokens: list[int]) -> Tensor:
    """`[count, WINDOW]`: consecutive chunks with a BOS before each; what does not fill the last one is left out."""
    piece = WINDOW - 1
    rows = [[BOS, *tokens[at : at + piece]] for at in range(0, len(tokens) - piece + 1, piece)]
    return torch.tensor(rows)


@torch.no_grad()
def bound(model: Dream, clean: Tensor, draws: int = DRAWS) -> float:
    """Upper bound on nats per token (Monte Carlo): of n tokens m are masked, m evenly from 1 to n; n/m times their loss."""
    dice, total = torch.Generator().manual_seed(SEED), 0.0
    n = clean.shape[1] - 1
    offset = torch.rand(len(clean), 1, generator=dice)
    for draw in range(draws):
        count = 1 + (n * (draw + offset) / draws).long().clamp(max=n - 1)
        for rows, size in zip(clean.split(ROWS), count.split(ROWS), strict=True):
            rank = torch.rand(len(rows), n, generator=dice).argsort(dim=1).argsort(dim=1)
            masked = F.pad(rank < size, (1, 0))
            loss = F.cross_entropy(about(model, rows, masked), rows[masked], reduction="none")
            total += float((loss / size.expand(-1, n + 1)[masked]).sum())
    return total / (draws * len(clean))


@torch.no_grad()
def accuracy(model: Dream, clean: Tensor, ratio: float) -> float:
    """Share of masked tokens whose likeliest filling is right, each masked with probability `ratio`."""
    dice, right, asked = torch.Generator().manual_seed(SEED), 0, 0
    for rows in clean.split(ROWS):
        masked = torch.rand(rows.shape, generator=dice) < ratio
        masked[:, 0] = False
        right += int((about(model, rows, masked).argmax(dim=-1) == rows[masked]).sum())
        asked += int(masked.sum())
    return right / asked


def about(model: Dream, clean: Tensor, masked: Tensor) -> Tensor:
    return model.about(clean.masked_fill(masked, MASK), masked).float()


def beginnings(tokens: list[int], newline: int, count: int = BEGINNINGS) -> tuple[Tensor, Tensor]:
    """Evenly spread pieces that begin with a line: (`[count, 1 + BEGIN]` with BOS, the `[count, CONTINUE]` behind them)."""
    pairs = enumerate(zip(tokens, tokens[1:]), start=1)
    lines = [0] + [at for at, (before, first) in pairs if before == newline != first]
    lines = [at for at in lines if at + BEGIN + CONTINUE <= len(tokens)]
    stride = lines[-1] / count
    starts = [next(at for at in lines if at >= i * stride) for i in range(count)]
    prompts = [[BOS, *tokens[at : at + BEGIN]] for at in starts]
    return torch.tensor(prompts), torch.tensor([tokens[at + BEGIN : at + BEGIN + CONTINUE] for at in starts])


@torch.no_grad()
def judged(judge: Callable[[Tensor], Tensor], prompts: Tensor, written: Tensor) -> dict:
    """Perplexity of the written text under the autoregressive demo up to and with its EOS, and its distinct n-grams."""
    logits = judge(torch.cat([prompts, written], dim=1))[:, prompts.shape[1] - 1 : -1]
    loss = F.cross_entropy(logits.flatten(0, 1), written.flatten(), reduction="none").view(written.shape)
    ends = (written == EOS).long()
    live = ends.cumsum(dim=1) - ends == 0
    texts = [row[alive].tolist() for row, alive in zip(written, live, strict=True)]
    return {
        "perplexity": math.exp(float(loss[live].mean())),
        **{f"distinct_{n}": distinct(texts, n) for n in (1, 2, 3)},
        "ended": float(ends.any(dim=1).float().mean()),
        "tokens": float(live.float().sum(dim=1).mean()),
    }


def distinct(texts: list[list[int]], n: int) -> float:
    """Distinct n-grams per n-gram within a text, mean over the texts that have any."""
    grams = [[tuple(t[i : i + n]) for i in range(len(t) - n + 1)] for t in texts]
    return sum(len(set(g)) / len(g) for g in grams if g) / sum(1 for g in grams if g)


@torch.no_grad()
def left_to_right(judge: Callable[[Tensor], Tensor], prompts: Tensor, new: int, temperature: float) -> Tensor:
    """What the autoregressive demo itself writes, for comparison."""
    dice, tokens = torch.Generator().manual_seed(SEED), prompts
    for _ in range(new):
        row = judge(tokens)[:, -1]
        best = row.argmax(dim=-1, keepdim=True)
        if temperature > 0:
            best = torch.multinomial((row / temperature).softmax(dim=-1), 1, generator=dice)
        tokens = torch.cat([tokens, best], dim=1)
    return tokens[:, prompts.shape[1] :]


def quality(model: Dream, prompts: Tensor, held_out: Tensor) -> dict:
    """The text of 40 continuations per temperature, beside the autoregressive demo's and the true one."""
    judge, figures = load_autoregressive(), {}
    for temperature in TEMPERATURES:
        canvas = generate(model, prompts, CONTINUE, CONTINUE, temperature, SEED)
        figures[f"temperature_{temperature}"] = judged(judge, prompts, canvas.ids[:, prompts.shape[1] :])
        written = left_to_right(judge, prompts, CONTINUE, temperature)
        figures[f"autoregressive_{temperature}"] = judged(judge, prompts, written)
    figures["held_out"] = judged(judge, prompts, held_out)
    return {name: {key: round(value, 4) for key, value in row.items()} for name, row in figures.items()}


def canvases(model: Dream, tokenizer: Tokenizer) -> list[dict]:
    """The demo's three prompts with `NEW_TOKENS` masks behind them, filled in as many steps at temperature 0."""
    out = []
    for prompt in (p["prompt"] for p in json.loads((AUTOREGRESSIVE / "expected.json").read_text())["prompts"]):
        ids = tokenizer.encode(prompt).ids
        canvas = generate(model, torch.tensor([ids]), NEW_TOKENS, NEW_TOKENS, 0.0)
        filled = canvas.ids[0].tolist()
        out.append(
            {
                "prompt": prompt,
                "prompt_ids": ids,
                "canvas_ids": filled,
                "smallest_token_lead": round(canvas.token_lead, 5),
                "smallest_order_lead": round(canvas.order_lead, 5),
                "text": text(filled[len(ids) :], tokenizer),
            }
        )
    return out


def report(folder: Path) -> dict:
    """The figures of `expected.json`, in f32 arithmetic on the stored weights."""
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = tokenizer.encode((AUTOREGRESSIVE / "held-out.txt").read_text(), add_special_tokens=False).ids
    newline = tokenizer.encode("\n", add_special_tokens=False).ids[0]
    clean = windows(tokens)
    return {
        "perplexity_bound": math.exp(bound(model, clean)),
        "perplexity_window": WINDOW,
        "perplexity_draws": DRAWS,
        "held_out_tokens": clean[:, 1:].numel(),
        "masked_accuracy": {str(ratio): accuracy(model, clean, ratio) for ratio in RATIOS},
        "continuations": quality(model, *beginnings(tokens, newline)),
        "steps": NEW_TOKENS,
        "algorithm": "entropy",
        "temperature": 0.0,
        "prompts": canvases(model, tokenizer),
    }


def differences(found: dict, expected: dict) -> list[str]:
    """Figures that moved by more than rounding, and canvases that differ."""
    pairs = {"perplexity_bound": (found["perplexity_bound"], expected["perplexity_bound"], 1e-3)}
    for ratio, share in expected["masked_accuracy"].items():
        pairs[f"masked_accuracy {ratio}"] = (found["masked_accuracy"][ratio], share, 1e-2)
    for name, row in expected["continuations"].items():
        pairs[f"perplexity of {name}"] = (found["continuations"][name]["perplexity"], row["perplexity"], 5e-2)
    moved = [f"{name}: {a} for {b}" for name, (a, b, tolerance) in pairs.items() if abs(a - b) > tolerance * b]
    for a, b in zip(found["prompts"], expected["prompts"], strict=True):
        if a["canvas_ids"] != b["canvas_ids"]:
            moved.append(f"canvas of {b['prompt']!r}: {a['text']!r} for {b['text']!r}")
    return moved


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    found = report(folder)
    print(json.dumps(found, indent=2))
    moved = differences(found, json.loads((folder / "expected.json").read_text()))
    print("\n".join(moved) or "same as expected.json", file=sys.stderr)
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
