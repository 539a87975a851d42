"""A process that was stopped goes on where it was; SIGSTOP stops all of it, so that it can say nothing meanwhile."""

import asyncio
import random
import signal

import client
import work
from comparison import differing, references
from server import Server


async def run(setting, report):
    rounds = 3 if setting.quick else 20
    rng = random.Random(setting.seed)
    requests = [work.long_generation(rng) for _ in range(16)]
    with Server(setting) as server:
        expected = references(report, await client.asked(server.port, requests, 1))
        different = not_ready = 0
        for turn in range(rounds):
            under = asyncio.create_task(client.asked(server.port, requests, 8))
            await asyncio.sleep(rng.random() * 0.1)
            server.signal(signal.SIGSTOP)
            # Once longer than the watchdog's 4 s.
            await asyncio.sleep(6 if turn == 0 else rng.random())
            server.signal(signal.SIGCONT)
            different += differing(report, f"stop {turn + 1}", expected, await under)
            not_ready += (await client.get(server.port, "/ready")).status != 200
        report.measured("times stopped", rounds)
        report.equal("answers that differ", different, 0)
        report.equal("not ready afterwards", not_ready, 0)
        report.equal("exit code", server.stop(), 0)
    report.note("an engine that is frozen while the rest of the server runs is a test of redline-server (tests/it/watchdog.rs), not a scenario")
