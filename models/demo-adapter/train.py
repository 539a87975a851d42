"""Trains LoRA adapters of the demo model with PEFT.

    python models/demo-adapter/train.py books     into models/demo-adapter: which kind of book a sentence is from
    python models/demo-adapter/train.py jargon    into models/demo-adapter/jargon: text in the style of the Jargon File

Needs Debian 12, like models/demo/train.py, and the packages of tests/golden/requirements.txt. Ends after --steps, or earlier after --minutes.
With --evaluate it only writes the figures of the adapter that is there.
"""

import argparse
import json
import random
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BASE = HERE.parent / "demo"
sys.path.insert(0, str(BASE))

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import corpus
import evaluate
from corpus import Document

SEED = 20240301
CORPUS_SEED = 20240229  # that of the demo model: what it never saw is held out here, too
CLASSES = {"kjv": "scripture", "austen": "novel", "jargon": "computing", "devil": "satire"}
# The default template of `redline classify`.
TEMPLATE = "Classify the text as one of: {classes}\n\nText: {text}\n\nClass:"
WORDS = range(8, 31)  # length of a sentence
PER_CLASS = 20  # held-out sentences of each class that are committed
EVALUATED = 100  # held-out sentences of each class that the figures count
RATE, WARM_UP = 3e-3, 0.05
BATCH = {"books": 16, "jargon": 8}
WINDOW = 128  # tokens of a training text of `jargon`
HELD_OUT = 8_000  # characters of held-out text of `jargon` that are committed
CONFIG = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


def sentences(documents: list[Document], source: str) -> list[str]:
    """The different sentences of a source, in a seeded order."""
    found: dict[str, None] = {}
    for line in (line for d in documents if d.source == source for line in d.text.splitlines()):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[\"A-Z])", line):
            if len(sentence.split()) in WORDS and sentence[-1] in ".!?\"":
                found.setdefault(sentence)
    chosen = list(found)
    random.Random(f"{SEED} {source}").shuffle(chosen)
    return chosen


class Books:
    """Sentences, and the kind of book that each is from."""

    def __init__(self, training: list[Document], held_out: list[Document], tokenizer: Tokenizer):
        self.tokenizer, self.rng = tokenizer, random.Random(SEED)
        self.training = {CLASSES[source]: sentences(training, source) for source in CLASSES}
        self.held_out = {CLASSES[source]: sentences(held_out, source)[:EVALUATED] for source in CLASSES}
        self.labels = {name: tokenizer.encode(f" {name}", add_special_tokens=False).ids for name in CLASSES.values()}

    def prompt(self, text: str) -> list[int]:
        return self.tokenizer.encode(TEMPLATE.format(classes=", ".join(CLASSES.values()), text=text)).ids

    def loss(self, model: PeftModel) -> torch.Tensor:
        """Of the tokens of the class."""
        names = list(self.training) * (BATCH["books"] // len(self.training))
        return score(model, [(self.prompt(self.rng.choice(self.training[n])), self.labels[n]) for n in names]).mean().neg()

    def write(self, out: Path) -> None:
        chosen = [(name, text) for name, texts in self.held_out.items() for text in texts[:PER_CLASS]]
        random.Random(SEED).shuffle(chosen)
        lines = (json.dumps({"id": name, "text": text}) for name, text in chosen)
        (out / "held-out.jsonl").write_text("\n".join(lines) + "\n")

    @torch.no_grad()
    def evaluate(self, model) -> dict:
        """By class: right answers of the committed sentences, and of all that are evaluated."""
        found = {}
        for name, texts in self.held_out.items():
            right = []
            for text in texts:
                prompt = self.prompt(text)
                scores = score(model, [(prompt, ids) for ids in self.labels.values()])
                right.append(list(self.labels)[int(scores.argmax())] == name)
            found[name] = f"{sum(right[:PER_CLASS])} of {len(right[:PER_CLASS])}, {sum(right)} of {len(right)}"
        return found


class Jargon:
    """Pieces of the Jargon File."""

    def __init__(self, training: list[Document], held_out: list[Document], tokenizer: Tokenizer):
        self.tokenizer, self.rng, self.stream = tokenizer, random.Random(SEED), []
        for document in (d for d in training if d.source == "jargon"):
            self.stream += [0, *tokenizer.encode(document.text, add_special_tokens=False).ids, 1]
        self.held_out = {source: "\n\n".join(d.text for d in held_out if d.source == source) for source in CLASSES}

    def loss(self, model: PeftModel) -> torch.Tensor:
        """Of every token after the first."""
        starts = (self.rng.randrange(len(self.stream) - WINDOW) for _ in range(BATCH["jargon"]))
        rows = torch.tensor([[0, *self.stream[start : start + WINDOW]] for start in starts])
        return F.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())

    def write(self, out: Path) -> None:
        """The first entries of the held-out text."""
        text = self.held_out["jargon"]
        (out / "held-out.txt").write_text(text[: text.rindex("\n\n", 0, HELD_OUT)] + "\n")

    @torch.no_grad()
    def evaluate(self, model) -> dict:
        """Perplexity of the held-out text of each source."""
        logits = lambda tokens: model(tokens).logits
        return {name: round(evaluate.perplexity(logits, text, self.tokenizer, 0), 2) for name, text in self.held_out.items()}


