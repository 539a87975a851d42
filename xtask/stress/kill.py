"""kill -9 at random moments, also of the start: the next server is ready, and its answers are the same."""

import asyncio
import random
import signal

import client
import work
from comparison import differing, references
from server import NotReady, Server

# The target of a start, and how long it is waited for.
READY_S = 15
WAIT_S = 60


async def ask(server, requests):
    """Asks without a pause while the server runs. Returns how many answers were cut."""
    cut = 0
    while server.process.poll() is None:
        answers = await client.asked(server.port, requests, 16)
        cut += sum(not answer.complete and not answer.refused for answer in answers)
    return cut


async def run(setting, report):
    rounds = 6 if setting.quick else 50
    rng = random.Random(setting.seed)
    probe = work.mixed(24, setting.seed)
    load = work.mixed(400, setting.seed + 1)
    caches = ["--plan-cache", setting.scratch / "killed-plans", "--plan-policy", "tune", "--prefix-cache-dir", setting.scratch / "killed"]
    with Server(setting) as server:
        expected = references(report, await client.asked(server.port, probe, 1))
        server.stop()
    starts, failures, different, reported, kills, early, read = [], 0, 0, 0, 0, 0, 0
    for turn in range(rounds):
        server = Server(setting, *caches)
        try:
            starts.append(await asyncio.wait_for(asyncio.to_thread(server.listening), WAIT_S))
        except (NotReady, TimeoutError) as error:
            failures += 1
            report.note(f"not ready in round {turn + 1}: {error or f'nothing was said in {WAIT_S} s'}")
            server.__exit__()
            continue
        with server:
            ready = await client.get(server.port, "/ready")
            failures += ready.status != 200
            answers = await client.asked(server.port, probe, 8)
            different += differing(report, f"round {turn + 1}", expected, answers)
            read += int((await server.metrics())["redline_disk_pages_read_total"])
            rng.shuffle(load)
            under = asyncio.create_task(ask(server, load))
            await asyncio.sleep(rng.random())
            server.signal(signal.SIGKILL)
            await asyncio.to_thread(server.process.wait)
            cut = await under
            kills += cut > 0 and server.process.returncode == -signal.SIGKILL
            reported += "damaged" in server.said()
        # Another one is killed while it starts.
        with_start = Server(setting, *caches)
        await asyncio.sleep(rng.random() * 0.05)
        with_start.signal(signal.SIGKILL)
        with_start.__exit__()
        early += 1
    # A kill at the very beginning of its load may find no request.
    report.at_least("kills while requests ran", kills, rounds - max(1, rounds // 10))
    report.measured("kills at the start", early)
    report.equal("starts that were not ready", failures, 0)
    report.at_most("longest time until ready", max(starts, default=float("nan")), READY_S, "s")
    report.equal("answers that differ", different, 0)
    report.measured("starts that reported a damaged file", reported)
    plans = list((setting.scratch / "killed-plans").rglob("*"))
    report.at_least("files in the plan cache", sum(path.is_file() for path in plans), 1)
    report.at_least("pages read from the prefix cache's directory", read, 1)
