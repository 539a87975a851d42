"""kill -9 at random moments, also of the start: the next server is ready, and its answers are the same."""

import asyncio
import random
import signal

import client
import work
from determinism import differing, explain
from server import NotReady, Server

READY_S = 15


async def run(setting, report):
    rounds = 6 if setting.quick else 50
    rng = random.Random(setting.seed)
    probe = work.mixed(24, setting.seed)
    load = work.mixed(400, setting.seed + 1)
    caches = ["--plan-cache", setting.scratch / "killed-plans", "--plan-policy", "tune", *setting.cache_flags("killed")]
    with Server(setting) as server:
        expected = [work.same(answer) for answer in await client.asked(server.port, probe, 1)]
        server.stop()
    starts, failures, different, reported, early, read = [], 0, 0, 0, 0, 0
    for _ in range(rounds):
        server = Server(setting, *caches)
        try:
            starts.append(await asyncio.wait_for(asyncio.to_thread(server.listening), READY_S))
        except (NotReady, TimeoutError) as error:
            failures += 1
            report.note(f"not ready: {error}")
            server.__exit__()
            continue
        with server:
            ready = await client.get(server.port, "/ready")
            failures += ready.status != 200
            answers = await client.asked(server.port, probe, 8)
            different += differing(expected, answers)
            explain(report, f"round {len(starts)}", expected, answers)
            read += int((await server.metrics()).get("redline_disk_pages_read_total", 0))
            rng.shuffle(load)
            under = asyncio.create_task(client.asked(server.port, load, 16))
            await asyncio.sleep(rng.random())
            server.signal(signal.SIGKILL)
            await asyncio.to_thread(server.process.wait)
            under.cancel()
            await asyncio.gather(under, return_exceptions=True)
            reported += "damaged" in server.said()
        # Another one is killed while it starts.
        with_start = Server(setting, *caches)
        await asyncio.sleep(rng.random() * 0.05)
        with_start.signal(signal.SIGKILL)
        with_start.__exit__()
        early += 1
    report.measured("kills under load", rounds)
    report.measured("kills at the start", early)
    report.equal("starts that were not ready", failures, 0)
    report.at_most("longest time until ready", max(starts, default=float("nan")), READY_S, "s")
    report.equal("answers that differ", different, 0)
    report.measured("starts that told of a damaged file", reported)
    plans = list((setting.scratch / "killed-plans").rglob("*"))
    report.at_least("files in the plan cache", sum(path.is_file() for path in plans), 1)
    if setting.prefix_cache_dir:
        report.at_least("pages read from the prefix cache's directory", read, 1)
    else:
        report.note("this binary has no --prefix-cache-dir: only the plan cache was on")
