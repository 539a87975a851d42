"""Samples into medians, ratios and documents."""

import json
import os
import platform
import statistics
from dataclasses import dataclass

# Two readings of the bandwidth agree when they differ by less than this share.
AGREEMENT = 0.15


@dataclass(frozen=True)
class Sample:
    """Tokens per second, between two readings of the read bandwidth in bytes per second."""

    value: float
    before: float
    after: float

    @property
    def steady(self):
        return abs(self.before - self.after) < AGREEMENT * max(self.before, self.after)

    @property
    def bandwidth(self):
        return (self.before + self.after) / 2


def kept(samples):
    """Samples whose readings agree; all of them where fewer than half do."""
    steady = [sample for sample in samples if sample.steady]
    return steady if 2 * len(steady) >= len(samples) else samples


def median(samples):
    return statistics.median(sample.value for sample in kept(samples))


def tokens_per_gigabyte(samples):
    """Median of tokens per second over the bandwidth around them: comparable between the machine's moods."""
    return statistics.median(1e9 * sample.value / sample.bandwidth for sample in kept(samples))


def table(results, jobs, threads):
    """Lines for people: `results[engine, job, threads]` is a list of samples."""
    lines = ["| work | threads | engine | tok/s | range | kept | read GB/s | Redline / it | same, per byte read |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    engines = list(dict.fromkeys(engine for engine, _, _ in results))
    for job in jobs:
        for count in threads:
            ours = results.get(("redline", job.name, count))
            for engine in engines:
                lines.append(_line(engine, job, count, results[engine, job.name, count], ours))
    return "\n".join(lines)


def _line(engine, job, threads, samples, ours):
    values = [sample.value for sample in kept(samples)]
    bandwidth = statistics.median(sample.bandwidth for sample in kept(samples)) / 1e9
    ratio = per_byte = ""
    if ours and engine != "redline":
        ratio = f"{median(ours) / median(samples):.2f}"
        if job.new:  # prefill does not wait for memory
            per_byte = f"{tokens_per_gigabyte(ours) / tokens_per_gigabyte(samples):.2f}"
    work = f"{job.name} {job.prompt}" + (f" + {job.new}" if job.new else "")
    cells = [work, threads, engine, f"{median(samples):.1f}", f"{min(values):.1f}-{max(values):.1f}"]
    cells += [f"{len(values)}/{len(samples)}", f"{bandwidth:.1f}", ratio, per_byte]
    return "| " + " | ".join(map(str, cells)) + " |"


def _metric(unit, direction, values):
    return {
        "unit": unit,
        "direction": direction,
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
        "n": len(values),
        "samples": values,
    }


def machine():
    """What the numbers depend on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    cpus = len(os.sched_getaffinity(0))
    cpu = names[0] if names else platform.machine()
    return {"cpu": cpu, "logical_cpus": cpus, "kernel": platform.release(), "load_average": os.getloadavg()[0]}


def document(engine, results, jobs, threads, model, where):
    """One engine's results in the shape of `redline bench --json`; every sample is in it, unsteady ones too.

    Results exist only where the greedy ids agreed, so each row is checked."""
    rows = []
    for job in jobs:
        for count in threads:
            samples = results[engine.name, job.name, count]
            params = {"engine": engine.name, "version": engine.version, "model": model, "format": "f32"}
            params |= {"threads": count, "prompt_tokens": job.prompt, "new_tokens": job.new, "kv_cache": True}
            metrics = {
                job.metric: _metric("tokens/s", "higher", [sample.value for sample in samples]),
                "read_bandwidth_before": _metric("GB/s", "info", [sample.before / 1e9 for sample in samples]),
                "read_bandwidth_after": _metric("GB/s", "info", [sample.after / 1e9 for sample in samples]),
            }
            case = f"{job.name}{job.prompt}/f32/t{count}"
            rows.append({"case": case, "params": params, "metrics": metrics, "checked": True})
    return {"lane": "peers", "machine": where, "rows": rows}


def write(path, value):
    """A whole file or none."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
