"""`redline serve` beside the servers of llama.cpp, on random weights of a real shape.

    cargo xtask peers serving --llama-server PATH [--parts questions,jobs,load,overhead,restart,turns]

All servers run at once, have the same weights and the same vocabulary, and answer in turns: A B C in one round, C B A in the next. Every
request has a text of its own, so no cache helps but that of the request itself. The exit code is 1 if a bound is missed. Parts:

- questions: what 8 questions about one state cost, of what one costs. Redline only.
- jobs: decisions, scores and reranking beside llama.cpp (`served_jobs.py` says how each is asked).
- load: `redline bench load` with completions, against every server.
- overhead: what HTTP adds to the time of the engine, one request at a time; and 32 streams at once: the share of the processor time that
  threads of the server take which do not compute, and of the time in which none of the engine's passes ran. Redline only.
- restart: the first token of a known prefix after a restart with `--prefix-cache-dir`. Redline only.
- turns: the first token of each turn of a chat over a long prefix, beside llama.cpp, each server alone.
"""

import argparse
import contextlib
import os
import shlex
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import arms
import document
import http_client
import redline
import served_jobs
import serving_load
import serving_overhead
import serving_report
import serving_restart
import serving_turns
from prepare import Models
from servers import LlamaPython, LlamaServer, RedlineServer, Running
from unavailable import Unavailable

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ["llama-3.2-1b", "tinyllama-1.1b", "qwen3.5-0.8b", "lfm2-1.2b"]
PARTS = ["questions", "jobs", "load", "overhead", "restart", "turns"]
SERVERS = ["redline", "llama-server", "llama-cpp-python"]
# The servers that a part asks.
NEEDS = {part: SERVERS[:1] for part in PARTS} | {"jobs": SERVERS[:2], "load": SERVERS, "turns": SERVERS[:2]}
# Probabilities of a score from weights of 8 bits in two formats differ by less.
CLOSE = 0.1


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask peers serving", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="default: %(default)s")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--servers", default=",".join(SERVERS), help="default: %(default)s")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server, built for this machine")
    parser.add_argument("--llama-flags", default="", metavar="=FLAGS", help="more flags of llama-server, such as =--no-kv-unified")
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="a further server for the load (repeatable)")
    parser.add_argument("--threads", type=int, help="of every server; default: Redline's default, and as many for the others")
    parser.add_argument("--rounds", type=int, default=6, help="of questions and jobs; default: %(default)s")
    parser.add_argument("--concurrency", default="1,8,32", help="of the load; default: %(default)s")
    parser.add_argument("--requests", default="72,72,96", help="of a run at each concurrency; default: %(default)s")
    parser.add_argument("--num-runs", type=int, default=3, help="runs of the load; default: %(default)s")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="of the load; default: %(default)s")
    parser.add_argument("--output-tokens", type=int, default=64, help="of the load; default: %(default)s")
    parser.add_argument("--serial-most", type=int, default=32, help="most connections to llama-cpp-python; default: %(default)s")
    parser.add_argument("--redline", type=Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--work", type=Path, default=ROOT / "target/peers", help="models; default: target/peers")
    parser.add_argument("--out", type=Path, help="results; default: WORK/results/SHAPE-serving")
    options = parser.parse_args()
    for name, known in (("parts", PARTS), ("servers", SERVERS)):
        chosen = getattr(options, name).split(",")
        if not set(chosen) <= set(known):
            parser.error(f"`--{name}` is {','.join(chosen)}\n\nhint: of {', '.join(known)}")
        setattr(options, name, [one for one in known if one in chosen])
    options.concurrency = [int(count) for count in options.concurrency.split(",")]
    options.requests = [int(count) for count in options.requests.split(",")]
    if len(options.requests) == 1:
        options.requests *= len(options.concurrency)
    if len(options.requests) != len(options.concurrency):
        parser.error("`--requests` needs one number, or one for each of `--concurrency`")
    if min(options.rounds, options.num_runs, *options.concurrency, *options.requests) < 1:
        parser.error("at least 1 round, 1 run, 1 connection and 1 request are needed")
    # Only the servers that a chosen part asks.
    needed = set().union(*(NEEDS[part] for part in options.parts))
    options.servers = [name for name in options.servers if name in needed]
    if "redline" not in options.servers:
        parser.error("every part asks Redline\n\nhint: --servers redline, or leave it out")
    if "llama-server" in options.servers and not (options.llama_server and options.llama_server.is_file()):
        parser.error("`llama-server` needs its binary\n\nhint: --llama-server PATH, or --servers redline,llama-cpp-python")
    if not options.redline.is_file():
        parser.error(f"no `{options.redline}`\n\nhint: cargo build --release, or --redline PATH")
    if not all("=" in one for one in options.url):
        parser.error("`--url` needs a name and an address\n\nhint: --url vllm=http://127.0.0.1:8000")
    options.url = [Running(*one.split("=", maxsplit=1)) for one in options.url]
    options.processors = options.threads or len(os.sched_getaffinity(0))
    options.model, options.out = None, options.out or options.work / "results" / f"{options.shape}-serving"
    return options


class Comparison:
    """The servers that run, and what they answered."""

    def __init__(self, options, models, paths):
        self._options, self._models, self._paths = options, models, paths
        self.labels = served_jobs.label_ids(models.base / "tokenizer.json")
        self.results = {}
        self._scale = None

    def servers(self):
        """The chosen ones, not yet started."""
        options, logs, made = self._options, self._options.out, []
        served = self._paths["served"]
        if "redline" in options.servers:
            made.append(RedlineServer(options.redline, self._paths["redline"], options.threads, logs / "redline.log"))
        if "llama-server" in options.servers:
            slots = max(options.concurrency)
            log = logs / "llama-server.log"
            more = shlex.split(options.llama_flags)
            made.append(LlamaServer(options.llama_server, served, options.processors, log, slots, more=more))
        if "llama-cpp-python" in options.servers:
            server = LlamaPython(served, options.processors, logs / "llama-cpp-python.log")
            server.most = options.serial_most
            made.append(server)
        return made

    def run(self):
        """Starts the servers and does the parts."""
        options = self._options
        if set(options.parts) - {"restart", "turns"}:
            self._run_together()
        if "restart" in options.parts:
            self.results["restart"] = serving_restart.restart(options, self._paths["redline"], self._models.shape, say)
        if "turns" in options.parts:
            self.results["turns"] = serving_turns.turns(options, self._paths, self._models.shape, say)

    def _run_together(self):
        """The parts in which all servers run at once."""
        options = self._options
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(server) for server in self.servers()]
            by_name = {server.name: server for server in running}
            for server in running:
                say(f"{server.name}: ready at {server.url}")
            ours, llama = by_name["redline"], by_name.get("llama-server")
            self._scale = self._tokens_per_word(ours)
            say(f"{self._scale:.2f} tokens per word")
            arms_ = self._arms(ours, llama)
            if llama:
                self._agreement(arms_)
            if "questions" in options.parts:
                self.results["questions"] = self.questions(ours)
            if "overhead" in options.parts:
                self.results["overhead"] = serving_overhead.overhead(ours, max(options.concurrency), self._scale, say)
            if "jobs" in options.parts:
                self.results["jobs"] = self.jobs(arms_)
            if "load" in options.parts:
                # What was measured is written if the command is ended.
                rows = self.results["load"] = []
                for row in serving_load.load(options, [*running, *options.url], say):
                    rows.append(row)

    def _tokens_per_word(self, server):
        answer, _ = http_client.post(server.url, "/tokenize", {"prompt": served_jobs.words(400, "scale")})
        return len(answer["tokens"]) / 400

    def _asked(self, job, seed):
        return served_jobs.texts(job, seed, self._scale)

    def questions(self, server):
        """One question and eight, in turns."""
        jobs = [job for job in served_jobs.JOBS if job.kind == "decisions"]
        found = {job.name: {"seconds": [], "usage": None} for job in jobs}
        for number in range(-1, self._options.rounds):
            say(f"questions, round {number + 1} of {self._options.rounds}")
            for job in jobs if number % 2 else jobs[::-1]:
                route, body = served_jobs.redline(job, self._asked(job, f"questions{number}"), self.labels)
                answer, seconds = http_client.post(server.url, route, body)
                if number >= 0:  # the first warms up
                    found[job.name]["seconds"].append(seconds)
                found[job.name]["usage"] = answer["usage"]
        return found

    def jobs(self, arms_):
        """Every job by every arm, in turns."""
        found = {job.name: {name: {"seconds": [], "usage": None} for name in arms_} for job in served_jobs.JOBS}
        for number in range(-1, self._options.rounds):
            say(f"jobs, round {number + 1} of {self._options.rounds}")
            for job in served_jobs.JOBS:
                for name in list(arms_) if number % 2 == 0 else list(arms_)[::-1]:
                    # Two arms of one server get two texts.
                    seed = f"jobs{number}{name if name.endswith(served_jobs.COMPLETION) else ''}"
                    route, body = arms_[name][1](job, self._asked(job, seed))
                    answer, seconds = http_client.post(arms_[name][0].url, route, body)
                    if number >= 0:  # the first warms up
                        found[job.name][name]["seconds"].append(seconds)
                    found[job.name][name]["usage"] = answer.get("usage") if isinstance(answer, dict) else None
        return found

    def _arms(self, ours, llama):
        """How each server is asked, by the name of the arm."""
        found = {"redline": (ours, lambda job, asked: served_jobs.redline(job, asked, self.labels))}
        if llama:
            completion = (llama, lambda job, asked: served_jobs.completion(job, asked, self.labels))
            found |= {"llama-server systemone": (llama, served_jobs.systemone), "llama-server completion": completion}
        return found

    def _agreement(self, arms_):
        """Checks that the servers compute the same: how far the probabilities of a score lie apart."""
        job = next(job for job in served_jobs.JOBS if job.kind == "score")
        rows = []
        for server, ask in arms_.values():
            answer, _ = http_client.post(server.url, *ask(job, self._asked(job, "agreement")))
            rows.append(served_jobs.probabilities(answer, self.labels))
        difference = max(max(column) - min(column) for column in zip(*rows, strict=True))
        spread = statistics.pstdev(rows[0])
        say(f"scores: {difference:.4f} apart at most, standard deviation {spread:.3f}")
        most = min(CLOSE, spread / 2)
        if difference > most:
            raise RuntimeError(f"the servers do not compute the same: scores are {difference:.3f} apart, and at most {most:.3f} is expected")
        self.results["agreement"] = {"difference": difference, "spread": spread}


