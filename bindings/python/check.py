"""Builds the wheel, installs it into a fresh virtual environment, and tests it. `cargo xtask python` runs this.

--redline FILE  the binary whose answers must be the same; default: target/release/redline
--debug         build without optimisation: sooner, but the tests take longer
ARGS...         for pytest
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
MOST_BYTES = 30_000_000

# What the README promises: ten lines, and numpy only.
TEN_LINES = """
import redline

with redline.Engine("demo") as engine:
    scores = engine.score("The king is ", ["old.", "young."], label_token_ids=[5, 9], apply_softmax=True)
    assert len(scores) == 2 and all(abs(sum(row) - 1) < 1e-6 for row in scores), scores
    print(scores)
"""


def call(*arguments, **environment):
    print("==>", *arguments, flush=True)
    subprocess.run([str(one) for one in arguments], check=True, cwd=ROOT, env={**os.environ, **environment})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redline", type=pathlib.Path, default=ROOT / "target/release/redline")
    parser.add_argument("--debug", action="store_true")
    options, further = parser.parse_known_args()

    wheels = ROOT / "target/wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    profile = "dev" if options.debug else "release"
    manifest = HERE / "Cargo.toml"
    call(
        sys.executable, "-m", "maturin", "build", "--locked", "--profile", profile, "--manifest-path", manifest, "--out", wheels,
        "--interpreter", sys.executable,
    )
    (wheel,) = wheels.glob("*.whl")
    size = wheel.stat().st_size
    print(f"==> {wheel.name}: {size / 1e6:.1f} MB", flush=True)
    if size > MOST_BYTES and not options.debug:
        sys.exit(f"error: the wheel has {size} bytes, limit {MOST_BYTES}")

    fresh = ROOT / "target/python-fresh"
    venv.create(fresh, clear=True, with_pip=True)
    call(fresh / "bin/python", "-m", "pip", "install", "--quiet", wheel)
    call(fresh / "bin/python", "-c", TEN_LINES)

    call(sys.executable, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel)
    call(sys.executable, "-m", "mypy", "--config-file", HERE / "pyproject.toml", "--cache-dir", ROOT / "target/mypy", HERE / "python/redline")
    call(sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "tests", *further, REDLINE=str(options.redline))


if __name__ == "__main__":
    main()
