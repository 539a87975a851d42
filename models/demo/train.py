"""Trains the demo model: corpus, tokenizer, weights, held-out text, cloze questions, curve and expected figures.

    python models/demo/train.py --out models/demo --steps 1845
"""

import ctypes
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads ruin each other on a shared machine
os.environ.setdefault("GOMP_SPINCOUNT", "0")
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(-4, 0)  # M_MMAP_MAX: keep large buffers on the heap between steps
    ctypes.CDLL(None).mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD

import argparse
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import check
import cloze
import corpus
import evaluate
from corpus import Document
from model import CONFIG, Llama

BOS, EOS = "<|bos|>", "<|eos|>"
SEED = 20240229
BATCH_TOKENS = 4096
SHORT, LONG = 256, 512  # sequence length before and after LONG_FROM of the run
LONG_FROM = 0.8
WARM_UP = 0.02
DECAY_FROM = 0.3  # constant rate until here, then linearly to zero
MUON_RATE, ADAM_RATE = 0.006, 0.004
CURVE_EVERY = 100
CURVE_TOKENS = 16_352


@dataclass
class Budget:
    """Progress from 0 to 1: by steps, or by time where that bound comes first."""

    steps: int
    seconds: float

    def progress(self, step: int, elapsed: float) -> float:
        return min(1.0, max(step / self.steps, elapsed / self.seconds))


def train_tokenizer(training: list[Document]) -> Tokenizer:
    """Byte-level BPE as in GPT-2; the template puts BOS before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((d.text for d in training), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, 0), (EOS, 1)]
    )
    return tokenizer


class Batches:
    """Packed sequences: BOS, then a slice of the token stream that begins at a line if one is near."""

    def __init__(self, training: list[Document], tokenizer: Tokenizer, rng: random.Random):
        self.rng, self.order = rng, []
        bos, eos = CONFIG["bos_token_id"], CONFIG["eos_token_id"]
        blank = tokenizer.encode("\n\n", add_special_tokens=False).ids
        encoded = tokenizer.encode_batch([d.text for d in training], add_special_tokens=False)
        stream: list[int] = []
        for document in encoded:
            stream += document.ids + (blank if rng.random() < 0.5 else [eos, bos])
        self.stream = torch.tensor(stream)
        newline = tokenizer.encode("\n", add_special_tokens=False).ids[0]
        self.lines = (self.stream == newline).nonzero()[:, 0] + 1

    def take(self, length: int) -> torch.Tensor:
        """`[BATCH_TOKENS / length, length + 1]`; a pass over the stream is a seeded permutation of its chunks."""
        rows = []
        for _ in range(BATCH_TOKENS // length):
            if not self.order:
                shift = self.rng.randrange(length)
                self.order = list(range(shift, len(self.stream) - 2 * length, length))
                self.rng.shuffle(self.order)
            rows.append(self.row(self.order.pop(), length))
        return torch.stack(rows)

    def row(self, start: int, length: int) -> torch.Tensor:
        before = int(torch.searchsorted(self.lines, start, right=True)) - 1
        if before >= 0 and start - int(self.lines[before]) < length // 2:
            start = int(self.lines[before])
        return torch.cat([torch.tensor([CONFIG["bos_token_id"]]), self.stream[start : start + length]])


def rate(progress: float) -> float:
    return min(1.0, progress / WARM_UP, (1.0 - progress) / (1.0 - DECAY_FROM))


def optimizers(model: Llama) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    embedding = [p for n, p in model.named_parameters() if "embed" in n]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": embedding, "weight_decay": 0.01}, {"params": norms, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=ADAM_RATE, betas=(0.9, 0.95), fused=True),
    ]


def step(model: Llama, batch: torch.Tensor, steppers: list[torch.optim.Optimizer], scale: float) -> float:
    """One update; returns the batch's mean loss in nats."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for stepper, peak in zip(steppers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in stepper.param_groups:
            group["lr"] = peak * scale
        stepper.step()
        stepper.zero_grad()
    return loss.item()


def train(model: Llama, batches: Batches, probe: list[int], budget: Budget, work: Path) -> list[str]:
    """Trains to the end of the budget; returns the rows of the curve. A checkpoint falls with every row."""
    steppers, curve, losses = optimizers(model), ["step,tokens,train_loss,held_out_loss,seconds"], []
    begun, done, tokens = time.monotonic(), 0, 0
    while True:
        seconds = time.monotonic() - begun
        progress = budget.progress(done, seconds)
        if done % CURVE_EVERY == 0 or progress >= 1.0:
            held_out = evaluate.held_out_loss(model, probe, CONFIG["bos_token_id"], SHORT)
            train_loss = f"{sum(losses) / len(losses):.4f}" if losses else ""
            curve.append(f"{done},{tokens},{train_loss},{held_out:.4f},{seconds:.0f}")
            print(curve[-1], f"({progress:.0%})", flush=True)
            torch.save(model.state_dict(), work / "checkpoint.pt")
            (work / "training-curve.csv").write_text("\n".join(curve) + "\n")
            losses.clear()
        if progress >= 1.0:
            return curve
        length = LONG if progress >= LONG_FROM else SHORT
        losses.append(step(model, batches.take(length), steppers, rate(progress + 1e-4)))
        done, tokens = done + 1, tokens + BATCH_TOKENS


def probe_tokens(tokens: list[int]) -> list[int]:
    """Evenly spread pieces of the held-out text, enough for a curve."""
    piece = SHORT - 1
    stride = max(1, len(tokens) // (CURVE_TOKENS // piece))
    return [t for start in range(0, len(tokens) - piece, stride) for t in tokens[start : start + piece]]


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(
        out / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "bos_token": BOS,
            "clean_up_tokenization_spaces": False,
            "eos_token": EOS,
            "model_max_length": CONFIG["max_position_embeddings"],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def write_model(model: Llama, out: Path) -> None:
    tensors = {f"model.{name}": p.detach().to(torch.bfloat16).contiguous() for name, p in model.named_parameters()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", CONFIG)
    ids = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id")}
    write_json(out / "generation_config.json", {"_from_model_config": True, "do_sample": False, **ids})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the model's files go")
    parser.add_argument("--work", type=Path, default=Path("target/train-demo"), help="packages and checkpoints")
    parser.add_argument("--steps", type=int, default=1845, help=f"updates of {BATCH_TOKENS} tokens")
    parser.add_argument("--minutes", type=float, default=math.inf, help="ends the schedule earlier if time runs out")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    for folder in (args.out, args.work):
        folder.mkdir(parents=True, exist_ok=True)

    training, held_out = corpus.load(args.work.resolve(), SEED)
    tokenizer = train_tokenizer(training)
    text = "\n\n".join(d.text for d in held_out) + "\n"
    write_tokenizer(tokenizer, args.out)
    (args.out / "held-out.txt").write_text(text)
    cloze.write(cloze.build(training, held_out, tokenizer, SEED), args.out / "cloze.jsonl")

    batches = Batches(training, tokenizer, random.Random(SEED))
    print(f"{len(batches.stream)} training tokens, overlap {corpus.overlap(training, held_out):.4%}", flush=True)
    probe = probe_tokens(tokenizer.encode(text, add_special_tokens=False).ids)
    model = Llama()
    curve = train(model, batches, probe, Budget(args.steps, args.minutes * 60), args.work)
    write_model(model, args.out)
    (args.out / "training-curve.csv").write_text("\n".join(curve) + "\n")
    write_json(args.out / "expected.json", check.report(args.out))


if __name__ == "__main__":
    main()
