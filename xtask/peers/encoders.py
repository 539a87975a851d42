"""Redline beside ONNX Runtime, OpenVINO and PyTorch on an encoder: vectors of token sequences, on random weights of a real shape.

    cargo xtask peers encoders [--shape bge-small] [--batches 1,16] [--lengths 16,128,512]

All engines start from one checkpoint. Each must make the vectors of PyTorch in f32, as near as its numbers allow, before it is timed.
Arms take turns in the order A B C, C B A; a turn is a fresh process that loads, warms up and does every case. The time
of a peer is that of a call, with padding and the means; Redline's is that of a request, with all that it takes. Text
Embeddings Inference is left out: it is published neither on PyPI nor on crates.io.
"""

import argparse
import json
import math
import statistics
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import document
import jobs
import redline
from arms import Arm
from peer import Worker
from prepare import make, run_script
from probe import Probe
from unavailable import Unavailable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHAPES = ["bge-small", "bge-base"]
# Texts whose vectors are compared, in words of the random vocabulary.
TEXTS = ["a b c", "the quick brown fox jumps over the lazy dog", "one", "x " * 60, "a b " * 200]
# The least cosine of a vector and that of PyTorch in f32, by bits of the numbers that are multiplied.
LEAST_COSINE = {32: 1 - 1e-6, 16: 0.999, 8: 0.95}


ARMS = [
    Arm("redline", "f32", 32),
    Arm("redline", "bf16", 16),
    Arm("redline", "w8", 8),
    Arm("onnxruntime", "f32", 32),
    Arm("onnxruntime", "int8", 8),
    Arm("openvino", "f32", 32),
    Arm("openvino", "bf16", 16),
    Arm("openvino", "int8", 8),
    Arm("torch", "f32", 32),
    Arm("torch", "bf16", 16),
]
REFERENCE = next(arm for arm in ARMS if arm.name == "torch:f32")


@dataclass(frozen=True)
class Case:
    batch: int
    length: int

    def rows(self, vocab, call):
        """Other ids in every call."""
        return [jobs.prompt_ids(self.length, vocab, call * self.batch + row) for row in range(self.batch)]


