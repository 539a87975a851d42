"""Tables of a comparison of servers, for people."""

import statistics

import served_jobs

# Bounds: the time of eight questions divided by that of one; a peer's time divided by Redline's; Redline's tokens per second divided by
# those of the better peer, by connections; overhead of a request in seconds, and of many as a share; the time of a known prefix
# divided by that of an unknown one.
QUESTIONS, JOBS, LOAD_BY = 1.3, 2.0, {1: 1.3, 8: 2.0, 32: 2.0}
OVERHEAD_S, OVERHEAD_SHARE, RESTART = 1e-3, 0.03, 0.1
# A turn that computes so many times its new tokens computes again what was known; it is to take so many times Redline's time.
AGAIN, RECOMPUTED = 8, 10
# A load is not comparable if requests failed or answers were short, or if more than this share of the prompts came from a cache.
NOT_WHOLE, CACHED = ["errors", "short"], 0.02
INCOMPARABLE = "not comparable: answers failed, were short or came from a cache"


class Report:
    """The text of the parts that were measured, and whether a bound was missed, answers differ, or a load cannot be held against its bound."""

    def __init__(self, results):
        self.missed = False
        parts = {
            "agreement": self._agreement,
            "questions": self._questions,
            "jobs": self._jobs,
            "load": self._load,
            "overhead": self._overhead,
            "restart": self._restart,
            "turns": self._turns,
        }
        self.text = "\n\n".join("\n".join(write(results[name])) for name, write in parts.items() if name in results)

    def _verdict(self, value, bound, most=True):
        held = value <= bound if most else value >= bound
        self.missed |= not held
        return f"{'at most' if most else 'at least'} {bound:g}: {'yes' if held else 'no'}"

    def _agreement(self, found):
        return [f"Scores of the servers differ by at most {found['difference']:.4f} (standard deviation {found['spread']:.3f})."]

    def _questions(self, found):
        one, eight = (found[name] for name in ("decisions-1", "decisions-8"))
        ratio, least, greatest = ratio_of(eight["seconds"], one["seconds"])
        yield from ["Questions about one state of 1,000 tokens (`/v1/decisions`, new text in every request)", ""]
        yield from ["| questions | seconds (median) | range | input tokens | times one question |", "|---|---|---|---|---|"]
        for count, row in ((1, one), (8, eight)):
            times = f"{ratio:.2f} ({least:.2f}-{greatest:.2f})" if count == 8 else ""
            yield f"| {count} | {_seconds(row['seconds'])} | {row['usage']['input_tokens']} | {times} |"
        yield from ["", self._verdict(ratio, QUESTIONS) + f" (n = {len(one['seconds'])})"]

    def _jobs(self, found):
        yield from ["Jobs, one request at a time (x: times Redline's time; the range is of rounds)", ""]
        yield from ["| job | server | seconds (median) | range | x | of rounds |", "|---|---|---|---|---|---|"]
        sizes = {job.name: job for job in served_jobs.JOBS}
        for name, by_arm in found.items():
            job, ours = sizes[name], by_arm["redline"]["seconds"]
            for arm, row in by_arm.items():
                times = " | "
                if arm != "redline":
                    ratio, least, greatest = ratio_of(row["seconds"], ours)
                    times = f"{ratio:.2f} | {least:.2f}-{greatest:.2f}"
                work = f"{name} ({job.shared} + {job.parts} x {job.own} tokens)"
                yield f"| {work} | {arm} | {_seconds(row['seconds'])} | {times} |"
            peers = [row["seconds"] for arm, row in by_arm.items() if arm != "redline"]
            if peers:
                best = min(peers, key=statistics.median)
                value = self._verdict(ratio_of(best, ours)[0], JOBS, most=False)
                yield f"| {name} | the faster form of the peer | | | {value} | |"

    def _load(self, rows):
        yield from ["Load (`redline bench load`, completions)", ""]
        titles = ["connections", "server", "output tokens/s", "TTFT p50 ms", "p90", "p95", "TPOT p50 ms", "requests a run"]
        titles += ["errors", "short", "cached tokens", "Redline / it", "its TTFT / Redline's"]
        yield from ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
        groups = {}
        for row in rows:
            groups.setdefault(row["concurrency"], {})[row["server"]] = row
        for count, group in groups.items():
            for server, row in group.items():
                times = [_ms(row.get(name)) for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p95_s", "tpot_p50_s")]
                cells = [count, server, f"{row['output_tok_s']:.1f}", *times, f"{row['requests']:.0f}"]
                cells += [f"{_most(row, name):.0f}" for name in (*NOT_WHOLE, "cached_tokens")]
                yield "| " + " | ".join(map(str, [*cells, *_beside(row, group.get("redline"))])) + " |"
        yield ""
        for count, group in groups.items():
            ours, peers = group.get("redline"), [row for server, row in group.items() if server != "redline"]
            if ours and peers and count in LOAD_BY:
                yield f"- {count} connections, of the better peer: {self._better(ours, peers, LOAD_BY[count])}"

    def _better(self, ours, peers, bound):
        """Whether Redline is so many times as fast as the better peer."""
        if any(map(_incomparable, [ours, *peers])):
            self.missed = True
            return INCOMPARABLE
        ratio = ours["output_tok_s"] / max(row["output_tok_s"] for row in peers)
        return f"{ratio:.2f}; {self._verdict(ratio, bound, most=False)}"

    def _overhead(self, found):
        yield from ["HTTP overhead", "", "| request, alone | client ms (median) | engine ms | overhead ms | range |", "|---|---|---|---|---|"]
        health = [1e3 * seconds for seconds in found["health"]]
        yield f"| `GET /health` | {statistics.median(health):.3f} | | | {min(health):.3f}-{max(health):.3f} |"
        worst = 0
        for name in ("completion", "score"):
            rows = found[name]
            added = [1e3 * (row["client"] - row["engine"]) for row in rows]
            client, engine = (statistics.median(1e3 * row[key] for row in rows) for key in ("client", "engine"))
            middle = statistics.median(added)
            worst = max(worst, middle / 1e3)
            yield f"| {name} | {client:.2f} | {engine:.2f} | {middle:.3f} | {min(added):.3f}-{max(added):.3f} |"
        yield from ["", f"Seconds: {self._verdict(worst, OVERHEAD_S)}", ""]
        titles = ["streams at once, run", "seconds", "tokens/s", "not in passes %", "processor time of other threads %", "sum %"]
        yield from ["| " + " | ".join([*titles, "client's processor time s"]) + " |", "|" + "---|" * (len(titles) + 1)]
        shares = []
        for number, run in enumerate(found["streams"]):
            idle = 1 - run["passes"] / run["seconds"]
            others = run["other_cpu"] / (run["engine_cpu"] + run["other_cpu"])
            shares.append(idle + others)
            cells = [number + 1, f"{run['seconds']:.2f}", f"{run['tokens'] / run['seconds']:.1f}"]
            cells += [f"{100 * share:.2f}" for share in (idle, others, shares[-1])]
            yield "| " + " | ".join(map(str, [*cells, f"{run['client_cpu']:.2f}"])) + " |"
        yield from ["", f"Share of the throughput: {self._verdict(statistics.median(shares), OVERHEAD_SHARE)}"]

    def _restart(self, found):
        ratio, least, greatest = ratio_of(found["known"], found["unknown"])
        yield from ["First token of 2,000 tokens after a restart", "", "| prefix | seconds (median) | range |", "|---|---|---|"]
        yield from [f"| {name} | {_seconds(found[name])} |" for name in ("known", "unknown")]
        self.missed |= not found["equal"]
        equal = "answers equal" if found["equal"] else "answers NOT equal"
        verdict = f"{ratio:.3f} ({least:.3f}-{greatest:.3f}), {self._verdict(ratio, RESTART)}"
        yield from ["", f"{verdict}; {equal}; cached tokens {found['cached_tokens']}"]


    def _turns(self, found):
        new, found = found["new"], {name: rows for name, rows in found.items() if name != "new"}
        yield from ["First token of each turn of a chat", "", "| turn | server | seconds (median) | tokens computed | x |", "|---|---|---|---|---|"]
        for turn in range(len(found["redline"]["seconds"][0])):
            by_server = {}
            for server, rows in found.items():
                seconds, computed = ([row[turn] for row in rows[key]] for key in ("seconds", "computed"))
                by_server[server] = statistics.median(seconds), max(computed)
            ours = by_server["redline"][0]
            for server, (seconds, computed) in by_server.items():
                times = "" if server == "redline" else f"{seconds / ours:.2f}"
                yield f"| {turn + 1} | {server} | {seconds:.3f} | {computed} | {times} |"
                # A peer that computes what it knew is to take ten times as long, one that does not at least as long.
                if times and turn:
                    self.missed |= seconds < ours * (RECOMPUTED if computed > AGAIN * new else 1)


def ratio_of(numerator, denominator):
    """The ratio of two medians, and the least and greatest ratio of a round."""
    pairs = [one / other for one, other in zip(numerator, denominator, strict=True)]
    return statistics.median(numerator) / statistics.median(denominator), min(pairs), max(pairs)


def _beside(row, ours):
    """Redline's speed divided by that of another server, and the time to its first token divided by Redline's."""
    if not ours or row is ours or _incomparable(ours) or _incomparable(row):
        return ["", ""]
    shared = next((name for name in ("ttft_p95_s", "ttft_p90_s", "ttft_p50_s") if name in ours and name in row), None)
    first = f"{row[shared] / ours[shared]:.2f} ({shared[5:8]})" if shared else ""
    return [f"{ours['output_tok_s'] / row['output_tok_s']:.2f}", first]


def _most(row, name):
    """The largest count of a run."""
    return max(row["samples"].get(name) or [0])


def _incomparable(row):
    """Whether answers of a server failed, were shorter than asked for, or came from a cache, in any run."""
    cached = _most(row, "cached_tokens") > CACHED * row.get("prompt_tokens", 0)
    return cached or row["output_tok_s"] <= 0 or any(_most(row, name) for name in NOT_WHOLE)


def _seconds(values):
    return f"{statistics.median(values):.3f} | {min(values):.3f}-{max(values):.3f}"


def _ms(seconds):
    return "" if seconds is None else f"{1e3 * seconds:.0f}"
