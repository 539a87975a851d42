"""`redline bench load` against every server, one call for each concurrency."""

import json
import tempfile
from pathlib import Path

import redline

# Exit codes of the lane: a gate or an objective was missed, or a reading was disturbed; the document is complete.
ACCEPTED = (0, 1, redline.DISTURBED)
METRICS = ["output_tok_s", "ttft_p50_s", "ttft_p90_s", "ttft_p95_s", "tpot_p50_s", "e2e_p50_s", "requests", "errors", "short"]
METRICS += ["prompt_tokens", "output_tokens", "cached_tokens"]


def load(options, servers, say):
    """Rows of medians, by concurrency and server, as they are measured."""
    for number, (count, requests) in enumerate(zip(options.concurrency, options.requests, strict=True)):
        asked = [server for server in servers if server.most is None or server.most >= count]
        say(f"load, {count} connections: {', '.join(server.name for server in asked)}")
        flags = [flag for server in asked for flag in ("--url", f"{server.name}={server.url}")]
        flags += ["--kind", "completion", "--concurrency", count, "--requests", requests, "--num-runs", options.num_runs]
        flags += ["--prompt-tokens", options.prompt_tokens, "--output-tokens", options.output_tokens]
        # Calls with one seed ask the same prompts, which servers may have in their caches.
        flags += ["--seed", number << 20]
        with tempfile.TemporaryDirectory() as folder:
            redline.call(options.redline, "bench", "load", *flags, "-o", folder, accept=ACCEPTED)
            run = Path(folder) / "run.json"
            if not run.is_file():
                raise RuntimeError(f"`redline bench load` with {count} connections wrote no document; run it alone to see why")
            whole = json.loads(run.read_text(encoding="utf-8"))
        for row in whole["rows"]:
            metrics = {name: row["metrics"].get(name, {}) for name in METRICS}
            medians = {name: metric["median"] for name, metric in metrics.items() if metric.get("median") is not None}
            samples = {name: metric.get("samples") for name, metric in metrics.items()}
            yield {"server": row["params"]["server"], "concurrency": count, **medians, "samples": samples}
