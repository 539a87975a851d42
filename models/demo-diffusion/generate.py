"""Dream's sampler: a canvas of masks behind a prompt, filled surest position first (lowest entropy).

    python models/demo-diffusion/generate.py "And the king said unto" --new 64 --steps 64 --temperature 0
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from model import EOS, MASK, Dream, load

END_OF_TIME = 1e-3  # the reference's `eps`


@dataclass
class Canvas:
    """Token ids `[rows, length]`, and how close the closest decisions were."""

    ids: Tensor
    token_lead: float  # in logits: the token written over its runner-up
    order_lead: float  # in nats: the last position written over the first left masked


def quotas(steps: int, masks: int) -> list[int]:
    """Tokens written per step, in f32 as the reference counts them: the first step may write none, the last the rest."""
    times, left, out = torch.linspace(1, END_OF_TIME, steps + 1), torch.tensor(float(masks)), []
    for step in range(steps):
        last = step == steps - 1
        out.append(int(left) if last else int(left * (1 - times[step + 1] / times[step])))
        left = left - out[-1]
    return out


@torch.no_grad()
def generate(
    model: Dream, prompts: Tensor, new: int, steps: int, temperature: float, seed: int = 0, show=None
) -> Canvas:
    """Continues prompts `[rows, length]` by `new` tokens; `show(step, ids)` sees every state of the canvas."""
    dice = torch.Generator().manual_seed(seed)
    rows = prompts.shape[0]
    canvas = Canvas(torch.cat([prompts, torch.full((rows, new), MASK)], dim=1), math.inf, math.inf)
    for step, quota in enumerate(quotas(steps, new)):
        if quota > 0:
            write(model, canvas, quota, temperature, dice)
        if show:
            show(step, canvas.ids)
    return canvas


def write(model: Dream, canvas: Canvas, quota: int, temperature: float, dice: torch.Generator) -> None:
    """One pass: the `quota` surest masked positions of every row get their tokens; of equals the first goes first."""
    masked = canvas.ids == MASK
    logits = model.about(canvas.ids, masked).float()
    odds = (logits / temperature if temperature > 0 else logits).softmax(dim=-1)
    tokens = torch.multinomial(odds, 1, generator=dice)[:, 0] if temperature > 0 else odds.argmax(dim=-1)

    surety = torch.full(masked.shape, -math.inf)
    surety[masked] = (odds * (odds + 1e-10).log()).sum(dim=-1)
    ranked = surety.sort(dim=1, descending=True, stable=True)
    chosen = torch.zeros_like(masked).scatter(1, ranked.indices[:, :quota], True) & masked

    if quota < masked.shape[1]:
        canvas.order_lead = min(canvas.order_lead, float((ranked.values[:, quota - 1] - ranked.values[:, quota]).min()))
    best = logits[chosen[masked]].topk(2).values
    canvas.token_lead = min(canvas.token_lead, float((best[:, 0] - best[:, 1]).min()))
    canvas.ids[chosen] = tokens[chosen[masked]]


def text(ids: list[int], tokenizer: Tokenizer) -> str:
    """Up to the first EOS, which is shown."""
    end = ids.index(EOS) if EOS in ids else len(ids)
    return tokenizer.decode(ids[:end]) + ("<|eos|>" if end < len(ids) else "")


def sketch(ids: list[int], tokenizer: Tokenizer) -> str:
    """The whole canvas, a dot for every mask."""
    return "".join("." if i == MASK else tokenizer.decode([i], skip_special_tokens=False) for i in ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--model", type=Path, default=Path(__file__).parent)
    parser.add_argument("--new", type=int, default=64, help="masks behind the prompt")
    parser.add_argument("--steps", type=int, help="passes; as many as masks unless given")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--watch", action="store_true", help="prints the canvas after every pass")
    args = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    prompt = torch.tensor([tokenizer.encode(args.prompt).ids])

    def show(step: int, ids: Tensor) -> None:
        print(f"{step + 1:4} {sketch(ids[0, prompt.shape[1] :].tolist(), tokenizer)!r}")

    steps = args.steps or args.new
    canvas = generate(
        load(args.model), prompt, args.new, steps, args.temperature, args.seed, show if args.watch else None
    )
    print(args.prompt + text(canvas.ids[0, prompt.shape[1] :].tolist(), tokenizer))


if __name__ == "__main__":
    main()
