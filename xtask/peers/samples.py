"""Samples, which of them count, and how near to the machine's limits they are. Pure functions."""

import statistics
from dataclasses import dataclass, field

# Two readings of the bandwidth agree when they differ by at most this share.
AGREEMENT = 0.15
# Bandwidths whose quantiles are this far apart come from two modes of the machine.
MODES = 1.4


@dataclass(frozen=True)
class Sample:
    """Tokens per second, between two readings of the read bandwidth in bytes per second; `turn` counts processes."""

    value: float
    before: float
    after: float
    turn: int

    @property
    def steady(self):
        return abs(self.before - self.after) <= AGREEMENT * max(self.before, self.after)

    @property
    def bandwidth(self):
        return (self.before + self.after) / 2


@dataclass
class Result:
    """All samples of an arm in a job with a number of threads."""

    arm: object
    job: object
    threads: int
    samples: list = field(default_factory=list)
    extras: dict = field(default_factory=dict)

    @property
    def kept(self):
        """Samples whose readings agree; all of them where fewer than half do."""
        steady = [sample for sample in self.samples if sample.steady]
        return steady if 2 * len(steady) >= len(self.samples) else self.samples

    @property
    def values(self):
        return [sample.value for sample in self.kept]

    @property
    def processes(self):
        """The values that count, process by process."""
        turns = dict.fromkeys(sample.turn for sample in self.kept)
        return [[sample.value for sample in self.kept if sample.turn == turn] for turn in turns]

    @property
    def median(self):
        """The median of the processes' medians."""
        return statistics.median(statistics.median(process) for process in self.processes)

    @property
    def tokens_per_gigabyte(self):
        """Tokens per second over the bandwidth around them: comparable between the machine's modes."""
        return statistics.median(1e9 * sample.value / sample.bandwidth for sample in self.kept)


def threshold(bandwidths):
    """What divides fast readings from slow ones; None where the machine has one mode."""
    ordered = sorted(bandwidths)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.95))
    return (low * high) ** 0.5 if high > MODES * low else None


def mode(sample, divide):
    """fast, slow, or single."""
    if divide is None:
        return "single"
    return "fast" if sample.bandwidth >= divide else "slow"


@dataclass(frozen=True)
class Limit:
    """What bounds a job, and the share of it that was reached; None where it was not measured."""

    name: str
    share: float | None


def limit(result, shape, bits_per_weight, peaks):
    """Decode is bound by the bytes it reads, prefill by its arithmetic, a batch by the slower of the two."""
    job, arm = result.job, result.arm
    peak = peaks.get(arm.peak)
    bandwidth = statistics.median(sample.bandwidth for sample in result.kept)
    shares = {"read_bandwidth": None, arm.peak: None}
    if job.scores:
        per_token = (shape.operations(job.computed) - 2 * shape.head) / job.batch
    elif job.kind == "prefill":
        per_token = shape.operations(job.prompt) / job.prompt
    else:
        context = job.prompt + (job.new - 1) / 2
        read = shape.weight_bytes(bits_per_weight) / job.batch + shape.kv_bytes(context, arm.kv_bytes)
        shares["read_bandwidth"] = read * result.median / bandwidth
        per_token = shape.operations(1, context)
    if peak:
        shares[arm.peak] = per_token * result.median / peak
    if job.kind == "prefill" or job.scores:
        name = arm.peak
    elif job.batch == 1:
        name = "read_bandwidth"
    else:
        name = max(shares, key=lambda name: shares[name] or 0)
    return Limit(name, shares[name])