def prepare(options):
    """The model in the forms that servers read."""
    models = Models(options, say)
    wanted = [arm for arm in arms.ARMS if arm.name in ("redline:w8", "llama.cpp:Q8_0")]
    paths, failed = models.prepare(wanted)
    for arm, why in failed.items():
        raise RuntimeError(f"{arm.name}: {why}")
    found = {arm.engine: path for arm, path in paths.items()}
    return models, found | {"served": models.served_gguf(found["llama.cpp"])}


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    options = arguments()
    # Servers end, and what was measured is written, if the command is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: ended by SIGTERM"))
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    started = document.now()
    models, paths = prepare(options)
    comparison = Comparison(options, models, paths)
    machine, _ = redline.doctor(options.redline)
    head = {"started_at": started, "command": sys.argv, "machine": machine, "model": options.shape}
    head |= {"versions": versions(options), "threads": options.processors}
    try:
        comparison.run()
    finally:
        document.write(options.out / "serving.json", head | comparison.results)
        report = serving_report.Report(comparison.results)
        (options.out / "serving.md").write_text(report.text + "\n", encoding="utf-8")
    print(report.text)
    say(f"results: {options.out}")
    return 1 if report.missed else 0


def versions(options):
    """Versions of the programs."""
    found = {"redline": redline.version(options.redline)}
    if "llama-cpp-python" in options.servers:
        import llama_cpp

        found["llama-cpp-python"] = llama_cpp.__version__
    if "llama-server" in options.servers:
        done = subprocess.run([options.llama_server, "--version"], capture_output=True, text=True, check=False)
        found["llama-server"] = (done.stdout + done.stderr).partition("\n")[0]
    return found


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unavailable, OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
