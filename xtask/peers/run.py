"""Redline beside PyTorch and llama.cpp: GPT-2-124M, f32, prefill and decode, in one interleaved run.

All engines compute the same function from one checkpoint, and their greedy ids are compared before anything is timed.
Samples are taken in the order A B C, C B A, again and again, each between two readings of the read bandwidth, so that
a machine that changes its mood does so for all of them.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import gguf_gpt2
import report
from engines import Job, Peer, Redline
from probe import Probe

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ["redline", "torch", "llama"]
CHECK_PROMPT, CHECK_NEW = 16, 8
# Below this distance between the two largest logits, engines may choose differently.
MARGIN = 1e-3
# The load average, own loading included, above which a warning is due.
BUSY = 1.5


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("--redline", type=Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--model", type=Path, help="a GPT-2 directory in f32; default: `redline synth gpt2`")
    parser.add_argument("--results", type=Path, default=ROOT / "target/peers", help="default: target/peers")
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: all of %(default)s")
    parser.add_argument("--threads", default="1,2", help="thread counts; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of A B C, C B A; default: %(default)s")
    parser.add_argument("--new", type=int, default=128, help="tokens decoded; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="one round, 32 tokens decoded")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    unknown = set(options.engines) - set(ENGINES)
    if unknown:
        parser.error(f"no engine {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    options.threads = [int(count) for count in options.threads.split(",")]
    if options.quick:
        options.rounds, options.new = 1, 32
    if options.rounds < 1 or options.new < 2 or min(options.threads) < 1:
        parser.error("at least 1 round, 2 new tokens and 1 thread are needed")
    return options


def checkpoint(options):
    """The directory that all engines read."""
    if options.model:
        return options.model
    directory = options.results / "gpt2"
    if not (directory / "config.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        say(f"writing {directory}")
        command = [options.redline, "synth", "gpt2", directory, "--format", "f32"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def converted(directory, results):
    """The same weights for llama.cpp, made anew when the checkpoint is newer."""
    path = results / "gpt2-f32.gguf"
    newest = max(file.stat().st_mtime for file in directory.glob("*.safetensors"))
    source = results / "gpt2-f32.source"
    mark = f"{directory.resolve()} {newest}"
    if not path.exists() or not source.exists() or source.read_text() != mark:
        say(f"writing {path}")
        gguf_gpt2.convert(directory, path)
        source.write_text(mark)
    return path


def start(options, directory, vocab):
    """The engines asked for, loaded."""
    engines = []
    for name in options.engines:
        say(f"loading {name}")
        if name == "redline":
            engines.append(Redline(options.redline, directory, vocab))
        else:
            model = converted(directory, options.results) if name == "llama" else directory
            engines.append(Peer(name, model, vocab))
    return engines


def agree(engines, threads):
    """Whether all engines choose the same ids up to the first close call."""
    answers = {engine.name: engine.greedy(CHECK_PROMPT, CHECK_NEW, threads) for engine in engines}
    margins = [margins for _, margins in answers.values() if margins]
    sure = CHECK_NEW
    if margins:
        sure = next((i for i, step in enumerate(zip(*margins)) if min(step) < MARGIN), CHECK_NEW)
    chosen = {name: ids[:sure] for name, (ids, _) in answers.items()}
    same = len({tuple(ids) for ids in chosen.values()}) == 1
    say(f"greedy ids {'agree' if same else 'DIFFER'} over {sure} of {CHECK_NEW} tokens")
    if not same:
        for name, ids in chosen.items():
            say(f"  {name}: {ids}")
    return same and sure > 0


def measure(engines, jobs, options):
    """Samples of every engine, job and thread count, interleaved."""
    probe, results = Probe(), {}
    for threads in options.threads:
        for job in jobs:
            for engine in engines:
                if isinstance(engine, Peer):
                    engine.sample(job, threads)  # warm up; Redline does so itself
            for number in range(options.rounds):
                for engine in engines + engines[::-1]:
                    before = probe.read_bandwidth(threads)
                    value = engine.sample(job, threads)
                    sample = report.Sample(value, before, probe.read_bandwidth(threads))
                    results.setdefault((engine.name, job.name, threads), []).append(sample)
                say(f"{job.name}, {threads} threads: round {number + 1} of {options.rounds}")
    return results


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    options = arguments()
    needs_binary = "redline" in options.engines or not options.model
    if needs_binary and not options.redline.exists():
        say(f"error: no `{options.redline}`\n\nhint: cargo build --release, or --engines torch,llama --model DIR")
        return 1
    options.results.mkdir(parents=True, exist_ok=True)
    directory = checkpoint(options)
    vocab = json.loads((directory / "config.json").read_text())["vocab_size"]
    engines = start(options, directory, vocab)
    jobs = [Job("prefill", 512, 0), Job("decode", 64, options.new)]
    same = agree(engines, max(options.threads))
    if not same:
        say("error: the engines do not compute the same function; nothing was measured")
        return 1
    before = report.machine()
    if before["load_average"] > BUSY:
        say(f"warning: load average {before['load_average']:.1f}: something else runs here, the ratios may mislead")
    results = measure(engines, jobs, options)
    for engine in engines:
        document = report.document(engine, results, jobs, options.threads, directory.name, before)
        report.write(options.results / f"{engine.name}.json", document)
        engine.close()
    print(report.table(results, jobs, options.threads))
    say(f"documents: {options.results}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
