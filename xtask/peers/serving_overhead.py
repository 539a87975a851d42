"""What the server adds to the time of its engine.

One request at a time: the time that the client sees, less the engine's own time of the same request. The engine's is the difference of
`redline_engine_request_seconds` in `/metrics` before and after, which is read while nothing else runs. The client's own cost is in it; the
time of `GET /health`, which computes nothing, shows how much that is at most.

Many streams at once: threads that do not compute take processor time from those that do, and passes may have to wait. Both are
read from outside: processor time by thread from /proc, and time in passes from `/metrics`. Their sum bounds the throughput that is lost.
"""

import contextlib
import re
import time

import http_client
import served_jobs

SAMPLES, WARM = 40, 5
NEW = 64
RUNS = 3
ENGINE = "redline_engine_request_seconds"
LINE = re.compile(r"([a-z0-9_]+)(?:\{[^}]*\})? ([0-9.eE+-]+)")


def totals(text):
    """Sums over labels, by name."""
    found = {}
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match:
            found[match[1]] = found.get(match[1], 0.0) + float(match[2])
    return found


def overhead(server, streams, scale, say):
    """Seconds by request, and shares by run."""
    say("overhead: one request at a time")
    connection = http_client.Connection(server.url)
    found = {"health": [connection.get("/health")[1] for _ in range(WARM + SAMPLES)][WARM:]}
    for name, ask in {"completion": _completion, "score": _score}.items():
        rows = [_alone(connection, *ask(f"{name}{number}")) for number in range(WARM + SAMPLES)][WARM:]
        found[name] = rows
    connection.close()
    say(f"overhead: {streams} streams")
    found["streams"] = [_together(server, streams, scale, number) for number in range(-1, RUNS)][1:]
    return found


def _completion(seed):
    return "/v1/completions", {"prompt": served_jobs.words(8, seed), "max_tokens": 1}


def _score(seed):
    body = {"query": served_jobs.words(8, seed), "items": [" and"], "label_token_ids": [34, 35], "apply_softmax": True}
    return "/v1/score", body


def _alone(connection, route, body):
    """The seconds of one request: as the client sees them, and those of the engine."""
    before = totals(connection.get("/metrics")[0])
    _, seconds = connection.post(route, body)
    for _ in range(100):
        after = totals(connection.get("/metrics")[0])
        ran, engine = (after[f"{ENGINE}_{what}"] - before[f"{ENGINE}_{what}"] for what in ("count", "sum"))
        if ran == 1:
            return {"client": seconds, "engine": engine}
        time.sleep(0.01)
    raise RuntimeError(f"`{ENGINE}` counts {ran:.0f} requests after one")


def _metrics(server):
    """The totals, over a connection of its own: servers close those that wait as long as the streams take."""
    with contextlib.closing(http_client.Connection(server.url)) as connection:
        return totals(connection.get("/metrics")[0])


def _together(server, streams, scale, number):
    """A closed batch of streams: shares of processor time and of the time."""
    words = round(128 / scale)
    bodies = [
        {"prompt": served_jobs.words(words, f"stream{number}/{row}"), "max_tokens": NEW, "ignore_eos": True}
        for row in range(streams)
    ]
    before, cpu, own = _metrics(server), server.cpu_seconds(), time.process_time()
    start = time.perf_counter()
    answers = http_client.stream_all(server.url, "/v1/completions", bodies)
    span = time.perf_counter() - start
    own, spent = time.process_time() - own, [b - a for a, b in zip(cpu, server.cpu_seconds())]
    after = _metrics(server)
    passes = after["redline_pass_seconds_total"] - before["redline_pass_seconds_total"]
    tokens = after["redline_generation_tokens_total"] - before["redline_generation_tokens_total"]
    return {
        "seconds": span,
        "passes": passes,
        "engine_cpu": spent[0],
        "other_cpu": spent[1],
        "client_cpu": own,
        "tokens": tokens,
        "events": sum(answers),
    }
