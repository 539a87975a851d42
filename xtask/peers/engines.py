"""The engines that are compared, behind one interface: `sample(job, threads)` in tokens per second, `greedy(...)`."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Redline's exit code when its own reading of a limit was disturbed. The document is complete all the same; here every
# engine is judged by the readings of this program alone.
DISTURBED = 5


@dataclass(frozen=True)
class Job:
    """Work that is timed: a prompt, and after it `new` tokens one by one (0 for prefill alone)."""

    name: str
    prompt: int
    new: int

    @property
    def metric(self):
        return f"{self.name}_tokens_per_s"


def prompt_ids(count, vocab):
    """The ids that Redline's lane `generate` uses."""
    return [(i * 7919 + 11) % vocab for i in range(count)]


class Peer:
    """An engine in a worker process."""

    def __init__(self, name, model, vocab):
        self.name, self._vocab = name, vocab
        command = [sys.executable, str(HERE / "worker.py"), name, str(model)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.version = self._answer()["version"]

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.name} ended with status {self._process.wait()}")
        return json.loads(line)

    def _ask(self, do, threads, prompt, **more):
        command = {"do": do, "threads": threads, "prompt": prompt_ids(prompt, self._vocab), **more}
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return self._answer()

    def sample(self, job, threads):
        seconds = self._ask(job.name, threads, job.prompt, new=job.new)["seconds"]
        return (job.new - 1 if job.new else job.prompt) / seconds

    def greedy(self, prompt, new, threads):
        answer = self._ask("greedy", threads, prompt, new=new)
        return answer["ids"], answer["margins"]

    def close(self):
        self._process.stdin.close()
        self._process.wait()


class Redline:
    """Redline through its own binary; each sample is a process that loads, warms up and times one trial."""

    name = "redline"

    def __init__(self, binary, model, vocab):
        self._binary, self._model, self._vocab = str(binary), str(model), vocab
        self.version = self._run("--version").strip()

    def _run(self, *arguments, accept=(0,)):
        done = subprocess.run([self._binary, *arguments], capture_output=True, text=True)
        if done.returncode not in accept:
            raise RuntimeError(f"{' '.join([self._binary, *arguments])}\n{done.stderr}")
        return done.stdout

    def sample(self, job, threads):
        # Two new tokens are the least the lane takes; prefill is timed apart from them.
        flags = {"threads": threads, "prompt-tokens": job.prompt, "new-tokens": job.new or 2, "trials": 1}
        arguments = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
        lane = ["bench", "generate", "--model", self._model, "--kv-cache", "on", "--json"]
        document = json.loads(self._run(*lane, *arguments, accept=(0, DISTURBED)))
        for row in document["rows"]:
            if job.metric in row["metrics"] and row["params"].get("kv_cache", True):
                return row["metrics"][job.metric]["median"]
        raise RuntimeError(f"no row of `bench generate` holds `{job.metric}`")

    def greedy(self, prompt, new, threads):
        ids = ",".join(map(str, prompt_ids(prompt, self._vocab)))
        arguments = ["--max-new-tokens", str(new), "--threads", str(threads), "--ignore-eos", "--json"]
        answer = json.loads(self._run("generate", "--model", self._model, "--prompt-ids", ids, *arguments))
        return answer["choices"][0]["token_ids"], None

    def close(self):
        pass