def score(model, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """The log-probability of each continuation after its prompt."""
    longest = max(len(prompt) + len(label) for prompt, label in rows) - 1
    tokens = [(prompt + label)[:-1] for prompt, label in rows]
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in tokens])
    inner = model.get_base_model() if isinstance(model, PeftModel) else model
    hidden = inner.model(tokens, use_cache=False).last_hidden_state
    at = [(row, len(prompt) - 1 + i, token) for row, (prompt, label) in enumerate(rows) for i, token in enumerate(label)]
    row, position, token = (torch.tensor(list(part)) for part in zip(*at, strict=True))
    found = inner.lm_head(hidden[row, position]).log_softmax(-1)[torch.arange(len(at)), token]
    return torch.zeros(len(rows)).index_add(0, row, found)


def train(model: PeftModel, task, steps: int, minutes: float) -> int:
    """Trains to the end of the budget, with a rate that falls to zero; returns the number of updates."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    stepper = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    begun, done, losses = time.monotonic(), 0, []
    while (progress := max(done / steps, (time.monotonic() - begun) / (60 * minutes))) < 1.0:
        for group in stepper.param_groups:
            group["lr"] = RATE * min(1.0, (done + 1) / (WARM_UP * steps), 1.0 - progress)
        loss = task.loss(model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        stepper.step()
        stepper.zero_grad()
        losses.append(loss.item())
        done += 1
        if done % 25 == 0:
            print(f"{done} {sum(losses) / len(losses):.4f} {time.monotonic() - begun:.0f} s", flush=True)
            losses.clear()
    return done


def save(model: PeftModel, out: Path) -> None:
    """Writes what PEFT saves, with the tensors in bf16."""
    model.save_pretrained(out)
    (out / "README.md").unlink()  # PEFT's form of a model card, not filled in
    config = json.loads((out / "adapter_config.json").read_text())
    config["target_modules"].sort()  # a set in PEFT, whose order differs between runs
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    file = out / "adapter_model.safetensors"
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    file.chmod(0o644)


def base() -> AutoModelForCausalLM:
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    model.name_or_path = "demo"
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=BATCH)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/train-demo"), help="Debian packages")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--evaluate", action="store_true", help="train nothing")
    args = parser.parse_args()
    out = args.out or {"books": HERE, "jargon": HERE / "jargon"}[args.task]
    torch.set_num_threads(1)
    torch.manual_seed(SEED)

    training, held_out = corpus.load(args.work.resolve(), CORPUS_SEED)
    tokenizer = Tokenizer.from_file(str(BASE / "tokenizer.json"))
    task = {"books": Books, "jargon": Jargon}[args.task](training, held_out, tokenizer)
    if not args.evaluate:
        model = get_peft_model(base(), CONFIG)
        print(f"{train(model, task, args.steps, args.minutes)} updates")
        save(model, out)
        task.write(out)
    trained = PeftModel.from_pretrained(base(), out).eval()
    figures = {"base": task.evaluate(base().eval()), "adapter": task.evaluate(trained)}
    print(json.dumps(figures, indent=2))
    (out / "expected.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
