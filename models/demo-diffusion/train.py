"""Trains the demo diffusion model from the autoregressive demo's weights: all files of this folder but the card.

    python models/demo-diffusion/train.py --out models/demo-diffusion --steps 1906
"""

import ctypes
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as in ../demo/train.py
os.environ.setdefault("GOMP_SPINCOUNT", "0")
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(-4, 0)
    ctypes.CDLL(None).mallopt(-1, 2**31 - 1)

import argparse
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

import evaluate
from generate import generate, text
from model import AUTOREGRESSIVE, BOS, CONFIG, EOS, MASK, Dream, from_autoregressive, load, load_autoregressive, save

from demo import corpus  # model.py knows where
from demo.corpus import Document

SEED = evaluate.SEED  # the demo's: its split of the corpus
MASK_TOKEN = "<|mask|>"
BATCH_TOKENS = 4096
LENGTHS = {64: 0.2, 128: 0.5, 256: 0.3}  # length of a batch's sequences -> share of the batches
ENDINGS = 0.1  # sequences that are a document's end with EOS behind it
PREFIXES = 0.6  # sequences whose beginning is never masked, as a prompt is not
LONGEST_PREFIX = 0.75
LOOPS, LOOPS_FROM = 0.25, 0.35  # sequences in which a phrase is repeated, to be left behind; from this progress on
PHRASE, TIMES = (1, 12), (1, 6)  # its tokens, and how often it is said again
NEAR, FLOOR = 0.2, 0.15  # weight of a masked token by the visible ones near it, see `weights`
ECHO, REACH = 0.3, 12  # against repetition: its weight in the loss, and how far away a token is heard, see `echo`
OWN, OWN_FROM, OWN_EVERY = 2.0, 0.57, 3  # weight of `own_words`, from this progress on, in every third update
OWN_ROWS, OWN_PROMPT, OWN_NEW, OWN_STEPS, GRAM = 16, (8, 48), 48, 16, 4
WARM_UP = 0.03
DECAY_FROM = 0.3  # constant rate until here, then linearly to zero
MUON_RATE, ADAM_RATE = 0.004, 0.002
CURVE_EVERY = 150
COLUMNS = "step,tokens,train_loss,held_out_bound,text_perplexity,distinct_2,seconds"
PROBE_WINDOWS, PROBE_PROMPTS = 48, 8


def with_mask(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(MASK_TOKEN, special=True, normalized=False)])
    assert tokenizer.token_to_id(MASK_TOKEN) == MASK
    return tokenizer


