"""Puts `redline serve` through overload and faults, and compares what it measures with targets.

Every scenario starts servers of its own with the demo model on free ports of 127.0.0.1. The exit code is 1 if a target is missed.
"""

import argparse
import asyncio
import dataclasses
import itertools
import json
import os
import pathlib
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import busy
import damage
import decisions
import determinism
import disconnects
import frozen
import kill
import overload
import self_test
import sigterm
import slow_clients
from report import Report

ROOT = pathlib.Path(__file__).parents[2]
SCENARIOS = {
    "determinism": determinism.run,
    "decisions": decisions.run,
    "overload": overload.run,
    "clients": slow_clients.run,
    "disconnects": disconnects.run,
    "sigterm": sigterm.run,
    "kill": kill.run,
    "damage": damage.run,
    "frozen": frozen.run,
}


@dataclasses.dataclass
class Setting:
    """What all scenarios are given."""

    redline: pathlib.Path
    quick: bool
    seed: int
    threads: int
    # The cores that this process may use.
    cores: int
    scratch: pathlib.Path
    # The fault of `faulty.py` that the proxy in front of every server has. None: no proxy.
    fault: str | None = None
    numbers: itertools.count = dataclasses.field(default_factory=itertools.count)

    def number(self):
        return next(self.numbers)

    def command(self, number):
        """What starts server number `number`: the binary itself, or the proxy that adds a fault."""
        if self.fault is None:
            return [self.redline]
        proxy = pathlib.Path(__file__).with_name("faulty.py")
        return [sys.executable, "-B", proxy, self.fault, f"{self.seed}-{number}", self.redline]


def arguments(cores):
    parser = argparse.ArgumentParser(prog="cargo xtask stress", description=__doc__.splitlines()[0])
    parser.add_argument("--redline", type=pathlib.Path, default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--only", choices=list(SCENARIOS), action="append", help="one scenario (repeatable)")
    parser.add_argument("--quick", action="store_true", help="much less of everything: shows that it works, not how well")
    parser.add_argument("--self-test", action="store_true", help="run the scenarios against servers with a fault that they must find")
    parser.add_argument("--seed", type=int, default=0, help="seed of requests and moments (0)")
    parser.add_argument("--threads", type=int, default=max(1, cores - 1), help="threads of the server in scenarios that measure times; default: one core is left to HTTP and the client")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures to this file as JSON")
    return parser.parse_args()


def run_one(name, setting):
    """Runs a scenario. What it raises is its error."""
    report = Report(name)
    setting = dataclasses.replace(setting, scratch=pathlib.Path(tempfile.mkdtemp(dir=setting.scratch)), numbers=itertools.count())
    others = busy.cores(0.5)
    begin = time.perf_counter()
    try:
        asyncio.run(SCENARIOS[name](setting, report))
    except Exception as error:
        traceback.print_exc()
        report.error = f"{type(error).__name__}: {error}"
    report.seconds = time.perf_counter() - begin
    if others > 0.1:
        report.note(f"other processes took {others:.1f} cores before it began: do not trust its times")
    shutil.rmtree(setting.scratch)
    print("\n".join(["", *report.lines()]), flush=True)
    return report


def machine(setting):
    version = subprocess.run([setting.redline, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"cores": setting.cores, "system": platform.platform(), "python": platform.python_version(), "redline": version}


def main():
    cores = len(os.sched_getaffinity(0))
    given = arguments(cores)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory(prefix="redline-stress-") as scratch:
        setting = Setting(given.redline.resolve(), given.quick, given.seed, given.threads, cores, pathlib.Path(scratch))
        about = machine(setting)
        print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
        if given.self_test:
            return self_test.run(run_one, setting, given.only or SCENARIOS)
        reports = [run_one(name, setting) for name in given.only or SCENARIOS]
        if given.output:
            document = {"schema": "redline.stress/1", "quick": given.quick, "seed": given.seed, "machine": about}
            document["scenarios"] = [report.document() for report in reports]
            given.output.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    failed = [report.name for report in reports if not report.passed()]
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all passed'}{' (quick: figures show only that it works)' if given.quick else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
