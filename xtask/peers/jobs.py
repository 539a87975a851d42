"""The work that is timed, and the ids it is done on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """`batch` prompts of `prompt` ids; after them `new` tokens for each, of which the first belongs to prefill."""

    name: str
    kind: str
    batch: int
    prompt: int
    new: int

    @property
    def tokens(self):
        """Tokens in the part that is timed."""
        return self.batch * (self.prompt if self.kind == "prefill" else self.new - 1)

    def case(self, bits, threads):
        """The name that pairs engines: equal work at equal bits per weight."""
        work = f"prefill{self.prompt}" if self.kind == "prefill" else "decode"
        return f"{work}/{bits}bit/t{threads}" + (f"/b{self.batch}" if self.batch > 1 else "")

    def prompts(self, vocab, call):
        """Other ids in every call, so that no engine finds a prompt in a prefix cache."""
        rows = range(call * self.batch, (call + 1) * self.batch)
        return [prompt_ids(self.prompt, vocab, row) for row in rows]


JOBS = [
    Job("prefill128", "prefill", 1, 128, 1),
    Job("prefill512", "prefill", 1, 512, 1),
    Job("decode", "decode", 1, 64, 64),
    Job("decode-b8", "decode", 8, 32, 32),
    Job("decode-b16", "decode", 16, 32, 32),
]


def prompt_ids(count, vocab, row=0):
    """Row 0 holds the ids that Redline's lane `generate` uses."""
    return [(i * 7919 + 11 + row * 104729) % vocab for i in range(count)]
