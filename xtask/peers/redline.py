"""Redline through its own binary: each measurement is a process that loads, warms up and times its trials.

The one place that knows Redline's command line.
"""

import json
import subprocess

from unavailable import Unavailable

# Exit codes: a command or a flag that this build lacks; a reading of a limit was disturbed, but the document is
# complete (here every engine is judged by the readings of this program alone).
USAGE, DISTURBED = 2, 5


def call(binary, *arguments, accept=(0,), text=None):
    """What the binary prints."""
    command = [str(binary), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, input=text, check=False)
    if done.returncode == USAGE:
        raise Unavailable("not available in this build: " + done.stderr.strip().split("\n")[0])
    if done.returncode not in accept:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def version(binary):
    return call(binary, "--version").strip().removeprefix("redline ")


def synth(binary, shape, directory):
    """A random-weight checkpoint whose values are exact in bf16, so that every engine starts from the same ones."""
    call(binary, "synth", shape, directory, "--format", "bf16")


def convert(binary, source, directory, weights):
    call(binary, "convert", source, directory, "--format", weights)


def doctor(binary):
    """The machine, and its limits as {threads: {"f32_peak": operations per second, ..}}."""
    document = json.loads(call(binary, "doctor", "--json"))
    names = {"f32 multiply-add": "f32_peak", "bf16 multiply-add": "bf16_peak", "int8 multiply-add": "int8_peak"}
    limits = {}
    for limit in document["limits"]:
        if limit["name"] in names:
            limits.setdefault(limit["threads"], {})[names[limit["name"]]] = 1e9 * limit["value"]
    return document["machine"], limits


class Redline:
    def __init__(self, binary, arm, model, threads):
        self.arm, self._binary = arm, binary
        # A file of llama.cpp keeps its types.
        kept = [] if arm.reads_gguf else ["--format", arm.format]
        self._machine = ["--model", model, *kept, "--threads", threads]
        self.version = version(binary)
        self.kv_format = "f32" if arm.bits == 32 else "bf16"
        self.extras = {}

    def greedy(self, prompts, new):
        """The ids chosen after each prompt."""
        lines = "\n".join(json.dumps({"prompt": prompt, "max_new_tokens": new}) for prompt in prompts)
        answers = call(self._binary, "generate", *self._machine, "--ignore-eos", "--jsonl", "-", text=lines)
        return [json.loads(line)["choices"][0]["token_ids"] for line in answers.splitlines()]

    def warm_up(self, _):
        """Left to the lane, which does so in every process."""

    def portions(self, samples):
        """How many samples are taken between two looks at the machine."""
        return [samples]

    def measure(self, job, trials):
        """Tokens per second, of all sequences of the batch together; items per second where items are scored."""
        if job.scores:
            return self._score(job, trials)
        # Two new tokens are the least the lane takes; prefill is timed apart from them.
        flags = ["--prompt-tokens", job.prompt, "--new-tokens", max(job.new, 2), "--num-runs", trials]
        if job.batch > 1:
            flags += ["--batch", job.batch]
        lane = ["bench", "generate", "--kv-cache", "on", "--json", *self._machine, *flags]
        metric = f"{job.kind}_tokens_per_s"
        for row in json.loads(call(self._binary, *lane, accept=(0, DISTURBED)))["rows"]:
            if metric in row["metrics"]:
                return row["metrics"][metric]["samples"]
        raise RuntimeError(f"no row of `bench generate` holds `{metric}`")

    def _score(self, job, trials):
        flags = ["--query-tokens", job.prompt, "--item-tokens", job.new, "--batch-sizes", job.batch]
        flags += ["--num-labels", 2, "--num-runs", trials, "--warmup-runs", 2, "--prefix", job.kind]
        lane = ["bench", "score", "--json", *self._machine, *flags]
        row = json.loads(call(self._binary, *lane, accept=(0, DISTURBED)))["rows"][0]
        return row["metrics"]["items_per_s"]["samples"]

    def settle(self):
        """There is no process between two measurements."""
        return True

    def close(self):
        """Nor anything to end."""
