"""Many decisions: the same numbers in every run, in requests of every size, at every concurrency and after a restart."""

import json
import random

import client
import work
from server import Server

PER_STATE = 50


def states(count, seed):
    """So many states, each with the same number of questions."""
    rng = random.Random(seed)
    return [(work.text(rng, rng.randint(5, 40)), [work.question(rng) for _ in range(PER_STATE)]) for _ in range(count)]


def read(answer):
    """One text for each decision of an answer: numbers exactly as the server wrote them."""
    if not answer.good():
        return None
    document = json.loads(answer.body, parse_float=str)
    pairs = zip(document["answers"], document["diagnostics"], strict=True)
    return [json.dumps(pair) for pair in pairs]


async def decide(server, all_states, size, connections):
    """The decisions for all questions, `size` questions to a request. None stands for each that was not answered."""
    requests, sizes = [], []
    for state, questions in all_states:
        for begin in range(0, len(questions), size):
            part = questions[begin : begin + size]
            requests.append(client.encoded("/v1/decisions", {"input": state, "questions": part}))
            sizes.append(len(part))
    answers = await client.asked(server.port, requests, connections)
    return [decision for answer, many in zip(answers, sizes, strict=True) for decision in read(answer) or [None] * many]


async def run(setting, report):
    all_states = states(20 if setting.quick else 2000, setting.seed)
    count = len(all_states) * PER_STATE
    flags = ["--prefix-cache-dir", setting.scratch / "decisions"]
    report.measured("decisions", count)

    def compare(name, decisions):
        pairs = zip(expected, decisions, strict=True)
        report.equal(f"differing: {name}", sum(old is None or old != new for old, new in pairs), 0)

    with Server(setting, *flags) as server:
        expected = await decide(server, all_states, PER_STATE, 8)
        report.equal("decisions without an answer", expected.count(None), 0)
        report.at_least("different decisions among them", len(set(expected)), count // 10)
        compare("second run", await decide(server, all_states, PER_STATE, 8))
        compare("7 questions per request, 64 connections", await decide(server, all_states, 7, 64))
        compare("1 question per request, 32 connections", await decide(server, all_states, 1, 32))
        server.stop()
    with Server(setting, *flags) as server:
        restarted = await decide(server, all_states, PER_STATE, 16)
        compare("after a restart with its cache directory", restarted)
        metrics = await server.metrics()
        report.measured("cached tokens after the restart", int(metrics["redline_cached_prompt_tokens_total"]))
        report.at_least("pages read from the directory after the restart", int(metrics["redline_disk_pages_read_total"]), 1)
        server.stop()
