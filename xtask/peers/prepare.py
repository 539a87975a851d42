"""The models that the arms read, all made from one checkpoint and kept for the next run."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import arms
import redline
import shapes
from unavailable import Unavailable

HERE = Path(__file__).resolve().parent


class Models:
    """A folder with one file or directory per format."""

    def __init__(self, options, say):
        self._binary, self._say = options.redline, say
        if options.model:
            self.base = options.model.resolve()
            self.folder = options.work / f"{self.base.name}-{state(self.base)}"
        else:
            self.folder = options.work / options.shape
            self.base = self.folder / "checkpoint"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not options.model:
            self._make(self.base, lambda path: redline.synth(self._binary, options.shape, path))
        self.shape = shapes.read(self.base)
        if self.shape.dtype != "bfloat16":
            # Formats are made by way of bf16: other values would not survive, and ids would not agree.
            fact = f"the weights are {self.shape.dtype} in {self.base}/config.json"
            raise ValueError(f"{fact}\n\nhint: a bfloat16 checkpoint, or --shape")

    def prepare(self, wanted):
        """Makes what is missing, one model at a time; returns the paths by arm, and why there is none."""
        paths, failed = {arm: self.path(arm) for arm in wanted}, {}
        self._need_space({path: arm.bits for arm, path in paths.items() if not path.exists()})
        scratch = self._gguf("BF16")
        had = scratch.exists() or scratch in paths.values()
        for arm in wanted:
            try:
                self._write(arm, paths[arm])
            except (Unavailable, RuntimeError) as why:
                del paths[arm]
                failed[arm] = why
        if not had:
            scratch.unlink(missing_ok=True)
        return paths, failed

    def path(self, arm):
        """What the arm loads."""
        if arm.reads_gguf:
            return self._gguf(arm.format.removesuffix("-norepack"))
        if arm.engine == "ctranslate2":
            # Stored in bf16, which holds the values exactly, and widened when it is loaded.
            return self.folder / f"ctranslate2-{'bfloat16' if arm.bits == 32 else arm.format}"
        if arm.engine == "openvino" or (arm.engine == arms.REDLINE and arm.bits < 16):
            return self.folder / f"{arm.engine}-{arm.format}"
        return self.base

    def bits_per_weight(self, arm):
        """As stored, scales included; formats that are the same for all weights have theirs by name."""
        if arm.bits >= 16:
            return arm.bits
        path = self.path(arm)
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        weights = sum(file.stat().st_size for file in files if file.suffix in {".gguf", ".bin", ".safetensors"})
        return 8 * weights / self.shape.parameters

    def _gguf(self, name):
        return self.folder / f"{name}.gguf"

    def _need_space(self, missing):
        """Before the first file is written."""
        need = sum(self.shape.parameters * bits / 8 for bits in missing.values())
        free = shutil.disk_usage(self.folder).free
        if need > free:
            counts = f"{need / 1e9:.1f} GB of models are to be written, but {free / 1e9:.1f} GB are free"
            raise ValueError(f"{counts} in {self.folder}\n\nhint: --work DIR elsewhere, or fewer --engines")

    def _write(self, arm, path):
        if path.exists():
            return
        if arm.reads_gguf:
            self._write_gguf(path)
        elif arm.engine == "ctranslate2":
            stored = path.name.removeprefix("ctranslate2-")
            self._make(path, lambda out: run_script("ct2_model.py", self.base, out, stored))
        elif arm.engine == "openvino":
            self._make(path, lambda out: run_script("openvino_model.py", self.base, out))
        else:
            self._make(path, lambda out: redline.convert(self._binary, self.base, out, arm.format))

    def _write_gguf(self, path):
        source = self._gguf("BF16")
        self._make(source, lambda out: run_script("gguf_model.py", "convert", self.base, out))
        self._make(path, lambda out: run_script("gguf_model.py", "quantise", source, out, path.stem))

    def served_gguf(self, source):
        """A GGUF file with a vocabulary, for servers."""
        path = source.with_name(f"{source.stem}-served.gguf")
        self._make(path, lambda out: run_script("gguf_served.py", source, self.base / "tokenizer.json", out))
        return path

    def _make(self, path, write):
        make(path, write, self._say)


def make(path, write, say):
    """A whole file or directory, or none; what is there stays."""
    if path.exists():
        return
    say(f"writing {path}")
    partial = path.with_name(path.name + ".partial")
    _remove(partial)
    try:
        write(partial)
        partial.rename(path)
    finally:
        _remove(partial)


def run_script(script, *arguments):
    """A process of its own, so that its memory is given back."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"`{script}` failed: {last}\n{' '.join(command)}\n{done.stdout[-4000:]}")


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def state(directory):
    """Changes when a file of the checkpoint does."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        stat = path.stat()
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:8]
