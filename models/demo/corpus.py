"""Public-domain English from Debian packages: fetch, clean, split into training and held-out documents.

A source is an ordered list of documents (a chapter, a dictionary entry). Whole contiguous runs of documents are
held out, so that neither the tokenizer nor the model ever sees a word of a held-out chapter.
"""

import gzip
import random
import re
import struct
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "bible-kjv": "4.38",
    "bible-kjv-text": "4.38",
    "r-cran-janeaustenr": "1.0.0-1",
    "dict-jargon": "4.4.7-3.1",
    "dict-devil": "1.0-13.1",
}

# source -> how many runs of about RUN characters are held out
HELD_OUT_RUNS = {"kjv": 5, "austen": 4, "jargon": 2, "devil": 1}
RUN = 16_000


@dataclass(frozen=True)
class Document:
    source: str
    name: str
    text: str


def fetch(work: Path) -> Path:
    """Downloads the packages with apt-get and unpacks them; returns the folder that then looks like `/`."""
    debs, root = work / "debs", work / "root"
    debs.mkdir(parents=True, exist_ok=True)
    for package, version in PACKAGES.items():
        if list(debs.glob(f"{package}_{version}_*.deb")):
            continue
        got = subprocess.run(["apt-get", "download", f"{package}={version}"], cwd=debs, capture_output=True, text=True)
        if got.returncode != 0:
            raise SystemExit(
                f"error: `apt-get download {package}={version}` failed\n{got.stderr.strip()}\n\n"
                f"hint: on Debian 12 run `apt-get update` first; elsewhere put the .deb files into {debs}"
            )
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    return root


def kjv(root: Path) -> list[Document]:
    """One document per chapter, one verse per line, verse numbers dropped."""
    command = [root / "usr/bin/bible", "-p", root / "usr/lib", "-f", "gen1:1-rev22:21"]
    lines = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    chapters: dict[str, list[str]] = {}
    for line in lines.splitlines():
        where, _, verse = line.partition(" ")
        if verse:
            chapters.setdefault(where.split(":")[0], []).append(tidy(verse))
    return [Document("kjv", name, "\n".join(verses)) for name, verses in chapters.items()]


def austen(root: Path) -> list[Document]:
    """Six novels out of R's lazy-load database; one document per chapter, one paragraph per line."""
    data = (root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    documents, at = [], 0
    while at < len(data):
        inflate = zlib.decompressobj()
        lines = r_strings(inflate.decompress(data[at + 4 :]))
        at = len(data) - len(inflate.unused_data)
        title = lines[0].title()
        body = "\n".join(lines).replace("_", "")
        chapters = re.split(r"(?im)^\s*(?:chapter [ivxlc\d]+\.?|volume [ivxlc\d]+\.?)\s*$", body)[1:]
        for chapter in chapters:
            paragraphs = [tidy(p) for p in re.split(r"\n\s*\n", chapter)]
            text = "\n".join(p for p in paragraphs if p)
            if len(text) > 500:
                documents.append(Document("austen", f"{title} {len(documents)}", text))
    return documents


def r_strings(image: bytes) -> list[str]:
    """A serialised R character vector (XDR, version 3): a header that names the encoding, then the strings."""
    at = 14 + struct.unpack_from(">i", image, 14)[0] + 4
    count = struct.unpack_from(">i", image, at + 4)[0]
    at, strings = at + 8, []
    for _ in range(count):
        length = max(0, struct.unpack_from(">i", image, at + 4)[0])
        strings.append(image[at + 8 : at + 8 + length].decode())
        at += 8 + length
    return strings


def jargon(root: Path) -> list[Document]:
    """One document per entry, `head: body`; pronunciations and cross-reference braces dropped."""
    text = gzip.open(root / "usr/share/dictd/jargon.dict.dz").read().decode()
    text = text[text.index("\n(TM)\n") :]
    documents = []
    for entry in re.split(r"\n\n(?=\S)", text):
        head, _, body = entry.strip().partition("\n")
        body = re.sub(r"[{}]", "", re.sub(r"\A\s*/[^/\n]+/,?", "", body))
        paragraphs = [tidy(p) for p in re.split(r"\n\s*\n", body)]
        prose = [p for p in paragraphs if p and (len(p) < 12 or letters(p) > 0.7)]
        if len(prose) > 1 and len(prose[0]) < 12:
            prose[:2] = [" ".join(prose[:2])]  # the part of speech stands on a line of its own
        if prose:
            documents.append(Document("jargon", head, f"{head}: " + "\n".join(prose)))
    return documents


def devil(root: Path) -> list[Document]:
    """One document per entry of the Devil's Dictionary; verse keeps its lines."""
    text = gzip.open(root / "usr/share/dictd/devil.dict.dz").read().decode("latin-1").replace("_", "")
    text = text[text.index("PREFACE") :]
    documents = []
    for entry in re.split(r"\n\n(?=[A-Z][A-Z' -]+, )", text)[1:]:
        paragraphs = []
        for block in re.split(r"\n\s*\n", entry):
            lines = [block] if not block.startswith("    ") else block.splitlines()
            paragraphs += [tidy(line) for line in lines]
        name = entry.strip().split(",")[0]
        documents.append(Document("devil", name, "\n".join(p for p in paragraphs if p)))
    return documents


PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "–": "-", "…": "...", "\u00a0": " "})


def tidy(text: str) -> str:
    """Plain quotes and dashes, single spaces, one line."""
    return re.sub(r"\s+", " ", text.translate(PLAIN)).strip()


def letters(text: str) -> float:
    return sum(c.isalpha() or c.isspace() for c in text) / len(text)


def split(documents: list[Document], seed: int) -> tuple[list[Document], list[Document]]:
    """(training, held-out): per source, seeded whole runs of consecutive documents are held out."""
    training, held_out = [], []
    for source, wanted in HELD_OUT_RUNS.items():
        runs: list[list[Document]] = [[]]
        for document in (d for d in documents if d.source == source):
            if sum(len(d.text) for d in runs[-1]) >= RUN:
                runs.append([])
            runs[-1].append(document)
        chosen = set(random.Random(f"{seed} {source}").sample(range(len(runs) - 1), wanted))
        for index, run in enumerate(runs):
            (held_out if index in chosen else training).extend(run)
    return training, held_out


def load(work: Path, seed: int) -> tuple[list[Document], list[Document]]:
    root = fetch(work)
    return split(kjv(root) + austen(root) + jargon(root) + devil(root), seed)


def overlap(training: list[Document], held_out: list[Document], words: int = 12) -> float:
    """Share of the held-out runs of `words` words that also stand somewhere in the training text."""
    seen = {gram for d in training for gram in grams(d.text, words)}
    found = Counter(gram in seen for d in held_out for gram in grams(d.text, words))
    return found[True] / max(1, found.total())


def grams(text: str, words: int):
    tokens = re.findall(r"\w+", text.lower())
    return (hash(tuple(tokens[i : i + words])) for i in range(len(tokens) - words + 1))
