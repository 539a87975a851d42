"""Tables of a comparison of servers, for people."""

import statistics

import served_jobs

# Bounds: the time of eight questions divided by that of one; a peer's time divided by Redline's; Redline's tokens per second divided by
# those of the better peer, by connections; overhead of a request in seconds, and of many as a share; the time of a known prefix
# divided by that of an unknown one.
QUESTIONS, JOBS, LOAD_BY = 1.3, 2.0, {1: 1.3, 8: 2.0, 32: 2.0}
OVERHEAD_S, OVERHEAD_SHARE, RESTART = 1e-3, 0.03, 0.1
# A load is not comparable if requests failed or answers were short, or if more than this share of the prompts came from a cache.
NOT_WHOLE, CACHED = ["errors", "short"], 0.02
MISSED, UNEQUAL, INCOMPARABLE = "missed", "answers NOT equal", "not comparable: answers failed, were short or came from a cache"


def tables(results):
    """A section for each part that was measured."""
    parts = {"questions": _questions, "jobs": _jobs, "load": _load, "overhead": _overhead, "restart": _restart}
    return "\n\n".join(write(results[name]) for name, write in parts.items() if name in results)


def missed(text):
    """Whether tables say that a bound was missed, that answers differ, or that a load is not comparable."""
    return any(fault in text for fault in (MISSED, UNEQUAL, INCOMPARABLE))


def ratio_of(numerator, denominator):
    """The ratio of two medians, and the least and greatest ratio of a round."""
    pairs = [one / other for one, other in zip(numerator, denominator, strict=True)]
    return statistics.median(numerator) / statistics.median(denominator), min(pairs), max(pairs)


def _verdict(value, bound, most=True):
    held = value <= bound if most else value >= bound
    return f"{'at most' if most else 'at least'} {bound:g}: {'yes' if held else MISSED}"


def _questions(found):
    one, eight = (found[name] for name in ("decisions-1", "decisions-8"))
    ratio, least, greatest = ratio_of(eight["seconds"], one["seconds"])
    lines = ["Questions about one state of 1,000 tokens (`/v1/decisions`, new text in every request)", ""]
    lines += ["| questions | seconds (median) | range | input tokens | times one question |", "|---|---|---|---|---|"]
    for count, row in ((1, one), (8, eight)):
        told = f"{ratio:.2f} ({least:.2f}-{greatest:.2f})" if count == 8 else ""
        tokens = row["usage"]["input_tokens"]
        lines.append(f"| {count} | {_seconds(row['seconds'])} | {tokens} | {told} |")
    return "\n".join([*lines, "", _verdict(ratio, QUESTIONS) + f" (n = {len(one['seconds'])})"])


def _seconds(values):
    return f"{statistics.median(values):.3f} | {min(values):.3f}-{max(values):.3f}"


def _jobs(found):
    lines = ["Jobs, one request at a time (x: times Redline's time; the range is of rounds)", ""]
    lines += ["| job | server | seconds (median) | range | x | of rounds |", "|---|---|---|---|---|---|"]
    sizes = {job.name: job for job in served_jobs.JOBS}
    for name, by_arm in found.items():
        job, ours = sizes[name], by_arm["redline"]["seconds"]
        for arm, row in by_arm.items():
            told = ""
            if arm != "redline":
                ratio, least, greatest = ratio_of(row["seconds"], ours)
                told = f"{ratio:.2f} | {least:.2f}-{greatest:.2f}"
            work = f"{name} ({job.shared} + {job.parts} x {job.own} tokens)"
            lines.append(f"| {work} | {arm} | {_seconds(row['seconds'])} | {told or ' | '} |")
        peers = [row["seconds"] for arm, row in by_arm.items() if arm != "redline"]
        if peers:
            best = min(peers, key=statistics.median)
            value = _verdict(ratio_of(best, ours)[0], JOBS, most=False)
            lines.append(f"| {name} | the faster form of the peer | | | {value} | |")
    return "\n".join(lines)


