"""A server with a demo model."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, binary, model, *flags):
        template = ROOT / "tests/golden/chat/parts.jinja"
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--port", "0", "--quiet", "--chat-template", template, "--classes", "good,bad", *flags],
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
