"""Redline beside PyTorch on a model that fills masks: parity layer by layer, then pass by pass, then time.

    cargo xtask peers torch [--shape dream-0.5b] [--format w8] [--prompt 32] [--new 128]

1. A checkpoint of the shape with random weights. Its activations in PyTorch (f32) go into a dump, and `redline parity` holds every one
   of Redline's against it (f32).
2. PyTorch (f32) fills a short canvas. From its canvas before every pass, Redline (f32) must fill the same position with the same token,
   unless the call was closer than rounding.
3. Both fill the same canvas by the published algorithm, one mask a pass, in turns A B B A: PyTorch in bf16 (or f32), every step over
   all rows as published; Redline with its exact savings. A turn is a fresh process that loads and warms up.

A document for each, which `redline compare --allow-different-param format` and `redline report` read; the first is run at the end.
"""

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from pathlib import Path

import document
import jobs
import redline
from prepare import state
from probe import Probe
from unavailable import Unavailable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHAPES = ["dream-0.5b", "dream-7b", "llada-8b"]
# Parity is held over so many tokens of prompt, masks and steps; passes over so many tokens and masks.
PARITY, PASSES = (12, 8, 2), (16, 16)
# Two logits or confidences nearer than this may be told apart otherwise by other roundings.
CLOSE = 2e-5


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask peers torch", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, default=SHAPES[0], help="default: %(default)s")
    parser.add_argument("--model", type=Path, help="a Hugging Face directory of Dream or LLaDA instead of a shape")
    parser.add_argument("--format", default="w8", help="of Redline's weights; default: %(default)s")
    parser.add_argument("--torch", choices=["bf16", "f32"], default="bf16", help="PyTorch's type; default: %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompt; default: %(default)s")
    parser.add_argument("--new", type=int, default=128, help="masks behind it, one a pass; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of A B B A; default: %(default)s")
    parser.add_argument("--samples", type=int, default=1, help="runs of a turn; default: %(default)s")
    parser.add_argument("--only", choices=["parity", "time"], help="one part")
    parser.add_argument("--redline", type=Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--work", type=Path, default=ROOT / "target/peers", help="models; default: target/peers")
    parser.add_argument("--out", type=Path, help="documents; default: WORK/results/SHAPE")
    options = parser.parse_args()
    if min(options.threads, options.prompt, options.new, options.rounds, options.samples) < 1:
        parser.error("at least 1 thread, token, mask, round and sample are needed")
    if not options.redline.is_file():
        parser.error(f"no `{options.redline}`\n\nhint: cargo build --release, or --redline PATH")
    if options.model and not (options.model / "config.json").is_file():
        parser.error(f"`{options.model}` holds no config.json")
    options.name = options.model.resolve().name if options.model else options.shape
    # Two directories of one name are two models.
    folder = f"{options.name}-{state(options.model.resolve())}" if options.model else options.name
    options.folder = options.work / folder
    options.out = options.out or options.work / "results" / options.name
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def prepare(options):
    """The checkpoint, and the directory with Redline's weights."""
    options.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = options.model or options.folder / "checkpoint"
    if not checkpoint.exists():
        say(f"writing {checkpoint}")
        redline.synth(options.redline, options.shape, checkpoint)
    converted = options.folder / f"redline-{options.format}"
    if options.format == "bf16":
        converted = checkpoint
    elif not converted.exists():
        say(f"writing {converted}")
        redline.convert(options.redline, checkpoint, converted, options.format)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return checkpoint, converted, config.get("embedding_size") or config["vocab_size"]


def parity(options, checkpoint, vocab):
    """Whether every activation is as PyTorch has it."""
    prompt, masks, steps = PARITY
    dump = options.folder / "parity"
    ids = ",".join(map(str, jobs.prompt_ids(prompt, vocab)))
    script = ROOT / "xtask/reference/parity.py"
    flags = ["--model", checkpoint, "--ids", ids, "--masks", masks, "--steps", steps, "--out", dump]
    say("parity: a dump by PyTorch")
    subprocess.run([sys.executable, script, *map(str, flags)], check=True, stdout=sys.stderr)
    say("parity: Redline against it")
    flags = ["--model", checkpoint, "--format", "f32", "--reference", dump, "--threads", options.threads]
    done = subprocess.run([options.redline, "parity", *map(str, flags)], check=False)
    return done.returncode == 0


def torch_run(options, checkpoint, weights, prompt, new, runs):
    asked = json.dumps({"prompt": prompt, "new": new, "steps": new})
    command = [sys.executable, HERE / "diffusion_worker.py", checkpoint, weights, options.threads, runs]
    done = subprocess.run(list(map(str, command)), input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"PyTorch ended with status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def passes(options, checkpoint, vocab):
    """Whether Redline goes on from every canvas of PyTorch's as PyTorch does."""
    count, new = PASSES
    prompt = jobs.prompt_ids(count, vocab)
    say("passes: PyTorch")
    theirs = torch_run(options, checkpoint, "f32", prompt, new, 1)
    say("passes: Redline")
    # A step of Dream's that fills nothing is no pass of Redline's.
    steps = [step for step in zip(theirs["canvases"], theirs["passes"], theirs["close"], strict=True) if step[1]]
    lines = [json.dumps({"prompt": canvas, "max_new_tokens": 0}) for canvas, _, _ in steps]
    flags = ["--model", checkpoint, "--format", "f32", "--threads", options.threads, "--ignore-eos", "--trace"]
    answers = redline.call(options.redline, "diffuse", *flags, "--jsonl", "-", text="\n".join(lines)).splitlines()
    compared = 0
    for at, ((_, expected, close), answer) in enumerate(zip(steps, answers, strict=True)):
        first = json.loads(answer)["choices"][0]["passes"][0]
        found = sorted(map(list, zip(first["positions"], first["token_ids"], strict=True)))
        if close >= CLOSE and found != expected:
            print(f"pass {at}: Redline fills {found}, PyTorch {expected} (position, token)")
            return False
        compared += close >= CLOSE
    print(f"passes: {compared} of {len(steps)} compared, all equal; the others were calls closer than {CLOSE:g}")
    return compared > 0


class Engine:
    """What was measured of one side."""

    def __init__(self, name, weights):
        self.name, self.weights, self.version = name, weights, None
        self.turns, self.loads, self.bandwidths = [], [], []
        # What the lane says of the last turn, where there is a lane.
        self.lane = {}

    def row(self, options, case):
        seconds = [second for turn in self.turns for second in turn]
        rates = [[options.new / second for second in turn] for turn in self.turns]
        flat = [rate for turn in rates for rate in turn]
        per_pass = [1e3 * second / options.new for second in seconds]
        metrics = {
            "tokens_per_s": document.metric("tokens/s", "higher", flat, rates),
            "seconds": document.metric("s", "lower", seconds, self.turns),
            "ms_per_step": document.metric("ms", "info", per_pass),
            "read_bandwidth": document.metric("GB/s", "info", self.bandwidths),
        }
        if self.loads:
            metrics["load_s"] = document.metric("s", "info", self.loads)
        params = {"model": options.name, "format": self.weights, "threads": options.threads}
        params |= {"prompt_tokens": options.prompt, "new_tokens": options.new, "steps": options.new}
        # Parity is that of both in f32.
        row = {"case": case, "params": params, "metrics": metrics, "checked": options.only != "time"}
        told = ("limit", "share_of_limit", "kernel_path", "digest")
        return row | {name: self.lane.get(name) for name in told}


def redline_turn(options, converted, engine):
    flags = ["--arms", "exact", "--prompt-tokens", options.prompt, "--new-tokens", options.new, "--prompts", 1]
    flags += ["--num-runs", options.samples, "--warmup-runs", 1, "--threads", options.threads, "--model", converted]
    lane = redline.call(options.redline, "bench", "diffusion", "--json", *flags, accept=(0, redline.DISTURBED))
    engine.lane = json.loads(lane)["rows"][0]
    engine.turns.append(engine.lane["metrics"]["seconds"]["samples"])
    engine.version = redline.version(options.redline)


def torch_turn(options, checkpoint, prompt, engine):
    answer = torch_run(options, checkpoint, options.torch, prompt, options.new, options.samples)
    engine.turns.append(answer["seconds"])
    engine.loads.append(answer["load_s"])
    engine.version = answer["version"]


def measure(options, checkpoint, converted, vocab):
    """Writes the documents; what `redline compare` says of them."""
    ours, theirs, probe = Engine("redline", options.format), Engine("torch", options.torch), Probe()
    prompt = jobs.prompt_ids(options.prompt, vocab)
    started = document.now()
    turns = {
        ours.name: lambda: redline_turn(options, converted, ours),
        theirs.name: lambda: torch_turn(options, checkpoint, prompt, theirs),
    }
    order = [ours, theirs, theirs, ours] * options.rounds
    for number, engine in enumerate(order):
        say(f"turn {number + 1} of {len(order)}: {engine.name}")
        engine.bandwidths.append(probe.read_bandwidth(options.threads) / 1e9)
        turns[engine.name]()
    machine, _ = redline.doctor(options.redline)
    case = f"diffuse/p{options.prompt}/n{options.new}/s{options.new}/t{options.threads}"
    options.out.mkdir(parents=True, exist_ok=True)
    paths = []
    for engine in (theirs, ours):
        head = {"schema": document.SCHEMA, "run_id": uuid.uuid4().hex, "started_at": started, "command": sys.argv}
        told = {"engine": {"name": engine.name, "version": engine.version}, "machine": machine, "lane": "peers"}
        paths.append(options.out / f"{engine.name}.json")
        document.write(paths[-1], head | told | {"rows": [engine.row(options, case)]})
        rate = statistics.median(options.new / second for turn in engine.turns for second in turn)
        print(f"{engine.name} {engine.weights}: {rate:.2f} tokens/s, {1e3 / rate:.0f} ms a step")
    say(f"documents: {options.out}")
    # Which is faster is no failure of this command.
    command = [options.redline, "compare", *paths, "--allow-different-param", "format"]
    subprocess.run(list(map(str, command)), check=False)


def main():
    options = arguments()
    checkpoint, converted, vocab = prepare(options)
    equal = True
    if options.only != "time":
        equal = parity(options, checkpoint, vocab) and passes(options, checkpoint, vocab)
        if not equal:
            say("error: the two do not compute the same function; nothing was measured")
            return 1
    if options.only != "parity":
        measure(options, checkpoint, converted, vocab)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as error:
        sys.exit(f"error: {error}")
    except (OSError, ValueError, RuntimeError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        sys.exit(f"error: {error}")
