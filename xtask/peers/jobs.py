"""The work that is timed, and the ids it is done on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """`batch` prompts of `prompt` ids; after them `new` tokens for each, of which the first belongs to prefill.

    The kinds `cold` and `warm` score `batch` items of `new` ids after one query of `prompt` ids, which a warm engine
    has run before.
    """

    name: str
    kind: str
    batch: int
    prompt: int
    new: int

    @property
    def scores(self):
        return self.kind in ("cold", "warm")

    @property
    def unit(self):
        """What is counted per second."""
        return "items" if self.scores else "tokens"

    @property
    def computed(self):
        """Tokens that a scoring engine must run."""
        return self.batch * self.new + (self.prompt if self.kind == "cold" else 0)

    @property
    def tokens(self):
        """Tokens in the part that is timed."""
        return self.batch * (self.prompt if self.kind == "prefill" else self.new - 1)

    def case(self, bits, threads):
        """The name that pairs engines: equal work at equal bits per weight."""
        work = f"prefill{self.prompt}" if self.kind == "prefill" else "decode"
        if self.scores:
            work = f"score-{self.kind}"
        return f"{work}/{bits}bit/t{threads}" + (f"/b{self.batch}" if self.batch > 1 else "")

    def prompts(self, vocab, call):
        """Other ids in every call, so that no engine finds a prompt in a prefix cache."""
        rows = range(call * self.batch, (call + 1) * self.batch)
        return [prompt_ids(self.prompt, vocab, row) for row in rows]

    def items(self, vocab, call):
        """Other items in every call, as Redline's lane `score` has them."""
        rows = range(call * self.batch, (call + 1) * self.batch)
        return [[(i * 104729 + row + 5) % vocab for i in range(self.new)] for row in rows]


JOBS = [
    Job("prefill128", "prefill", 1, 128, 1),
    Job("prefill512", "prefill", 1, 512, 1),
    Job("decode", "decode", 1, 64, 64),
    Job("decode-b8", "decode", 8, 32, 32),
    Job("decode-b16", "decode", 16, 32, 32),
    *(Job(f"score-{kind}-b{items}", kind, items, 40, 4) for kind in ("cold", "warm") for items in (8, 16, 32)),
]


def prompt_ids(count, vocab, row=0):
    """Row 0 holds the ids that Redline's lane `generate` uses."""
    return [(i * 7919 + 11 + row * 104729) % vocab for i in range(count)]