def _numbers(text):
    return [int(number) for number in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask peers encoders", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="default: %(default)s")
    parser.add_argument("--engines", help=f"of {', '.join(dict.fromkeys(arm.engine for arm in ARMS))}; default: all")
    parser.add_argument("--batches", type=_numbers, default=[1, 16], help="sequences of a call; default: 1,16")
    parser.add_argument("--lengths", type=_numbers, default=[16, 128, 512], help="tokens of each; default: 16,128,512")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of A B C, C B A; default: %(default)s")
    parser.add_argument("--samples", type=int, default=3, help="calls of a case in a turn; default: %(default)s")
    parser.add_argument("--redline", type=Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--work", type=Path, default=ROOT / "target/peers", help="models; default: target/peers")
    parser.add_argument("--out", type=Path, help="every sample, as JSON; default: WORK/results/SHAPE-encoders.json")
    options = parser.parse_args()
    if min(options.threads, options.rounds, options.samples, *options.batches, *options.lengths) < 1:
        parser.error("at least 1 thread, round, sample, sequence and token are needed")
    if not options.redline.is_file():
        parser.error(f"no `{options.redline}`\n\nhint: cargo build --release, or --redline PATH")
    engines = options.engines.split(",") if options.engines else [arm.engine for arm in ARMS]
    options.arms = [arm for arm in ARMS if arm.engine in engines]
    if unknown := set(engines) - {arm.engine for arm in ARMS}:
        parser.error(f"no engine `{', '.join(unknown)}`")
    options.out = options.out or options.work / "results" / f"{options.shape}-encoders.json"
    options.cases = [Case(batch, length) for batch in options.batches for length in options.lengths]
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


class Models:
    """The files of the arms, made from one checkpoint and kept for the next run."""

    def __init__(self, options):
        self._folder = options.work / options.shape
        self._folder.mkdir(parents=True, exist_ok=True)
        self._redline, self.base = options.redline, self._folder / "checkpoint"
        make(self.base, lambda out: redline.synth(options.redline, options.shape, out), say)
        self.vocab = json.loads((self.base / "config.json").read_text(encoding="utf-8"))["vocab_size"]

    def path(self, arm):
        if arm.engine == "torch" or (arm.engine == "redline" and arm.bits > 8):
            return self.base
        if arm.engine == "redline":
            path = self._folder / f"redline-{arm.format}"
            make(path, lambda out: redline.convert(self._redline, self.base, out, arm.format), say)
            return path
        library, file = ("onnx", "model.onnx") if arm.engine == "onnxruntime" else ("openvino", "model.xml")
        plain = self._made(f"{library}-f32", file, library, self.base)
        if arm.bits > 8:
            return plain
        sources = [plain] if library == "onnx" else [self.base, plain]
        return self._made(f"{library}-int8", file, f"{library}-int8", *sources)

    def _made(self, name, file, *made_of):
        """A file of a directory of its own, which may have others beside it."""

        def write(directory):
            directory.mkdir()
            run_script("encoder_model.py", *made_of, directory / file)

        make(self._folder / name, write, say)
        return self._folder / name / file


def _worker(arm, model, threads):
    return Worker(arm.name, [sys.executable, HERE / "encoder_worker.py", arm.engine, model, arm.format, threads])


class Run:
    def __init__(self, options, models):
        self._options, self._models = options, models
        self._probe, self._results, self.samples, self._calls = Probe(), {}, [], 0
        self.versions = {}

    def check(self):
        """Whether all arms make the vectors of the reference."""
        options = self._options
        # Tests of this file run without it.
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(self._models.base / "tokenizer.json"))
        rows = [tokenizer.encode(text).ids for text in TEXTS]
        reference, wrong = self._vectors(REFERENCE, rows), False
        for arm in options.arms:
            vectors = self._vectors(arm, rows)
            cosines = [cosine(*pair) for pair in zip(vectors, reference, strict=True)]
            say(f"checking: {arm.name}: cosines with the reference " + ", ".join(f"{value:.7f}" for value in cosines))
            wrong |= not all(value >= LEAST_COSINE[arm.bits] for value in cosines)
        return not wrong

    def _vectors(self, arm, rows):
        path = self._models.path(arm)
        if arm.engine == "redline":
            flags = ["--model", path, "--format", arm.format, "--threads", self._options.threads, "--pooling", "mean", "--json"]
            texts = [flag for text in TEXTS for flag in ("--text", text)]
            answer = json.loads(redline.call(self._options.redline, "embed", *flags, "--normalize", "false", *texts))
            return answer["embeddings"]
        with closing(_worker(arm, path, self._options.threads)) as peer:
            return peer.ask({"rows": rows})["vectors"]

    def measure(self):
        order, options = self._options.arms, self._options
        for number in range(options.rounds):
            for index, arm in enumerate(order + order[::-1]):
                bandwidth = self._probe.read_bandwidth(options.threads) / 1e9
                say(f"turn {number * 2 * len(order) + index + 1} of {2 * options.rounds * len(order)}: {arm.name}, {bandwidth:.1f} GB/s")
                found = self._redline(arm) if arm.engine == "redline" else self._peer(arm)
                for case, rates in found.items():
                    self._results.setdefault((case, arm), []).append(statistics.median(rates))
                    row = {"arm": arm.name, "batch": case.batch, "length": case.length, "bandwidth": bandwidth, "tokens_per_s": rates}
                    self.samples.append(row)

    def _redline(self, arm):
        options = self._options
        self.versions[arm.engine] = f"redline {redline.version(options.redline)}"
        flags = ["--model", self._models.path(arm), "--format", arm.format, "--threads", options.threads, "--logits", "all"]
        for name, values in [("batch", options.batches), ("length", options.lengths)]:
            flags += [f"--{name}", ",".join(map(str, values))]
        lane = ["bench", "forward", "--json", *flags, "--num-runs", options.samples, "--warmup-runs", 1]
        rows = json.loads(redline.call(options.redline, *lane, accept=(0, redline.DISTURBED)))["rows"]
        found = {}
        for row in rows:
            case = Case(row["params"]["batch"], row["params"]["length"])
            found[case] = row["metrics"]["tokens_per_s"]["samples"]
        return found

    def _peer(self, arm):
        found = {}
        with closing(_worker(arm, self._models.path(arm), self._options.threads)) as peer:
            self.versions[arm.engine] = peer.hello["version"]
            for case in self._options.cases:
                calls = [peer.ask({"rows": self._rows(case)}) for _ in range(1 + self._options.samples)]
                seconds = [call["seconds"] for call in calls[1:]]
                found[case] = [case.batch * case.length / second for second in seconds]
        return found

    def _rows(self, case):
        self._calls += 1
        return case.rows(self._models.vocab, self._calls)

    def table(self):
        """Tokens per second, and Redline's over that of the fastest peer with as many bits or more."""
        arms = self._options.arms
        lines = [", ".join(self.versions.values()), ""]
        lines.append("| sequences x tokens | " + " | ".join(arm.name for arm in arms) + " | ratio, 32 bits | 16 bits | 8 bits |")
        lines.append("|" + "---|" * (len(arms) + 4))
        for case in self._options.cases:
            rates = {arm: statistics.median(self._results[case, arm]) for arm in arms}
            cells = [f"{case.batch} x {case.length}", *(f"{rate:.0f}" for rate in rates.values())]
            lines.append("| " + " | ".join(cells + [ratio(rates, bits) for bits in (32, 16, 8)]) + " |")
        return "\n".join(lines)


def ratio(rates, bits):
    """With as many bits or more: a peer with fewer computes something else."""
    own = [rate for arm, rate in rates.items() if arm.engine == "redline" and arm.bits == bits]
    others = [rate for arm, rate in rates.items() if arm.engine != "redline" and arm.bits >= bits]
    return f"{own[0] / max(others):.2f}x" if own and others else ""


def cosine(a, b):
    """NaN if a vector is zero."""
    product = sum(x * y for x, y in zip(a, b, strict=True))
    norms = (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
    return product / norms if norms else math.nan


def main():
    options = arguments()
    started = document.now()
    run = Run(options, Models(options))
    if not run.check():
        say("error: engines do not make the same vectors; nothing was measured")
        return 1
    machine, _ = redline.doctor(options.redline)
    run.measure()
    told = {"started_at": started, "command": sys.argv, "machine": machine, "versions": run.versions, "threads": options.threads}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document.write(options.out, told | {"turns": run.samples})
    print(run.table())
    say(f"samples: {options.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unavailable, OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
