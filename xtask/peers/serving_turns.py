"""A chat of eight turns over a long prefix: the time to the first token of each turn, and how many tokens it computes.

A prompt is all that was said before, the server's own answers included, as ids. Servers take turns, each with a process of its own.
"""

import contextlib
import http.client
import json
import time
from urllib.parse import urlsplit

import jobs
from servers import LlamaServer, RedlineServer

PREFIX, TURNS, QUESTION, ANSWER, ROUNDS = 4000, 8, 60, 32, 2
CONTEXT = 8192


def turns(options, paths, shape, say):
    """Seconds to the first token and tokens that were computed, by server, round and turn."""
    found = {}
    for number in range(ROUNDS):
        for name in options.servers if number % 2 == 0 else options.servers[::-1]:
            if name in ASK:
                say(f"turns, round {number + 1} of {ROUNDS}: {name}")
                with _server(name, options, paths) as server:
                    rows = _chat(server, ASK[name], shape.vocab, number)
                for key, values in zip(("seconds", "computed"), zip(*rows, strict=True), strict=True):
                    found.setdefault(name, {}).setdefault(key, []).append(list(values))
    return found | {"new": QUESTION + ANSWER}


def _server(name, options, paths):
    log = options.out / f"turns-{name}.log"
    if name == "redline":
        return RedlineServer(options.redline, paths["redline"], options.threads, log)
    # With its default cache of prompts: the last of two flags counts.
    return LlamaServer(options.llama_server, paths["served"], options.processors, log, 1, CONTEXT, ("--cache-ram", 8192))


def _chat(server, ask, vocab, seed):
    """Rows of seconds and computed tokens."""
    ask(server, jobs.prompt_ids(16, vocab, 1000 + seed))  # warms up
    said, rows = jobs.prompt_ids(PREFIX, vocab, 2000 + seed), []
    for turn in range(TURNS):
        said = said + jobs.prompt_ids(QUESTION, vocab, 3000 + 100 * seed + turn)
        seconds, computed, answer = ask(server, said)
        if len(answer) != ANSWER:
            raise RuntimeError(f"{server.name} answered {len(answer)} of {ANSWER} tokens")
        said = said + answer
        rows.append((seconds, computed))
    return rows


def _redline(server, prompt):
    body = {"prompt": prompt, "max_tokens": ANSWER, "return_token_ids": True, "ignore_eos": True}
    seconds, events = _stream(server, "/v1/completions", body | {"stream_options": {"include_usage": True}})
    ids = [token for event in events for choice in event["choices"] for token in choice.get("token_ids") or []]
    usage = next(event["usage"] for event in events if event.get("usage"))
    return seconds, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], ids


def _llama(server, prompt):
    body = {"prompt": prompt, "n_predict": ANSWER, "return_tokens": True, "ignore_eos": True, "temperature": 0}
    seconds, events = _stream(server, "/completion", body | {"cache_prompt": True})
    ids = [token for event in events for token in event.get("tokens", [])]
    return seconds, events[-1]["timings"]["prompt_n"], ids


ASK = {"redline": _redline, "llama-server": _llama}


def _stream(server, path, body):
    """Seconds to the first event, and all events."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=600)) as connection:
        connection.connect()
        data, first, events = json.dumps(body | {"stream": True}).encode(), None, []
        start = time.perf_counter()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"POST {path}: status {answer.status}: {answer.read(400).decode(errors='replace')}")
        for line in answer:
            if line.startswith(b"data: ") and b"[DONE]" not in line:
                first = first or time.perf_counter() - start
                events.append(json.loads(line[6:]))
    return first, events
