"""The same requests alone, under 64-way mixed load, and alone again: the same bytes."""

import random
import re

import client
import work
from server import Server

CONNECTIONS = 64


def differing(expected, answers):
    """How many answers differ from what they must be."""
    return sum(work.same(answer) != wanted for answer, wanted in zip(answers, expected, strict=True))


def compare(report, name, expected, answers):
    """Reports how many answers differ, which must be none, and how."""
    report.equal(name, differing(expected, answers), 0)
    explain(report, name, expected, answers)


def explain(report, name, expected, answers):
    """Reports how many of the answers that differ do so only in the order of their events, and shows the first that differs."""
    reordered = sum(only_reordered(wanted, work.same(answer)) for answer, wanted in zip(answers, expected, strict=True))
    if reordered:
        report.measured(f"{name}: only in the order of events of different choices", reordered)
    for place, (wanted, answer) in enumerate(zip(expected, answers, strict=True)):
        found = work.same(answer)
        if found != wanted:
            report.note(f"{name}: the first is number {place}; {difference(wanted, found)}")
            return


def only_reordered(wanted, found):
    """Whether two different answers are streams in which every choice has the same events in the same order."""
    return wanted != found and wanted[0] == found[0] and by_choice(wanted[1]) == by_choice(found[1])


def by_choice(body):
    """The events of a stream, those of each choice together. Other bodies are one event."""
    index = re.compile(rb'"choices":\[\{"index":(\d+)')
    # Events of no choice, such as the usage, stand behind the choices.
    return sorted(body.split(b"\n\n"), key=lambda event: int(found[1]) if (found := index.search(event)) else 1 << 32)


def difference(wanted, found):
    """Where two answers begin to differ."""
    if wanted[0] != found[0]:
        return f"its status is {found[0]} instead of {wanted[0]}: {found[1][:200].decode(errors='replace')}"
    pairs = enumerate(zip(wanted[1], found[1], strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(wanted[1]), len(found[1])))
    here, there = (bytes(text[max(0, at - 40) : at + 40]).decode(errors="replace") for text in (found[1], wanted[1]))
    return f"{here!r} instead of {there!r}"


async def run(setting, report):
    count = 160 if setting.quick else 2000
    requests = work.mixed(count, setting.seed)
    with Server(setting) as server:
        alone = await client.asked(server.port, requests, 1)
        server.stop()
    expected = [work.same(answer) for answer in alone]
    report.measured("requests", count)
    report.equal("requests that failed alone", sum(not answer.good() for answer in alone), 0)
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
