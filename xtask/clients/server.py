"""A server with a demo model."""

import pathlib
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, binary, model, *flags, template=ROOT / "tests/golden/chat/parts.jinja", classes=("good", "bad")):
        flags = [*flags, "--classes", ",".join(classes)] if classes else flags
        # Without a template, the model has its own.
        flags = [*flags, "--chat-template", template] if template else flags
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--port", "0", "--quiet", *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server said {line!r}")
        self.url = line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def idle_metrics(url):
    """The metrics without labels by name, read when no request waits or runs."""
    for _ in range(200):
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
        metrics = {name: float(value) for name, value in pairs}
        if metrics["redline_requests_waiting"] == metrics["redline_requests_running"] == 0:
            return metrics
        time.sleep(0.05)
    raise RuntimeError("requests wait or run although every client has ended")
