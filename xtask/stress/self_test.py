"""Runs scenarios against servers with a fault: each must miss a target, and none without one."""

import dataclasses

# The faults of `faulty.py` that a scenario must find.
FINDS = {
    "determinism": ["digits"],
    "decisions": ["digits"],
    "overload": ["slow-refusals", "no-retry-after", "memory", "fewer-answers"],
    "clients": ["crowded"],
    "disconnects": ["files", "deaf"],
    "sigterm": ["cut"],
    "kill": ["digits", "no-start"],
    "damage": ["digits", "silent"],
    "frozen": ["digits"],
}


def run(run_one, setting, scenarios):
    """Runs the named scenarios, quickly. Returns the exit code."""
    wrong = []
    for name in scenarios:
        for fault in ["none", *FINDS[name]]:
            report = run_one(name, dataclasses.replace(setting, fault=fault, quick=True))
            if report.passed() != (fault == "none"):
                wrong.append(f"{name} with the fault `{fault}`")
            elif report.error is not None:
                wrong.append(f"{name} with the fault `{fault}` ended with an error instead of a missed target")
    print(f"\n{'WRONG: ' + ', '.join(wrong) if wrong else 'every fault was found, and none where there is none'}")
    return 1 if wrong else 0
