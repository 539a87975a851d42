#!/usr/bin/env python3
"""How many items are scored in a second, by the number of items and of labels of a request.

With the flags, the columns and the exit code that the score seed describes. `redline bench score` measures the same with the
statistics that such figures need.
"""

import argparse
import csv
import dataclasses
import statistics
import sys
import time

from sgl_jax.test.score_test_utils import ScoreTestConfig, build_engine, get_label_token_ids, get_tokenizer

SLOWER = -10.0
"""A change of the throughput, in percent, that counts as a regression."""


@dataclasses.dataclass
class BenchmarkResult:
    """A row of the results."""

    batch_size: int
    num_labels: int
    num_runs: int
    total_items: int
    throughput_items_per_sec: float
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_mean_ms: float
    latency_std_ms: float


def run_benchmark(runner, tokenizer, batch_size, num_labels, num_runs=10, warmup_runs=3):
    """Times requests of `batch_size` items and `num_labels` labels."""
    labels = get_label_token_ids(tokenizer, [f" label{i}" for i in range(num_labels)])
    asked = {
        "query": "Benchmark query: " * 10,
        "items": [f" item {i}" for i in range(batch_size)],
        "label_token_ids": labels,
        "apply_softmax": True,
    }
    for _ in range(warmup_runs):
        runner.score(**asked)
    latencies = []
    for _ in range(num_runs):
        begin = time.perf_counter()
        runner.score(**asked)
        latencies.append((time.perf_counter() - begin) * 1000)
    latencies.sort()

    def at(share):
        return latencies[min(int(num_runs * share), num_runs - 1)]

    return BenchmarkResult(
        batch_size=batch_size,
        num_labels=num_labels,
        num_runs=num_runs,
        total_items=batch_size * num_runs,
        throughput_items_per_sec=batch_size * num_runs / (sum(latencies) / 1000),
        latency_p50_ms=at(0.50),
        latency_p95_ms=at(0.95),
        latency_p99_ms=at(0.99),
        latency_mean_ms=statistics.mean(latencies),
        latency_std_ms=statistics.stdev(latencies) if num_runs > 1 else 0.0,
    )


def print_results_table(results):
    print(f"{'Batch':>6} | {'Labels':>7} | {'Throughput':>18} | {'p50 (ms)':>10} | {'p95 (ms)':>10} | {'p99 (ms)':>10}")
    for one in results:
        print(
            f"{one.batch_size:6d} | {one.num_labels:7d} | {one.throughput_items_per_sec:10.1f} items/s | "
            f"{one.latency_p50_ms:10.2f} | {one.latency_p95_ms:10.2f} | {one.latency_p99_ms:10.2f}"
        )


def save_results_csv(results, path):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[field.name for field in dataclasses.fields(BenchmarkResult)])
        writer.writeheader()
        writer.writerows(dataclasses.asdict(one) for one in results)
    print(f"Results saved to: {path}")


def compare_with_baseline(current, path):
    """Prints the change of every case, and returns whether none is a regression."""
    with open(path, newline="") as file:
        before = {
            (int(row["batch_size"]), int(row["num_labels"])): float(row["throughput_items_per_sec"])
            for row in csv.DictReader(file)
        }
    regressions = 0
    for one in current:
        baseline = before.get((one.batch_size, one.num_labels))
        if baseline is None:
            change, status = "N/A", "NEW"
        else:
            percent = (one.throughput_items_per_sec / baseline - 1) * 100
            change, status = f"{percent:+.1f}%", "REGRESSION" if percent < SLOWER else "OK"
        regressions += status == "REGRESSION"
        print(f"{one.batch_size:6d} | {one.num_labels:7d} | {one.throughput_items_per_sec:10.1f} items/s | {change:>10} | {status}")
    print(f"{regressions} performance regressions")
    return regressions == 0


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description="Score API performance benchmark")
    parser.add_argument("--batch-sizes", type=numbers, default=[1, 2, 4, 8, 16], help="numbers of items")
    parser.add_argument("--num-labels", type=numbers, default=[2, 4, 8], help="numbers of labels")
    parser.add_argument("--num-runs", type=int, default=20, help="timed requests of each case")
    parser.add_argument("--warmup-runs", type=int, default=5, help="requests before them")
    parser.add_argument("--model", default=ScoreTestConfig.model)
    parser.add_argument("--output", help="write the results to this CSV file")
    parser.add_argument("--baseline", help="compare with this CSV file")
    arguments = parser.parse_args()

    runner = build_engine(ScoreTestConfig(model=arguments.model))
    tokenizer = get_tokenizer(arguments.model)
    try:
        results = [
            run_benchmark(runner, tokenizer, batch_size, num_labels, arguments.num_runs, arguments.warmup_runs)
            for batch_size in arguments.batch_sizes
            for num_labels in arguments.num_labels
        ]
    finally:
        runner.shutdown()
    print_results_table(results)
    if arguments.output:
        save_results_csv(results, arguments.output)
    if arguments.baseline and not compare_with_baseline(results, arguments.baseline):
        sys.exit(1)


if __name__ == "__main__":
    main()
