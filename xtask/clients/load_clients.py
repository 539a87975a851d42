"""Tools that put a server under load: guidellm and aiperf. No request fails, and both count the tokens that the server counts.

Both make their prompts from words, with the tokenizer of the demo model, so they need no other machine.
"""

import importlib.util
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
PASSAGES = 5


def check_guidellm(url, _):
    for route in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        before = idle_metrics(url)
        benchmark = guidellm(url, route)
        totals, requests = benchmark["metrics"]["request_totals"], benchmark["requests"]
        expected = {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
        assert totals == expected, (route, totals, [one["info"]["error"] for one in requests["errored"]])
        done = requests["successful"]
        assert all(one["output_tokens"] == NEW_TOKENS for one in done), (route, [one["output_tokens"] for one in done])
        counted(url, before, prompt_tokens=sum(one["prompt_tokens"] for one in done), generation_tokens=REQUESTS * NEW_TOKENS)
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


def check_aiperf(url, _):
    if importlib.util.find_spec("aiperf") is None:
        raise RuntimeError("`aiperf` is not installed\n\nhint: it needs Python 3.13 or older")
    streamed = ["--streaming", "--isl", str(PROMPT_TOKENS), "--osl", str(NEW_TOKENS), "--extra-inputs", "ignore_eos:true"]
    for kind in ("completions", "chat", "responses"):
        before = idle_metrics(url)
        records = aiperf(url, kind, streamed)
        if kind == "responses":
            # aiperf does not read the token counts of responses.
            counted(url, before, generation_tokens=REQUESTS * NEW_TOKENS)
            continue
        values = lambda name: [record["metrics"][name]["value"] for record in records]
        used, made = values("usage_prompt_tokens"), values("usage_completion_tokens")
        # aiperf also counts the tokens of a prompt itself, without those that the template adds. A text of new tokens may have others.
        added = {ours - theirs for ours, theirs in zip(used, values("input_sequence_length"), strict=True)}
        assert len(added) == 1, (kind, added)
        assert made == [NEW_TOKENS] * REQUESTS, (kind, made)
        counted(url, before, prompt_tokens=sum(used), generation_tokens=sum(made))
    passages = ["--rankings-passages-mean", str(PASSAGES), "--rankings-passages-prompt-token-mean", str(PROMPT_TOKENS)]
    passages += ["--rankings-query-prompt-token-mean", "8"]
    for kind in ("hf-tei-rankings", "cohere-rankings"):
        before = idle_metrics(url)
        aiperf(url, kind, passages)
        counted(url, before, score_items=REQUESTS * PASSAGES)


def aiperf(url, kind, flags):
    """What aiperf recorded of each request, if none failed."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            folder, "aiperf", "profile", "--model", "demo", "--url", url, "--endpoint-type", kind,
            "--tokenizer", str(TOKENIZER), "--request-count", str(REQUESTS), "--concurrency", str(AT_ONCE),
            "--random-seed", "1", "--workers-max", "2", "--record-processors", "1", "--no-gpu-telemetry", "--ui", "none",
            "--output-artifact-dir", folder, *flags,
        )
        folder = pathlib.Path(folder)
        summary = json.loads((folder / "profile_export_aiperf.json").read_text())
        records = [json.loads(line) for line in (folder / "profile_export.jsonl").read_text().splitlines()]
        metrics = json.loads((folder / "server_metrics_export.json").read_text())["metrics"]
    assert not summary["error_summary"] and not summary["was_cancelled"], (kind, summary["error_summary"])
    assert summary["request_count"]["avg"] == len(records) == REQUESTS, (kind, summary["request_count"], len(records))
    assert "redline_generation_tokens" in metrics, "aiperf did not read /metrics"
    return records


def run(folder, tool, *arguments):
    """Runs a tool of this Python's environment in a folder, and shows what it said if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{tool} ended with {done.returncode} and said\n{done.stdout[-8000:]}")


def counted(url, before, **counts):
    """Checks how much counters of the server have grown since `before`, by their names without `redline_` and `_total`."""
    after = idle_metrics(url)
    for name, count in counts.items():
        name = f"redline_{name}_total"
        assert after[name] - before[name] == count, (name, after[name] - before[name], count)


def tokens(url, text):
    """How many tokens a completion of the text begins with."""
    request = urllib.request.Request(
        f"{url}/tokenize", json.dumps({"prompt": text}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["count"]
