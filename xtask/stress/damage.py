"""Flipped bits in every file of the caches, directories that cannot be written, and a full disk: the same answers."""

import random
import shutil
import subprocess

import client
import work
from determinism import differing, explain
from server import Server

TUNE = ["--plan-policy", "tune"]


def flip(folder, rng):
    """Flips a random bit of every file. Returns how many files there are."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    for path in files:
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    return len(files)


async def answered(setting, probe, *flags, prefix=()):
    """The answers of a server with these flags, which then ends, and what it said."""
    with Server(setting, *flags, prefix=prefix) as server:
        answers = await client.asked(server.port, probe, 4)
        code = server.stop()
    return answers, code, server.said()


async def flipped(setting, report, name, flags, probe, expected):
    """Fills the directory `name`, damages it again and again, and compares the answers each time.

    The name, which the server may print, must hold none of the words that tell of damage.
    """
    folder = setting.scratch / name
    await answered(setting, probe, *flags)
    rng = random.Random(setting.seed)
    files = different = told = 0
    turns = 2 if setting.quick else 10
    for turn in range(turns):
        files += flip(folder, rng)
        answers, code, said = await answered(setting, probe, *flags)
        different += differing(expected, answers) + (code != 0)
        explain(report, f"{name}, turn {turn + 1}", expected, answers)
        told += any(word in said for word in ("damaged", "checksum", "cannot be read"))
    report.at_least(f"{name}: files damaged", files, 1)
    report.equal(f"{name}: answers that differ", different, 0)
    report.equal(f"{name}: starts that told of the damage", told, turns)


async def mounted(setting, report, name, option, flags, probe, expected):
    """Answers with a directory on a file system of its own, in a mount namespace that only the server sees."""
    folder = setting.scratch / name
    folder.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o {option} tmpfs "$0" && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, folder]
    tried = subprocess.run([*map(str, prefix), "true"], capture_output=True, text=True) if shutil.which("unshare") else None
    if tried is None or tried.returncode:
        report.note(f"{name}: not done, because this user may not mount: {tried.stderr.strip() if tried else 'no unshare'}")
        return
    answers, code, said = await answered(setting, probe, *flags(folder), prefix=prefix)
    report.equal(f"{name}: answers that differ", differing(expected, answers) + (code != 0), 0)
    explain(report, name, expected, answers)
    report.measured(f"{name}: lines of the log", len(said.splitlines()))


async def run(setting, report):
    probe = work.mixed(48 if setting.quick else 200, setting.seed)
    plans = setting.scratch / "flipped-plans"
    expected = [work.same(answer) for answer in (await answered(setting, probe))[0]]
    await flipped(setting, report, plans.name, ["--plan-cache", plans, *TUNE], probe, expected)
    caches = {"plan cache": lambda folder: ["--plan-cache", folder, *TUNE]}
    if setting.prefix_cache_dir:
        await flipped(setting, report, "flipped-prefixes", setting.cache_flags("flipped-prefixes"), probe, expected)
        caches["prefix cache"] = lambda folder: ["--prefix-cache-dir", folder]
    else:
        report.note("this binary has no --prefix-cache-dir: only the plan cache was damaged")
    for cache, flags in caches.items():
        await mounted(setting, report, f"{cache} that cannot be written", "ro,size=64k", flags, probe, expected)
        await mounted(setting, report, f"{cache} on a full disk", "size=8k", flags, probe, expected)
