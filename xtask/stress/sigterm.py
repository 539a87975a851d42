"""SIGTERM at random moments under load: every admitted request gets its end."""

import asyncio
import random
import re
import signal
import time

import client
import work
from server import Server

CONNECTIONS = 16
DRAIN_TIMES = [0.05, 1, 10]
# Beyond the drain timeout: the end of the last pass, of the connections and of the process.
MARGIN_S = 3
ADMITTED = re.compile(r"admitted requests: (\d+), of which (\d+) are not answered")


async def load(port, rng, answers, ending):
    """Asks one request after the other until the server takes no more."""
    mixed = work.mixed(16, rng.random())
    while True:
        connection = client.Connection(port)
        for _ in range(4):
            request = work.long_generation(rng) if rng.random() < 0.5 else rng.choice(mixed)
            answer = await connection.send(request)
            answers.append(answer)
            if answer.refused and ending.is_set():
                return
        connection.close()


async def one_round(setting, rng, totals):
    """Starts a server, ends it under load, and adds what was seen to the totals."""
    drain = rng.choice(DRAIN_TIMES)
    with Server(setting, "--drain-timeout", drain) as server:
        answers, ending = [], asyncio.Event()
        tasks = [asyncio.create_task(load(server.port, rng, answers, ending)) for _ in range(CONNECTIONS)]
        await asyncio.sleep(rng.random() * 0.5)
        ending.set()
        begin = time.perf_counter()
        server.signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*tasks), client.PATIENCE)
        code = await asyncio.to_thread(server.process.wait, client.PATIENCE)
        over = time.perf_counter() - begin - drain
        said = ADMITTED.search(server.said())
    count(totals, answers)
    totals["longest time beyond the drain timeout"] = max(totals["longest time beyond the drain timeout"], over)
    totals["rounds that did not exit with 0"] += code != 0
    totals["admitted"] += int(said[1]) if said else 0
    totals["admitted and not answered, by the server's count"] += int(said[2]) if said else 1
    # A request that got no byte was not admitted only if the answers account for all that were.
    ends = sum(answer.ended() and (answer.status != 503 or admitted_end(answer)) for answer in answers)
    totals["admitted and without an end, by the client's count"] += max(0, int(said[1]) - ends) if said else 1


def admitted_end(answer):
    """Whether a 503 may be the end of an admitted request, which was cancelled by the end of the server."""
    return b'"draining"' in answer.body


def count(totals, answers):
    """Sorts the answers by how they ended."""
    for answer in answers:
        if answer.status == 0:
            totals["refused: no connection" if answer.refused else "closed before an answer"] += 1
        elif not answer.ended():
            totals["answers that were cut"] += 1
        elif answer.status == 503:
            totals["refused or ended with 503"] += 1
        elif answer.good():
            totals["complete"] += 1
        elif answer.status == 200:
            totals["streams that ended with an error event"] += 1
        else:
            totals["other statuses"] += 1


async def run(setting, report):
    rounds = 12 if setting.quick else 200
    rng = random.Random(setting.seed)
    names = [
        "complete",
        "streams that ended with an error event",
        "refused or ended with 503",
        "refused: no connection",
        "closed before an answer",
        "admitted",
        "answers that were cut",
        "other statuses",
        "admitted and not answered, by the server's count",
        "admitted and without an end, by the client's count",
        "rounds that did not exit with 0",
        "longest time beyond the drain timeout",
    ]
    totals = dict.fromkeys(names, 0)
    for _ in range(rounds):
        await one_round(setting, rng, totals)
    report.measured("rounds", rounds)
    for name in names[:6]:
        report.measured(name, totals[name])
    for name in names[6:11]:
        report.equal(name, totals[name], 0)
    report.at_least("requests complete", totals["complete"], rounds)
    report.at_most(names[11], totals[names[11]], MARGIN_S, "s")
    report.note(f"drain timeouts of {DRAIN_TIMES} s in random order; {CONNECTIONS} connections")
    report.note("a request that was sent on an open connection while the server closed it gets no byte; the count of admitted requests shows that none of these was admitted")
