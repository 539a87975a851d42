"""The first token of a known prefix after a restart, beside that of an unknown one."""

import tempfile
import time

import http_client
import jobs
import redline
from servers import RedlineServer

PROMPT, ROUNDS = 2000, 3
# Seconds in which pages are written in the background.
WRITING = 5


def restart(options, model, shape, say):
    """Seconds by round, and whether the answers are equal."""
    found = {"known": [], "unknown": [], "cached_tokens": [], "equal": True}
    for number in range(ROUNDS):
        say(f"restart, round {number + 1} of {ROUNDS}")
        known, unknown = (jobs.prompt_ids(PROMPT, shape.vocab, 2 * number + row + 1) for row in range(2))
        with tempfile.TemporaryDirectory() as folder:
            more = ("--prefix-cache-dir", folder)
            with RedlineServer(options.redline, model, options.threads, options.out / "restart.log", more) as server:
                first, _ = _answer(server, known)
                time.sleep(WRITING)
            with RedlineServer(options.redline, model, options.threads, options.out / "restart.log", more) as server:
                _answer(server, jobs.prompt_ids(16, shape.vocab, 99))  # warms up
                again, seconds = _answer(server, known)
                found["known"].append(seconds)
                found["unknown"].append(_answer(server, unknown)[1])
        found["cached_tokens"].append(again["usage"]["prompt_tokens_details"]["cached_tokens"])
        found["equal"] &= first["choices"] == again["choices"]
    return found


def _answer(server, prompt):
    """One new token, with probabilities."""
    body = {"prompt": prompt, "max_tokens": 1, "logprobs": 20, "return_token_ids": True}
    return http_client.post(server.url, "/v1/completions", body)
