"""The crate async-openai: the program in `async-openai/`, with the packages of its lock file."""

import os
import pathlib
import shutil
import subprocess

from server import ROOT

SOURCES = pathlib.Path(__file__).parent / "async-openai"


def check(url, _):
    if shutil.which("cargo") is None:
        raise RuntimeError("`cargo` is not on PATH\n\nhint: install Rust with rustup")
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target/clients/async-openai")}
    subprocess.run(["cargo", "run", "--locked", "--", url], cwd=SOURCES, env=environment, check=True)
