"""The same requests alone, under 64-way mixed load, and alone again: the same bytes."""

import random

import client
import work
from comparison import compare, references
from server import Server

CONNECTIONS = 64


async def run(setting, report):
    count = 160 if setting.quick else 2000
    requests = work.mixed(count, setting.seed)
    with Server(setting) as server:
        alone = await client.asked(server.port, requests, 1)
        server.stop()
    report.measured("requests", count)
    expected = references(report, alone)
    # A fresh server, so that other prefixes are cached at other times.
    with Server(setting) as server:
        for turn in range(1 if setting.quick else 3):
            order = list(range(count))
            random.Random(setting.seed + turn).shuffle(order)
            loaded = await client.asked(server.port, [requests[index] for index in order], CONNECTIONS)
            wanted = [expected[index] for index in order]
            compare(report, f"answers under load that differ, turn {turn + 1}", wanted, loaded)
        again = await client.asked(server.port, requests, 1)
        compare(report, "answers alone after the load that differ", expected, again)
        metrics = await server.metrics()
        running = metrics['redline_passes_total{kind="mixed"}']
        report.at_least("passes with prompts and new tokens together", int(running), 1)
        server.stop()
    report.note("of ids, times (`created`) and cached tokens, only the presence is compared; everything else, also the events of streams, byte for byte")
