"""Trains the chat model: a LoRA adapter of the demo model, which Redline merges into its weights.

    python models/demo-chat/train.py              into models/demo-chat
    python models/demo-chat/train.py --continue   the adapter that is there, further
    python models/demo-chat/train.py --evaluate   only the figures of the adapter that is there

Needs the packages of tests/golden/requirements.txt. Ends after --steps, or earlier after --minutes.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "demo-adapter"))

import torch
import torch.nn.functional as F
from jinja2.sandbox import ImmutableSandboxedEnvironment
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer

import conversations
import train as adapters
from conversations import SKILLS, UNSEEN, Conversation, Draw
from train import BASE, base, save, train

SEED = 20261129
BATCH = 16
CONFIG = LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
ASKED = 200  # conversations of each kind that the figures count


class Chats:
    """Conversations, of which the answers count."""

    def __init__(self):
        self.tokenizer, self.rng = Tokenizer.from_file(str(BASE / "tokenizer.json")), Draw(SEED)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.template = environment.from_string((HERE / "chat_template.jinja").read_text())

    def text(self, chat: Conversation, end: int, asks: bool) -> str:
        messages = chat.messages[:end]
        return self.template.render(messages=messages, tools=chat.tools, add_generation_prompt=asks)

    def pairs(self, chat: Conversation) -> list[tuple[list[int], list[int]]]:
        """The tokens before each answer, and of it."""
        found = []
        for at, message in enumerate(chat.messages):
            if message["role"] == "assistant":
                prompt, whole = self.text(chat, at, True), self.text(chat, at + 1, False)
                assert whole.startswith(prompt), (prompt, whole)
                answer = whole[len(prompt) :].removesuffix("\n")
                found.append((self.ids(prompt), self.ids(answer)))
        return found

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def loss(self, model: PeftModel) -> torch.Tensor:
        """Of the tokens of the answers. Of a conversation one answer is drawn, more often a later one."""
        rows = [self.rng.choice(self.pairs(conversations.conversation(self.rng))[-2:]) for _ in range(BATCH)]
        longest = max(len(prompt) + len(answer) for prompt, answer in rows) - 1
        tokens = torch.tensor([(row := (prompt + answer)[:-1]) + [0] * (longest - len(row)) for prompt, answer in rows])
        hidden = model.get_base_model().model(tokens, use_cache=False).last_hidden_state
        at = [(row, len(prompt) - 1 + i, token) for row, (prompt, answer) in enumerate(rows) for i, token in enumerate(answer)]
        row, position, token = (torch.tensor(list(part)) for part in zip(*at, strict=True))
        return F.cross_entropy(model.get_base_model().lm_head(hidden[row, position]), token)

    @torch.no_grad()
    def answer(self, model, prompt: list[int], most: int = 64) -> list[int]:
        """The most probable tokens, with the one that ends the answer."""
        cache, tokens, found = None, torch.tensor([prompt]), []
        while len(found) < most and (not found or found[-1] != 1):
            out = model(tokens, past_key_values=cache, use_cache=True)
            cache, found = out.past_key_values, [*found, int(out.logits[0, -1].argmax())]
            tokens = torch.tensor([found[-1:]])
        return found

    def evaluate(self, model) -> dict[str, str]:
        """Answers that are equal to those of the conversation, to the last token."""
        beside = lambda rng: conversations.chat(rng, [conversations.tool(rng, skill) for skill in rng.sample(SKILLS, 2)])
        free = lambda prompt, _: self.answer(model, prompt)
        # Which answer of a conversation counts, and how it is made: the keys of an object are known to a grammar only.
        kinds = {
            "calls": (lambda rng: conversations.with_tools(rng, SKILLS), 0, free),
            "calls of functions that no conversation had": (lambda rng: conversations.with_tools(rng, UNSEEN), 0, free),
            "answers after results": (lambda rng: conversations.with_tools(rng, SKILLS), -1, free),
            "answers beside functions": (beside, -1, free),
            "objects in JSON": (conversations.in_json, -1, lambda prompt, answer: self.forced(model, prompt, answer)),
        }
        figures = {}
        for kind, (draw, which, make) in kinds.items():
            rng, right, wrong = Draw(f"{SEED} {kind}"), 0, []
            for _ in range(ASKED):
                prompt, answer = self.pairs(draw(rng))[which]
                found = make(prompt, answer)
                right += found == answer
                if found != answer and len(wrong) < 4:
                    wrong.append((self.tokenizer.decode(prompt[-60:]), self.tokenizer.decode(found), self.tokenizer.decode(answer)))
            figures[kind] = f"{right} of {ASKED}"
            for case in wrong:
                print(kind, *case, sep="\n  | ", file=sys.stderr)
        return figures

    @torch.no_grad()
    def forced(self, model, prompt: list[int], answer: list[int]) -> list[int]:
        """The most probable values where a grammar gives the keys: each token after those before it of the answer."""
        found = model(torch.tensor([prompt + answer[:-1]])).logits[0, len(prompt) - 1 :].argmax(-1).tolist()
        before = [self.tokenizer.decode(answer[:at]) for at in range(len(answer))]
        in_value = [text.rfind('": ') > text.rfind(', "') for text in before]
        # What ends a value begins with what the grammar gives.
        ends = lambda own, given: {self.tokenizer.decode([id]).rstrip('"}, ') for id in (own, given)}
        return [own if free and len(ends(own, given)) > 1 else given for own, given, free in zip(found, answer, in_value, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=42)
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="train the adapter that is there further")
    parser.add_argument("--evaluate", action="store_true", help="train nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    chats = Chats()
    if not args.evaluate:
        if args.goes_on:
            chats.rng.seed(SEED + 1)
            adapters.RATE /= 3
            model = PeftModel.from_pretrained(base(), args.out, is_trainable=True)
        else:
            model = get_peft_model(base(), CONFIG)
        print(f"{train(model, chats, args.steps, args.minutes)} updates")
        save(model, args.out)
    # As Redline merges it: added in f32, rounded once.
    merged = PeftModel.from_pretrained(base(), args.out).merge_and_unload().to(torch.bfloat16).to(torch.float32).eval()
    figures = chats.evaluate(merged)
    print(json.dumps(figures, indent=2))
    (args.out / "expected.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
