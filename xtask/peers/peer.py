"""A peer: a worker process that loads one model and waits for work."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import processor
from unavailable import Unavailable

HERE = Path(__file__).resolve().parent
# Tokens decoded after the prompt to warm up: every shape of work is met.
WARM_UP = 8
# Threads of a worker spin for a while after work: seconds that it may take until they sleep, and between looks.
SETTLE, LOOK = 3.0, 0.05


class Worker:
    """Holds its process until `close`."""

    def __init__(self, name, command):
        self._name = name
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.hello = self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self._name} ended with status {self._process.wait()}")
        return json.loads(line)

    def ask(self, command):
        with contextlib.suppress(BrokenPipeError):  # a worker that is gone has no answer: told below
            print(json.dumps(command), file=self._process.stdin, flush=True)
        answer = self._answer()
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        return answer

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


class Peer(Worker):
    """An engine that generates and scores."""

    def __init__(self, arm, model, shape, threads):
        self.arm, self._vocab, self._calls = arm, shape.vocab, 0
        super().__init__(arm.name, [sys.executable, HERE / "worker.py", arm.engine, arm.format, model, threads])
        self.version, self.kv_format = self.hello["version"], self.hello["kv_format"]
        self.extras = {"load_s": self.hello["load_s"]}

    def generate(self, prompts, new, top=0):
        """The worker's answer."""
        return self.ask({"prompts": prompts, "new": new, "top": top})

    def greedy(self, prompts, new):
        """The ids chosen after each prompt."""
        return [self.generate([prompt], new)["ids"][0] for prompt in prompts]

    def _work(self, job, new):
        self._calls += 1
        return self.generate(job.prompts(self._vocab, self._calls), new)

    def warm_up(self, job):
        """Meets the job's shapes; what an engine compiles for them is noted."""
        if job.scores:
            self._score(job)
            return
        answer = self._work(job, min(job.new, WARM_UP))
        self.extras["compile_s"] = answer["compile_s"]

    def portions(self, samples):
        """How many samples are taken between two looks at the machine."""
        return [1] * samples

    def measure(self, job, _):
        """Tokens per second, or items."""
        if job.scores:
            return [job.batch / self._score(job)]
        answer = self._work(job, job.new)
        if any(len(ids) != job.new for ids in answer["ids"]) or len(answer["ids"]) != job.batch:
            raise RuntimeError(f"{self.arm.name} did not answer {job.name} with {job.batch} x {job.new} ids")
        return [job.tokens / answer["prefill_s" if job.kind == "prefill" else "decode_s"]]

    def _score(self, job):
        """Seconds of one request."""
        self._calls += 1
        query, items = job.prompts(self._vocab, 0)[0], job.items(self._vocab, self._calls)
        labels = [0, self._vocab // 2]
        answer = self.ask({"query": query, "items": items, "labels": labels, "warm": job.kind == "warm"})
        rows = answer["scores"]
        if len(rows) != job.batch or any(abs(sum(row) - 1) > 1e-5 for row in rows):
            raise RuntimeError(f"{self.arm.name} did not answer {job.name} with {job.batch} rows that sum to 1")
        return answer["seconds"]

    def _cpu_seconds(self):
        return processor.stat(Path(f"/proc/{self._process.pid}/stat"))[1]

    def settle(self):
        """Waits until the worker uses no processor; False if it never stops."""
        spent, deadline = self._cpu_seconds(), time.monotonic() + SETTLE
        while time.monotonic() < deadline:
            time.sleep(LOOK)
            now = self._cpu_seconds()
            if now == spent:
                return True
            spent = now
        return False
