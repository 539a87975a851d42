"""guidellm, which puts a server under load: no request fails, and it counts the tokens that the server counts.

It makes its prompts from words, with the tokenizer of the demo model, so it needs no other machine.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

from server import ROOT, idle_metrics

TOKENIZER = ROOT / "models/demo"
REQUESTS = 24
AT_ONCE = 4
PROMPT_TOKENS = 32
NEW_TOKENS = 16


def check_guidellm(url, _):
    for route in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        before = idle_metrics(url)
        benchmark = guidellm(url, route)
        totals, requests = benchmark["metrics"]["request_totals"], benchmark["requests"]
        expected = {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
        assert totals == expected, (route, totals, [one["info"]["error"] for one in requests["errored"]])
        done = requests["successful"]
        assert all(one["output_tokens"] == NEW_TOKENS for one in done), (route, [one["output_tokens"] for one in done])
        counted(url, before, sum(one["prompt_tokens"] for one in done), REQUESTS * NEW_TOKENS)
        if route == "/v1/completions":
            for one in done:
                prompt = json.loads(one["request_args"])["body"]["prompt"]
                assert one["prompt_tokens"] == tokens(url, prompt), (prompt, one["prompt_tokens"])


def guidellm(url, route):
    """The one benchmark in guidellm's report."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            folder, "guidellm", "run", "--disable-progress",
            "--backend", f"kind=openai_http,target={url},request_format={route}",
            "--profile", f"kind=concurrent,streams={AT_ONCE}",
            "--constraint", f"kind=max_requests,count={REQUESTS}",
            "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
            "--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={NEW_TOKENS}",
            "--output", "kind=json,path=report.json",
        )
        [benchmark] = json.loads((pathlib.Path(folder) / "report.json").read_text())["benchmarks"]
    return benchmark


def run(folder, tool, *arguments):
    """Runs a tool of this Python's environment in a folder, and shows what it said if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{tool} ended with {done.returncode} and said\n{done.stdout[-8000:]}")


def counted(url, before, prompt_tokens, new_tokens):
    """Checks that the server has counted so many tokens since `before`."""
    after = idle_metrics(url)
    for name, tokens in (("redline_prompt_tokens_total", prompt_tokens), ("redline_generation_tokens_total", new_tokens)):
        assert after[name] - before[name] == tokens, (name, after[name] - before[name], tokens)


def tokens(url, text):
    """How many tokens a completion of the text begins with."""
    request = urllib.request.Request(
        f"{url}/tokenize", json.dumps({"prompt": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["count"]
