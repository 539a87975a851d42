"""Loads the demo model with transformers in f32 and prints perplexity, cloze accuracy and greedy continuations.

    python models/demo/check.py [DIR]

Exits 1 where the figures differ from `expected.json`.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import evaluate

PROMPTS = ["In the beginning", "hacker: n.", "And the king said unto"]
NEW_TOKENS = 32


def report(folder: Path) -> dict:
    """The figures of `expected.json`."""
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = model.config.bos_token_id
    text = (folder / "held-out.txt").read_text()
    questions = [json.loads(line) for line in (folder / "cloze.jsonl").read_text().splitlines()]

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        return model(tokens).logits

    prompts = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        assert ids == AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"]
        new, lead = evaluate.greedy(logits, ids, NEW_TOKENS)
        prompts.append(
            {
                "prompt": prompt,
                "prompt_ids": ids,
                "greedy_ids": new,
                "smallest_lead": round(lead, 4),
                "text": tokenizer.decode(new),
            }
        )
    return {
        "perplexity": evaluate.perplexity(logits, text, tokenizer, bos),
        "perplexity_window": evaluate.WINDOW,
        "held_out_tokens": len(tokenizer.encode(text, add_special_tokens=False).ids),
        "cloze_accuracy": evaluate.cloze_accuracy(logits, questions, tokenizer),
        "prompts": prompts,
    }


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    found = report(folder)
    print(json.dumps(found, indent=2))
    expected = json.loads((folder / "expected.json").read_text())
    same = abs(found["perplexity"] - expected["perplexity"]) < 1e-3 * expected["perplexity"]
    same &= found["cloze_accuracy"] == expected["cloze_accuracy"]
    same &= [p["greedy_ids"] for p in found["prompts"]] == [p["greedy_ids"] for p in expected["prompts"]]
    print("same as expected.json" if same else "NOT as in expected.json", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
