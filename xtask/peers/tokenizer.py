"""Measures Hugging Face's Python package `tokenizers` on a file of texts, for `redline bench tokenizer --python-csv`.

    python xtask/peers/tokenizer.py --tokenizer tokenizer.json --input-file F --threads 1,2,4,8 --output python.csv
    redline bench tokenizer --tokenizer tokenizer.json --input-file F --python-csv python.csv

Each number of threads has a process of its own, since the package takes it from the environment. What is timed is
`encode_batch` alone, which finds the offsets too: ids become lists of Python afterwards. The file has a line per repeat, with a digest of the ids that
Redline compares with its own.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

COLUMNS = ["threads", "texts", "bytes", "tokens", "seconds", "digest", "version"]


def texts_of(data):
    """The texts of a file as Redline reads it: lines end with LF or CR LF, and empty ones are left out."""
    *lines, rest = data.decode("utf-8").split("\n")
    return [text for text in [*(line.removesuffix("\r") for line in lines), rest] if text]


def digest(all_ids):
    """FNV-1a, 64 bits, of the ids as little-endian 32-bit numbers, text after text."""
    value = 0xCBF29CE484222325
    for ids in all_ids:
        for byte in b"".join(number.to_bytes(4, "little") for number in ids):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def environment(threads):
    """What makes the package use so many threads."""
    return {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}


def rows(threads, texts, measured):
    """The lines of one process."""
    size = sum(len(text.encode("utf-8")) for text in texts)
    found = [measured["digest"], measured["version"]]
    return [[threads, len(texts), size, measured["tokens"], seconds, *found] for seconds in measured["seconds"]]


def measure(options):
    """Times every repeat, after one that does not count."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(options.tokenizer))
    # Redline cuts and adds nothing silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = texts_of(options.input_file.read_bytes())
    encoded = tokenizer.encode_batch(texts)
    seconds = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        encoded = tokenizer.encode_batch(texts)
        seconds.append(time.perf_counter() - start)
    ids = [one.ids for one in encoded]
    tokens = sum(len(one) for one in ids)
    return {"seconds": seconds, "tokens": tokens, "digest": digest(ids), "version": tokenizers.__version__}


def counts(text):
    """`1,2,4` as numbers."""
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="FILE", help="a tokenizer.json")
    parser.add_argument("--input-file", type=Path, required=True, metavar="FILE", help="texts, one per line")
    parser.add_argument("--threads", type=counts, default=[1, 2, 4, 8], metavar="N,..", help="default: 1,2,4,8")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="timed calls; default: 10")
    parser.add_argument("--output", type=Path, metavar="CSV", help="the file to write")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser


def main():
    options = parser().parse_args()
    if options.repeats < 1:
        sys.exit(f"error: {options.repeats} repeats measure nothing\n\nhint: --repeats 10")
    if options.measure:
        print(json.dumps(measure(options)))
        return
    if options.output is None:
        sys.exit("error: no file to write\n\nhint: --output python.csv")
    try:
        texts = texts_of(options.input_file.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"error: {error}\n  in `{options.input_file}`")
    if not texts:
        sys.exit(f"error: no line holds a text\n  in `{options.input_file}`")
    lines = []
    for threads in options.threads:
        call = [sys.executable, __file__, *sys.argv[1:], "--measure"]
        done = subprocess.run(call, env=os.environ | environment(threads), stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"error: the process with {threads} threads ended with {done.returncode}")
        measured = json.loads(done.stdout)
        lines += rows(threads, texts, measured)
        rate = measured["tokens"] / statistics.median(measured["seconds"])
        print(f"{threads} threads: {rate:.0f} tokens/s, median of {options.repeats}", file=sys.stderr)
    with options.output.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


if __name__ == "__main__":
    main()
