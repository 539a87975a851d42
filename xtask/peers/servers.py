"""Servers of the comparison: each is a process on a free port of this machine, and ends with its block."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import processor

# Seconds that a server may take to load its model, and to end.
START, END = 300, 60
ENGINE_THREAD = re.compile(r"redline-\d+")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that answers `health` once it is ready."""

    name, health = "", "/health"
    # Most connections that it is asked to serve at a time; None: any number.
    most = None

    def __init__(self, command, log):
        self._command, self._log_path = [str(word) for word in command], Path(log)
        self.url = None
        self._process = None

    def __enter__(self):
        port = str(free_port())
        self.url = f"http://127.0.0.1:{port}"
        command = [word.replace("{port}", port) for word in self._command]
        with self._log_path.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self):
        until = time.monotonic() + START
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + self.health, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.2)
        last = self._log_path.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} did not start: {' '.join(self._command)}\n{last}")

    def cpu_seconds(self):
        """Processor time of the engine's threads, and of all others."""
        engine = 0.0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            try:
                name, spent = processor.stat(task / "stat")
            except FileNotFoundError:  # it ended meanwhile
                continue
            engine += spent if ENGINE_THREAD.fullmatch(name) else 0.0
        # With the time of threads that have ended.
        others = processor.stat(Path(f"/proc/{self._process.pid}/stat"))[1] - engine
        return engine, others


class RedlineServer(Server):
    name, health = "redline", "/ready"

    def __init__(self, binary, model, threads, log, more=()):
        command = [binary, "serve", "--model", model, "--port", "{port}", "--quiet", *more]
        super().__init__(command + (["--threads", threads] if threads else []), log)


class LlamaServer(Server):
    """llama.cpp's own server: as many slots as connections, which share one KV cache.

    Requests never come twice, so the cache of evicted prompts in memory is off, which only costs time here. The last of two flags counts.
    """

    name = "llama-server"

    def __init__(self, binary, model, threads, log, slots=32, context=16384, more=()):
        command = [binary, "--model", model, "--host", "127.0.0.1", "--port", "{port}", "--threads", threads]
        command += ["--threads-batch", threads, "--parallel", slots, "--kv-unified", "--ctx-size", context]
        super().__init__([*command, "--cache-ram", 0, "--alias", "llama", *more], log)


class LlamaPython(Server):
    """The server of llama-cpp-python, which answers one request after the other."""

    name, health = "llama-cpp-python", "/v1/models"

    def __init__(self, model, threads, log, context=4096):
        command = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--host", "127.0.0.1"]
        command += ["--port", "{port}", "--n_threads", threads, "--n_threads_batch", threads, "--n_ctx", context]
        # Otherwise a new request ends the one that is being streamed.
        super().__init__([*command, "--interrupt_requests", "False", "--model_alias", "llama"], log)


class Running:
    """A server that the user started."""

    most = None

    def __init__(self, name, url):
        self.name, self.url = name, url
