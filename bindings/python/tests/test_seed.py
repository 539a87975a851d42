"""The two files that the score seed describes run over `sgl_jax.test`, which maps to Redline."""

import csv
import os
import pathlib
import subprocess
import sys

SEED = pathlib.Path(__file__).parent / "seed"


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(SEED), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=SEED)


def test_the_features():
    ended = run("-m", "unittest", "-v", "test_score_api_jax_features")
    assert ended.returncode == 0, ended.stderr
    assert "Ran 4 tests" in ended.stderr, ended.stderr


def test_the_benchmark(tmp_path):
    results, faster = tmp_path / "results.csv", tmp_path / "faster.csv"
    quick = ["bench_score.py", "--batch-sizes", "1,4", "--num-labels", "2", "--num-runs", "3", "--warmup-runs", "1"]
    ended = run(*quick, "--output", results)
    assert ended.returncode == 0, ended.stderr
    assert "p99 (ms)" in ended.stdout and "items/s" in ended.stdout
    rows = list(csv.DictReader(results.open()))
    assert [(row["batch_size"], row["num_labels"], row["total_items"]) for row in rows] == [("1", "2", "3"), ("4", "2", "12")]
    # No run is a million times as fast, or half as fast as nothing.
    for factor, code, said in [(1e6, 1, "REGRESSION"), (1e-6, 0, "OK")]:
        with faster.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows({**row, "throughput_items_per_sec": float(row["throughput_items_per_sec"]) * factor} for row in rows)
        ended = run(*quick, "--baseline", faster)
        assert (ended.returncode, ended.stdout.count(said)) == (code, 2), ended.stdout + ended.stderr
