"""One engine's results in the schema that `redline compare` reads."""

import datetime
import json
import statistics
import uuid

import samples

SCHEMA = "redline.bench.run/1"
# A share of a limit above this is no share of that limit: the engine used arithmetic that the limit does not know.
MAX_SHARE = 1.15


def document(run, engine, version, results, limits, divides):
    """`run` holds what all engines share: started_at, command, machine, model; `divides` a bandwidth by threads."""
    rows, best = [], {}
    for result in results:
        case = result.job.case(result.arm.bits, result.threads)
        if case not in best or result.median > best[case].median:
            best[case] = result
    for result in results:
        case = result.job.case(result.arm.bits, result.threads)
        # Of several formats with the same bits the fastest stands for the engine.
        name = case if best[case] is result else f"{case}/{result.arm.format}"
        rows.append(_row(name, result, limits[id(result)], divides[result.threads], run["model"]))
    return {
        "schema": SCHEMA,
        "run_id": uuid.uuid4().hex,
        "started_at": run["started_at"],
        "command": run["command"],
        "engine": {"name": engine, "version": version},
        "machine": run["machine"],
        "lane": "peers",
        "rows": rows,
    }


def _row(case, result, limit, divide, model):
    job, arm = result.job, result.arm
    params = {"model": model, "format": arm.format, "bits": arm.bits, "threads": result.threads}
    params |= {"batch": job.batch, "prompt_tokens": job.prompt, "new_tokens": job.new}
    rate = f"{job.unit}_per_s"
    metrics = {rate: metric(f"{job.unit}/s", "higher", result.values, result.processes)}
    bandwidths = {"read_bandwidth_before": "before", "read_bandwidth_after": "after"}
    for name, when in bandwidths.items():
        metrics[name] = metric("GB/s", "info", [getattr(sample, when) / 1e9 for sample in result.kept])
    if job.kind == "decode":
        per_byte = [1e9 * sample.value / sample.bandwidth for sample in result.kept]
        metrics["tokens_per_gigabyte_read"] = metric("tokens/GB", "info", per_byte)
    for name in ("load_s", "compile_s"):
        if any(result.extras.get(name, [])):
            metrics[name] = metric("s", "info", result.extras[name])
    believable = limit.share is not None and limit.share <= MAX_SHARE
    return {
        "case": case,
        "params": params | {key: result.extras[key] for key in ("kv_format", "agreement")},
        "metrics": metrics,
        "limit": limit.name,
        "share_of_limit": limit.share if believable else None,
        "kernel_path": None,
        "checked": True,
        "digest": None,
        "marks": [_mark(rate, sample, divide) for sample in result.samples],
    }


def _mark(rate, sample, divide):
    """Every sample, those that do not count too."""
    return {
        rate: sample.value,
        "process": sample.turn,
        "steady": sample.steady,
        "mode": samples.mode(sample, divide),
    }


def now():
    """The time, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def metric(unit, direction, values, processes=None):
    """Samples with their summary; where processes are told apart, the median is that of their medians."""
    written = {
        "unit": unit,
        "direction": direction,
        "median": statistics.median(statistics.median(process) for process in processes or [values]),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
        "n": len(values),
        "samples": values,
    }
    return written | ({"processes": processes} if processes else {})


def write(path, value):
    """A whole file or none."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)