def _load(rows):
    lines = ["Load (`redline bench load`, completions)", ""]
    titles = ["connections", "server", "output tokens/s", "TTFT p50 ms", "p90", "p95", "TPOT p50 ms", "requests a run"]
    titles += ["errors", "short", "cached tokens", "Redline / it"]
    lines += ["| " + " | ".join([*titles, "its TTFT / Redline's"]) + " |", "|" + "---|" * (len(titles) + 1)]
    for row in rows:
        ours = next((r for r in rows if r["server"] == "redline" and r["concurrency"] == row["concurrency"]), None)
        told = ["", ""]
        if ours and row is not ours and not (_incomparable(ours) or _incomparable(row)):
            told[0] = f"{ours['output_tok_s'] / row['output_tok_s']:.2f}"
            shared = next((m for m in ("ttft_p95_s", "ttft_p90_s", "ttft_p50_s") if m in ours and m in row), None)
            told[1] = f"{row[shared] / ours[shared]:.2f} ({shared[5:8]})" if shared else ""
        times = [_ms(row.get(name)) for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p95_s", "tpot_p50_s")]
        cells = [row["concurrency"], row["server"], f"{row['output_tok_s']:.1f}", *times, f"{row['requests']:.0f}"]
        cells += [f"{row.get(name, 0):.0f}" for name in (*NOT_WHOLE, "cached_tokens")] + told
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines.append("")
    for count in dict.fromkeys(row["concurrency"] for row in rows):
        group = {row["server"]: row for row in rows if row["concurrency"] == count}
        peers = [row["output_tok_s"] for server, row in group.items() if server != "redline"]
        if "redline" in group and peers and count in LOAD_BY:
            ratio = group["redline"]["output_tok_s"] / max(peers)
            value = f"{ratio:.2f}; {_verdict(ratio, LOAD_BY[count], most=False)}"
            if any(map(_incomparable, group.values())):
                value = INCOMPARABLE
            lines.append(f"- {count} connections, of the better peer: {value}")
    return "\n".join(lines)


def _incomparable(row):
    """Whether answers of a server failed, were shorter than asked for, or came from a cache."""
    return any(row.get(name) for name in NOT_WHOLE) or row.get("cached_tokens", 0) > CACHED * row.get("prompt_tokens", 0)


def _ms(seconds):
    return "" if seconds is None else f"{1e3 * seconds:.0f}"


def _overhead(found):
    lines = ["HTTP overhead", "", "| request, alone | client ms (median) | engine ms | overhead ms | range |", "|---|---|---|---|---|"]
    health = [1e3 * seconds for seconds in found["health"]]
    lines.append(f"| `GET /health` | {statistics.median(health):.3f} | | | {min(health):.3f}-{max(health):.3f} |")
    for name in ("completion", "score"):
        rows = found[name]
        added = [1e3 * (row["client"] - row["engine"]) for row in rows]
        client, engine = (statistics.median(1e3 * row[key] for row in rows) for key in ("client", "engine"))
        middle = statistics.median(added)
        lines.append(f"| {name} | {client:.2f} | {engine:.2f} | {middle:.3f} | {min(added):.3f}-{max(added):.3f} |")
    worst = max(statistics.median(row["client"] - row["engine"] for row in found[name]) for name in ("completion", "score"))
    lines += ["", f"Seconds: {_verdict(worst, OVERHEAD_S)}", ""]
    titles = ["streams at once, run", "seconds", "tokens/s", "not in passes %", "processor time of other threads %", "sum %"]
    lines += ["| " + " | ".join([*titles, "client's processor time s"]) + " |", "|" + "---|" * (len(titles) + 1)]
    shares = []
    for number, run in enumerate(found["streams"]):
        idle = 1 - run["passes"] / run["seconds"]
        others = run["other_cpu"] / (run["engine_cpu"] + run["other_cpu"])
        shares.append(idle + others)
        cells = [number + 1, f"{run['seconds']:.2f}", f"{run['tokens'] / run['seconds']:.1f}", f"{100 * idle:.2f}", f"{100 * others:.2f}"]
        cells += [f"{100 * shares[-1]:.2f}", f"{run['client_cpu']:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", f"Share of the throughput: {_verdict(statistics.median(shares), OVERHEAD_SHARE)}"])


def _restart(found):
    ratio, least, greatest = ratio_of(found["known"], found["unknown"])
    lines = ["First token of 2,000 tokens after a restart", "", "| prefix | seconds (median) | range |", "|---|---|---|"]
    lines += [f"| {name} | {_seconds(found[name])} |" for name in ("known", "unknown")]
    equal = "answers equal" if found["equal"] else UNEQUAL
    told = f"{ratio:.3f} ({least:.3f}-{greatest:.3f}), {_verdict(ratio, RESTART)}"
    return "\n".join([*lines, "", f"{told}; {equal}; cached tokens {found['cached_tokens']}"])
