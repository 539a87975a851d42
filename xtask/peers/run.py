"""Redline beside llama.cpp, CTranslate2, OpenVINO GenAI, PyTorch and JAX, on random weights of a real shape.

All engines start from one checkpoint, and each is checked against the f32 reference before it is timed. An arm is an
engine with a weight format. Arms take turns in the order A B C, C B A, again and again; a turn is a fresh process that
loads, warms up and does every job, so only one model is in memory and nothing else runs. Every sample stands between
two readings of the read bandwidth.
"""

import argparse
import statistics
import sys
from contextlib import closing
from pathlib import Path

import arms
import check
import document
import redline
import report
import samples
from jobs import JOBS
from peer import Peer
from prepare import Models
from probe import Probe
from redline import Redline
from unavailable import Unavailable

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ["llama-3.2-1b", "tinyllama-1.1b", "gpt2", "qwen3.5-0.8b", "lfm2-1.2b", "gemma-4-e2b"]
# The load average, own loading included, above which a warning is due.
BUSY = 1.5


def arguments():
    engines = ", ".join(dict.fromkeys(arm.engine for arm in arms.ARMS))
    parser = argparse.ArgumentParser(prog="cargo xtask peers", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="default: %(default)s")
    parser.add_argument("--model", type=Path, help="a Hugging Face directory of such an architecture instead of a shape")
    parser.add_argument("--threads", default="1,2", help="thread counts, each a run of its own; default: %(default)s")
    parser.add_argument("--engines", help=f"of {engines}; ENGINE:FORMAT for one format; default: all")
    parser.add_argument("--jobs", help=f"of {', '.join(job.name for job in JOBS)}; default: all")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of A B C, C B A; default: %(default)s")
    parser.add_argument("--samples", type=int, default=2, help="per job and turn; default: %(default)s")
    parser.add_argument(
        "--unjudged",
        action="store_true",
        help="time formats of four bits whatever they choose: random weights of recurrent models leave them no signal",
    )
    parser.add_argument("--quick", action="store_true", help="one round, one sample: shows only that it works")
    parser.add_argument("--redline", type=Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--work", type=Path, default=ROOT / "target/peers", help="models; default: target/peers")
    parser.add_argument("--out", type=Path, help="documents; default: WORK/results/SHAPE")
    options = parser.parse_args()
    try:
        options.arms = arms.chosen(options.engines.split(",")) if options.engines else arms.ARMS
        options.threads = [int(count) for count in options.threads.split(",")]
    except ValueError as error:
        parser.error(str(error))
    names = options.jobs.split(",") if options.jobs else [job.name for job in JOBS]
    options.jobs = [job for job in JOBS if job.name in names]
    if len(options.jobs) < len(names):
        parser.error(f"`--jobs` is {','.join(names)}\n\nhint: of {', '.join(job.name for job in JOBS)}")
    if options.quick:
        options.rounds = options.samples = 1
    if min(options.rounds, options.samples, *options.threads) < 1:
        parser.error("at least 1 round, 1 sample and 1 thread are needed")
    if options.model and not (options.model / "config.json").is_file():
        parser.error(f"`{options.model}` holds no config.json")
    if not options.redline.is_file():
        parser.error(f"no `{options.redline}`\n\nhint: cargo build --release, or --redline PATH")
    name = options.model.resolve().name if options.model else options.shape
    options.name, options.out = name, options.out or options.work / "results" / name
    return options


class Run:
    """What is measured so far."""

    def __init__(self, options, models):
        self._options, self._models = options, models
        self._paths, self._probe = {}, Probe()
        self._restless = set()
        self.results, self.left_out, self.versions, self.agreement = {}, {}, {}, {}
        self.failed = False

    def prepare(self):
        """Makes the models."""
        self._paths, failed = self._models.prepare(self._options.arms)
        for arm, why in failed.items():
            self._drop(arm, why)

    def check(self):
        """Leaves out what does not compute the model; whether all arms with 32 bits do."""
        shape, threads = self._models.shape, max(self._options.threads)
        prompts = check.prompts(shape.vocab)
        say("checking: reference")
        reference, different = self._reference(prompts, threads), False
        for arm in list(self._paths):
            try:
                with closing(self._open(arm, threads)) as engine:
                    answers = engine.greedy(prompts, check.NEW)
            except (Unavailable, RuntimeError) as why:
                self._drop(arm, why)
                continue
            verdict = check.judge(arm, answers, reference)
            self.versions[arm.engine], self.agreement[arm] = engine.version, verdict.fact
            say(f"checking: {arm.name}: {verdict.fact}")
            if not verdict.agrees and not (self._options.unjudged and arm.bits < 8):
                self._drop(arm, RuntimeError(verdict.fact))
                different |= arm.bits == 32
        return not different

    def _reference(self, prompts, threads):
        arm = next(arm for arm in arms.ARMS if arm.name == "torch:f32")
        count = check.few(self._models.shape.vocab)
        with closing(Peer(arm, self._models.base, self._models.shape, threads)) as engine:
            return [engine.generate([prompt], check.NEW, count) for prompt in prompts]

    def _open(self, arm, threads):
        if arm.engine == arms.REDLINE:
            return Redline(self._options.redline, arm, self._paths[arm], threads)
        return Peer(arm, self._paths[arm], self._models.shape, threads)

    def _drop(self, arm, why):
        """What is not available is no failure of the run; everything else is."""
        say(f"left out: {arm.name}: {why}")
        self._paths.pop(arm, None)
        self.left_out[arm, "all jobs"] = str(why).partition("\n")[0]
        self.failed |= not isinstance(why, Unavailable)

    def measure(self, threads):
        """Turns of every arm, interleaved."""
        order = list(self._paths)
        for number in range(self._options.rounds):
            for index, arm in enumerate(order + order[::-1]):
                if arm in self._paths:
                    turn = 2 * number + index // len(order)
                    say(f"{threads} threads, turn {turn + 1} of {2 * self._options.rounds}: {arm.name}")
                    self._turn(arm, threads, turn)

    def _turn(self, arm, threads, turn):
        try:
            with closing(self._open(arm, threads)) as engine:
                for job in self._options.jobs:
                    if (arm, job.name) not in self.left_out:
                        self._job(engine, job, threads, turn)
        except RuntimeError as why:
            self._drop(arm, why)

    def _job(self, engine, job, threads, turn):
        try:
            engine.warm_up(job)
            for trials in engine.portions(self._options.samples):
                before = self._read(engine, threads)
                values = engine.measure(job, trials)
                after = self._read(engine, threads)
                key = engine.arm, job, threads
                extras = {"kv_format": engine.kv_format, "agreement": self.agreement[engine.arm]}
                result = self.results.setdefault(key, samples.Result(*key, extras=extras))
                result.samples += [samples.Sample(value, before, after, turn) for value in values]
        except Unavailable as why:
            say(f"left out: {engine.arm.name}, {job.name}: {why}")
            self.left_out[engine.arm, job.name] = str(why)
            return
        for name, value in engine.extras.items():
            result.extras.setdefault(name, []).append(value)

    def _read(self, engine, threads):
        if not engine.settle() and engine.arm not in self._restless:
            self._restless.add(engine.arm)
            say(f"warning: {engine.arm.name} keeps a processor busy between samples: the readings suffer")
        return self._probe.read_bandwidth(threads)


def limits(run, peaks, models):
    """The limit of every result; the peaks are the means of the readings before and after."""
    found = {}
    for result in run.results.values():
        readings = [reading.get(result.threads, {}) for reading in peaks]
        names = set(readings[0]).intersection(*readings[1:])
        mean = {name: statistics.fmean(reading[name] for reading in readings) for name in names}
        bits = models.bits_per_weight(result.arm)
        found[id(result)] = samples.limit(result, models.shape, bits, mean)
    return found


def divides(run):
    """By number of threads: the bandwidth between the machine's fast and slow mode, if it has two."""
    by_threads = {}
    for result in run.results.values():
        by_threads.setdefault(result.threads, []).extend(sample.bandwidth for sample in result.samples)
    return {threads: samples.threshold(values) for threads, values in by_threads.items()}


def publish(run, options, machine, started, found):
    """A document per engine, and the tables on standard output."""
    options.out.mkdir(parents=True, exist_ok=True)
    shared = {"started_at": started, "command": sys.argv, "machine": machine, "model": options.name}
    results, modes = list(run.results.values()), divides(run)
    for engine, version in run.versions.items():
        own = [result for result in results if result.arm.engine == engine]
        if own:
            written = document.document(shared, engine, version, own, found, modes)
            document.write(options.out / f"{engine}.json", written)
    print(report.tables(results, found, run.left_out))
    say(f"documents: {options.out}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    started = document.now()
    models = Models(options, say)
    run = Run(options, models)
    run.prepare()
    if not run.check():
        say("error: engines with f32 weights do not compute the same function; nothing was measured")
        return 1
    machine, before = redline.doctor(options.redline)
    load = machine["load"]["average_1"] or 0
    if load > BUSY:
        say(f"warning: load average {load:.1f}: something else runs here, the ratios may mislead")
    for threads in options.threads:
        run.measure(threads)
    peaks = [before, redline.doctor(options.redline)[1]]
    publish(run, options, machine, started, limits(run, peaks, models))
    return 1 if run.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unavailable, OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
