"""Flipped bits in every file of the caches, directories that cannot be written, and a full disk: the same answers."""

import errno
import os
import random
import shutil
import subprocess

import client
import work
from comparison import differing, references
from server import Server

# The caches: the flags that keep one in a directory, and how the server says that it could not write there.
CACHES = {
    "plan cache": (lambda folder: ["--plan-cache", folder, "--plan-policy", "tune"], "warning: a plan is not stored"),
    "prefix cache": (lambda folder: ["--prefix-cache-dir", folder], "warning: a page is not stored"),
}
# File systems on which nothing can be stored: the option of the mount, what is done before the server starts, and the error.
FAULTS = {
    "that cannot be written": ("ro,size=64k", "", errno.EROFS),
    "on a full disk": ("size=64k", '{ cat /dev/zero > "$0/full"; } 2> /dev/null;', errno.ENOSPC),
}


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
        different += differing(report, f"{name}, turn {turn + 1}", expected, answers) + (code != 0)
        told += any(word in said for word in ("damaged", "checksum", "cannot be read"))
    report.at_least(f"{name}: files damaged", files, 1)
    report.equal(f"{name}: answers that differ", different, 0)
    report.equal(f"{name}: starts that reported the damage", told, turns)


async def mounted(setting, report, cache, fault, probe, expected):
    """Answers with a directory on a file system of its own, in a mount namespace that only the server sees.

    Every attempt to store something there fails, for root too; the server must say that it failed for this reason.
    """
    flags, told = CACHES[cache]
    option, script, number = FAULTS[fault]
    name = f"{cache} {fault}"
    folder = setting.scratch / name.replace(" ", "-")
    folder.mkdir()
    # Others must not write to the directory: what they could write, the prefix cache does not use.
    script = f'mount -t tmpfs -o mode=700,{option} tmpfs "$0" || exit 1; {script} exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    prefix = ["unshare", *user, "--mount", "sh", "-c", script, folder]
    tried = subprocess.run([*map(str, prefix), "true"], capture_output=True, text=True) if shutil.which("unshare") else None
    if tried is None or tried.returncode:
        report.note(f"{name}: not done, because this user may not mount: {tried.stderr.strip() if tried else 'no unshare'}")
        return
    answers, code, said = await answered(setting, probe, *flags(folder), prefix=prefix)
    report.equal(f"{name}: answers that differ", differing(report, name, expected, answers) + (code != 0), 0)
    report.at_least(f"{name}: warnings that tell of it", said.count(f"{told}: {os.strerror(number)}"), 1)


async def run(setting, report):
    probe = work.mixed(48 if setting.quick else 200, setting.seed)
    answers, code, _ = await answered(setting, probe)
    report.equal("exit code", code, 0)
    expected = references(report, answers)
    for cache, (flags, _) in CACHES.items():
        name = f"flipped-{cache.replace(' ', '-')}"
        await flipped(setting, report, name, flags(setting.scratch / name), probe, expected)
    for cache in CACHES:
        for fault in FAULTS:
            await mounted(setting, report, cache, fault, probe, expected)
