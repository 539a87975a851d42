"""Tables for people: one per job and number of threads."""

import statistics

from arms import REDLINE


def tables(results, limits, left_out):
    """`limits[id(result)]` belongs to each result; `left_out[arm, job, threads]` says why there is none."""
    groups = {}
    for result in results:
        groups.setdefault((result.job, result.threads), []).append(result)
    texts = [_table(job, threads, group, limits) for (job, threads), group in groups.items()]
    if left_out:
        lines = ["Left out:"]
        lines += [f"- {arm.name}, {work}: {why}" for (arm, work), why in left_out.items()]
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def best_peers(group):
    """The fastest result of another engine, by bits per weight."""
    best = {}
    for result in group:
        other = best.get(result.arm.bits)
        if result.arm.engine != REDLINE and (other is None or result.median > other.median):
            best[result.arm.bits] = result
    return best


def _table(job, threads, group, limits):
    best = best_peers(group)
    batch = f"{job.batch} x " if job.batch > 1 else ""
    work = f"{batch}{job.prompt}" + (f" + {job.new}" if job.kind == "decode" else "")
    if job.scores:
        work = f"{job.batch} x {job.new} after {job.prompt}"
    lines = [f"{job.name} ({work} tokens), {threads} thread{'s' if threads > 1 else ''}", ""]
    titles = ["bits", "engine", "format", f"{job.unit}/s", "range", "kept", "GB/s", "of limit", "Redline / it"]
    lines.append("| " + " | ".join([*titles, "per byte read"]) + " |")
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    ours = {result.arm.bits: result for result in group if result.arm.engine == REDLINE}
    for result in sorted(group, key=lambda result: (-result.arm.bits, -result.median)):
        lines.append(_line(result, ours.get(result.arm.bits), best.get(result.arm.bits), limits[id(result)]))
    compiled = [result for result in group if any(result.extras.get("compile_s", []))]
    for result in compiled:
        lines += ["", f"{result.arm.name} compiles for {statistics.median(result.extras['compile_s']):.1f} s first."]
    return "\n".join(lines)


def _line(result, ours, best, limit):
    arm, values = result.arm, result.values
    bandwidth = sum(sample.bandwidth for sample in result.kept) / len(result.kept) / 1e9
    ratio = per_byte = ""
    if ours and arm.engine != REDLINE:
        ratio = f"{ours.median / result.median:.2f}" + (" (best peer)" if result is best else "")
        if result.job.kind == "decode":  # prefill does not wait for memory
            per_byte = f"{ours.tokens_per_gigabyte / result.tokens_per_gigabyte:.2f}"
    share = "" if limit.share is None else f"{100 * limit.share:.0f} % of "
    cells = [arm.bits, arm.engine, arm.format, f"{result.median:.1f}", f"{min(values):.1f}-{max(values):.1f}"]
    cells += [f"{len(values)}/{len(result.samples)}", f"{bandwidth:.1f}", share + limit.name, ratio, per_byte]
    return "| " + " | ".join(map(str, cells)) + " |"