class Batches:
    """Sequences `[BATCH_TOKENS / length, length]`, BOS first."""

    def __init__(self, training: list[Document], tokenizer: Tokenizer, dice: random.Random):
        self.dice = dice
        newline, blank = (tokenizer.encode(s, add_special_tokens=False).ids for s in ("\n", "\n\n"))
        encoded = tokenizer.encode_batch([d.text for d in training], add_special_tokens=False)
        self.documents = [torch.tensor(e.ids) for e in encoded]
        self.stream = torch.tensor([token for e in encoded for token in e.ids + blank])
        self.lines = (self.stream == newline[0]).nonzero()[:, 0] + 1

    def take(self, loops: float) -> tuple[Tensor, Tensor]:
        """Tokens `[rows, length]`, and how many of each row's first are a loop that stays visible, else 0 `[rows]`."""
        length = self.dice.choices(list(LENGTHS), weights=list(LENGTHS.values()))[0]
        rows, looped = zip(*(self.row(length, loops) for _ in range(BATCH_TOKENS // length)), strict=True)
        return F.pad(torch.stack(rows), (1, 0), value=BOS), torch.tensor(looped)

    def row(self, length: int, loops: float) -> tuple[Tensor, int]:
        kind = self.dice.random()
        if kind < loops:
            return self.loop(self.middle(length))
        return (self.ending(length) if kind < loops + ENDINGS else self.middle(length)), 0

    def middle(self, length: int) -> Tensor:
        """A piece of the text, from the beginning of a line if one is near."""
        start = self.dice.randrange(len(self.stream) - length)
        before = int(torch.searchsorted(self.lines, start, right=True)) - 1
        if before >= 0 and start - int(self.lines[before]) < length // 2:
            start = int(self.lines[before])
        return self.stream[start : start + length - 1]

    def ending(self, length: int) -> Tensor:
        """The last tokens of a document, any number of them, and EOS to the end."""
        tail = self.dice.choice(self.documents)[-self.dice.randint(8, length - 2) :]
        return F.pad(tail, (0, length - 1 - len(tail)), value=EOS)

    def loop(self, text: Tensor) -> tuple[Tensor, int]:
        """The text with one of its phrases said again and again; only what stands behind is to be learnt."""
        size = self.dice.randint(*PHRASE)
        said = size * self.dice.randint(*TIMES)
        said = min(said, size * ((len(text) - 8) // size - 1))
        end = self.dice.randint(size, len(text) - said - 8)
        looped = torch.cat([text[:end], text[end - size : end].repeat(said // size), text[end:]])
        return looped[: len(text)], 1 + end + said


def masks(looped: Tensor, length: int, dice: torch.Generator) -> Tensor:
    """Each token behind a row's prefix with a probability t, the t of a batch spread evenly over (0, 1); behind a loop
    over (1/2, 1)."""
    rows = len(looped)
    t = (torch.randperm(rows, generator=dice) + torch.rand(rows, generator=dice)) / rows
    t = torch.where(looped > 0, (1 + t) / 2, t)
    chosen, reach = torch.rand(2, rows, generator=dice)
    prefix = torch.where(chosen < PREFIXES, reach * LONGEST_PREFIX * length, 0.0).clamp(min=1)
    prefix = torch.where(looped > 0, looped, prefix)
    behind = torch.arange(length) >= prefix[:, None]
    return (torch.rand(rows, length, generator=dice) < t[:, None]) & behind


def weights(masked: Tensor) -> Tensor:
    """Dream's context-adaptive weights: a visible token at distance d counts NEAR (1 - NEAR)^(d - 1) / 2."""
    place = torch.arange(masked.shape[1])
    distance = (place[:, None] - place).abs()
    kernel = torch.where(distance > 0, 0.5 * NEAR * (1.0 - NEAR) ** (distance - 1.0), 0.0)
    return FLOOR + (~masked).float() @ kernel


def rate(progress: float) -> float:
    return min(1.0, progress / WARM_UP, (1.0 - progress) / (1.0 - DECAY_FROM))


def optimizers(model: Dream) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embedding, head, norms and biases."""
    named = list(model.named_parameters())
    tables = [p for n, p in named if n in ("model.embed_tokens.weight", "lm_head.weight")]
    matrices = [p for n, p in named if p.dim() == 2 and ".layers." in n]
    vectors = [p for _, p in named if p.dim() == 1]
    groups = [{"params": tables, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=ADAM_RATE, betas=(0.9, 0.95), fused=True),
    ]


def echo(log_odds: Tensor, clean: Tensor, masked: Tensor) -> Tensor:
    """Unlikelihood (Welleck et al. 2019) `[count]`: visible tokens within REACH should not be said again unless right."""
    row, place = masked.nonzero(as_tuple=True)
    seen = clean[row]
    distance = (torch.arange(clean.shape[1]) - place[:, None]).abs()
    wrong = ~masked[row] & (distance <= REACH) & (seen != clean[masked][:, None]) & (seen != BOS) & (seen != EOS)
    odds = log_odds.gather(1, seen).exp().clamp(max=0.999)
    return (-torch.log1p(-odds) * wrong).sum(dim=1)


def own_words(model: Dream, clean: Tensor, dice: torch.Generator) -> Tensor:
    """Unlikelihood of what the model itself, asked to go on with the text, says for the second time (ibid., section 4)."""
    begin = int(torch.randint(*OWN_PROMPT, (), generator=dice))
    canvas = generate(model, clean[:OWN_ROWS, :begin], OWN_NEW, OWN_STEPS, 0.0).ids
    grams = canvas.unfold(1, GRAM, 1)
    same = (grams[:, :, None] == grams[:, None]).all(dim=-1)
    again = F.pad(same.tril(-1).any(dim=-1), (GRAM - 1, 0)) & (canvas != EOS)

    cut, t = torch.rand(2, len(canvas), 1, generator=dice)
    behind = torch.arange(canvas.shape[1]) >= begin + cut * (OWN_NEW - 1)
    masked = behind & (torch.rand(canvas.shape, generator=dice) < (1 + t) / 2)
    logits = model.about(canvas.masked_fill(masked, MASK), masked)
    odds = logits.float().softmax(dim=-1).gather(1, canvas[masked][:, None])[:, 0].clamp(max=0.999)
    weight = weights(masked)[masked]
    return (-torch.log1p(-odds) * again[masked] * weight).sum() / weight.sum().clamp(min=FLOOR)


def step(model: Dream, batch: tuple[Tensor, Tensor], steppers: list, scale: float, own: bool, dice) -> float:
    """One update; returns the batch's weighted mean loss in nats per masked token, without what is unlikely."""
    clean, looped = batch
    masked = masks(looped, clean.shape[1], dice)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.about(clean.masked_fill(masked, MASK), masked)
    log_odds, weight = logits.float().log_softmax(dim=-1), weights(masked)[masked]
    weight = weight / weight.sum()
    loss = F.nll_loss(log_odds, clean[masked], reduction="none") @ weight
    (loss + ECHO * echo(log_odds, clean, masked) @ weight).backward()
    if own:
        with torch.autocast("cpu", torch.bfloat16):
            (OWN * own_words(model, clean, dice)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for stepper, peak in zip(steppers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in stepper.param_groups:
            group["lr"] = peak * scale
        stepper.step()
        stepper.zero_grad()
    return loss.item()


@dataclass
class Probe:
    """A piece of the held-out text for the curve, and beginnings to be continued at temperature 0."""

    clean: Tensor
    prompts: Tensor
    tokenizer: Tokenizer

    def look(self, model: Dream) -> str:
        judge, new = load_autoregressive(), evaluate.CONTINUE
        canvas = generate(model, self.prompts, new, new, 0.0)
        written = canvas.ids[:, self.prompts.shape[1] :]
        for ids in written[:4].tolist():
            print(f"    {text(ids, self.tokenizer)!r}")
        figures = evaluate.judged(judge, self.prompts, written)
        nats = evaluate.bound(model, self.clean, draws=2)
        return f"{nats:.4f},{figures['perplexity']:.1f},{figures['distinct_2']:.3f}"


def train(model: Dream, batches: Batches, probe: Probe, curve: list[str], args: argparse.Namespace) -> None:
    """Trains to the end of the budget. With every row of the curve, which goes on from its last, weights go to `--out`."""
    done, before = (int(curve[-1].split(",")[i]) for i in (0, -1)) if len(curve) > 1 else (0, 0)
    steppers, dice, losses = optimizers(model), torch.Generator().manual_seed(SEED + done), []
    begun, written = time.monotonic(), len(curve) > 1
    while True:
        seconds = before + time.monotonic() - begun
        progress = min(1.0, max(done / args.steps, seconds / (args.minutes * 60)))
        if (done % CURVE_EVERY == 0 and not written) or progress >= 1.0:
            train_loss = f"{sum(losses) / len(losses):.4f}" if losses else ""
            curve.append(f"{done},{done * BATCH_TOKENS},{train_loss},{probe.look(model)},{seconds:.0f}")
            print(curve[-1], f"({progress:.0%})", flush=True)
            save(model, args.out)
            (args.out / "training-curve.csv").write_text("\n".join(curve) + "\n")
            losses.clear()
        if progress >= 1.0:
            return
        loops = LOOPS if progress >= LOOPS_FROM else 0.0
        own = progress >= OWN_FROM and done % OWN_EVERY == 0
        losses.append(step(model, batches.take(loops), steppers, rate(progress + 1e-4), own, dice))
        done, written = done + 1, False


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_settings(tokenizer: Tokenizer, out: Path) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    named = json.loads((AUTOREGRESSIVE / "tokenizer_config.json").read_text())
    write_json(out / "tokenizer_config.json", named | {"mask_token": MASK_TOKEN, "pad_token": named["eos_token"]})
    write_json(out / "config.json", CONFIG)
    ids = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")}
    write_json(out / "generation_config.json", {"_from_model_config": True, **ids})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the model's files go")
    parser.add_argument("--work", type=Path, default=Path("target/train-demo"), help="the corpus's packages")
    parser.add_argument("--steps", type=int, default=1906, help=f"updates of {BATCH_TOKENS} tokens")
    parser.add_argument("--minutes", type=float, default=math.inf, help="ends the schedule earlier if time runs out")
    parser.add_argument("--resume", action="store_true", help="from the weights and the curve in --out")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    for folder in (args.out, args.work):
        folder.mkdir(parents=True, exist_ok=True)

    tokenizer = with_mask(Tokenizer.from_file(str(AUTOREGRESSIVE / "tokenizer.json")))
    write_settings(tokenizer, args.out)
    training, held_out = corpus.load(args.work.resolve(), SEED)
    unseen = (AUTOREGRESSIVE / "held-out.txt").read_text()
    assert unseen == "\n\n".join(d.text for d in held_out) + "\n", "the split is not the demo's"

    tokens = tokenizer.encode(unseen, add_special_tokens=False).ids
    clean, newline = evaluate.windows(tokens), tokenizer.encode("\n", add_special_tokens=False).ids[0]
    prompts, _ = evaluate.beginnings(tokens, newline, PROBE_PROMPTS)
    probe = Probe(clean[:: len(clean) // PROBE_WINDOWS], prompts, tokenizer)
    curve = [COLUMNS]
    if args.resume:
        curve = (args.out / "training-curve.csv").read_text().splitlines()
    model = load(args.out).train() if args.resume else from_autoregressive()
    batches = Batches(training, tokenizer, random.Random(SEED + len(curve)))
    print(f"{len(batches.stream)} training tokens in {len(batches.documents)} documents", flush=True)

    train(model, batches, probe, curve, args)
    write_json(args.out / "expected.json", evaluate.report(args.out))


if __name__ == "__main__":
    main()
