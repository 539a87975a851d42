"""Builds the wheel, installs it into a fresh virtual environment, and tests it. `cargo xtask python` runs this.

--redline FILE  the binary whose answers must be the same; default: target/release/redline
--debug         build without optimisation: sooner, but the tests take longer
--library FILE  no wheel: test the package with this compiled module (`cargo xtask ci`, which has compiled it for the other tests)
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
MAX_BYTES = 30_000_000

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


def lay_out(library, python):
    """Copies the package and its compiled module to where an installed wheel would put them."""
    where = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = pathlib.Path(subprocess.run([str(python), "-c", where], check=True, capture_output=True, text=True).stdout.strip())
    shutil.rmtree(site / "redline", ignore_errors=True)
    shutil.copytree(HERE / "python/redline", site / "redline", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(library, site / "redline/_redline.abi3.so")


def wheel_of(profile, limit):
    """Builds the wheel and checks its size."""
    wheels = ROOT / "target/wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    call(
        sys.executable, "-m", "maturin", "build", "--locked", "--profile", profile, "--manifest-path", HERE / "Cargo.toml", "--out", wheels,
        "--interpreter", sys.executable,
    )
    (wheel,) = wheels.glob("*.whl")
    size = wheel.stat().st_size
    print(f"==> {wheel.name}: {size / 1e6:.1f} MB", flush=True)
    if size > limit:
        sys.exit(f"error: the wheel has {size} bytes, limit {limit}")
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redline", type=pathlib.Path, default=ROOT / "target/release/redline")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--library", type=pathlib.Path)
    options, further = parser.parse_known_args()

    fresh = ROOT / "target/python-fresh"
    venv.create(fresh, clear=True, with_pip=True)
    if options.library:
        call(fresh / "bin/python", "-m", "pip", "install", "--quiet", "numpy")
        lay_out(options.library, fresh / "bin/python")
        lay_out(options.library, sys.executable)
    else:
        wheel = wheel_of("dev", float("inf")) if options.debug else wheel_of("release", MAX_BYTES)
        call(fresh / "bin/python", "-m", "pip", "install", "--quiet", wheel)
        call(sys.executable, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel)
    call(fresh / "bin/python", "-c", TEN_LINES)

    call(sys.executable, "-m", "mypy", "--config-file", HERE / "pyproject.toml", "--cache-dir", ROOT / "target/mypy", HERE / "python/redline")
    call(sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "tests", *further, REDLINE=str(options.redline))


if __name__ == "__main__":
    main()
