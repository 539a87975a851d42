"""Uses `redline serve` through clients that others wrote, unchanged and with pinned versions.

Every check uses one of them against a server with a demo model and raises an exception if an answer is not what
the client's users would expect. `run.py --only openai` runs one of them.
"""

import argparse
import pathlib
import subprocess
import sys
import traceback

import lm_eval_client
import openai_client
import rerank_clients
import typesafe_client

ROOT = pathlib.Path(__file__).parents[2]
# The checks by name, each with the model that it needs.
CLIENTS = {
    "openai": ("demo", openai_client.check),
    "typesafe": ("demo", typesafe_client.check),
    "cohere": ("demo", rerank_clients.check_cohere),
    "litellm": ("demo", rerank_clients.check_litellm),
    "lm-eval": ("demo", lm_eval_client.check),
    "openai-diffusion": ("demo-diffusion", openai_client.check_diffusion),
}


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, binary, model):
        template = ROOT / "tests/golden/chat/parts.jinja"
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--port", "0", "--quiet", "--chat-template", template, "--classes", "good,bad"],
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


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask clients", description=__doc__.splitlines()[0])
    parser.add_argument("--redline", default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--only", choices=list(CLIENTS), action="append", help="one client (repeatable)")
    arguments = parser.parse_args()
    failed = []
    names = list(arguments.only or CLIENTS)
    for model in dict.fromkeys(CLIENTS[name][0] for name in names):
        with Server(arguments.redline, model) as server:
            for name in [name for name in names if CLIENTS[name][0] == model]:
                try:
                    CLIENTS[name][1](server.url, arguments.redline)
                    print(f"ok      {name}", flush=True)
                except Exception:
                    traceback.print_exc()
                    print(f"FAILED  {name}", flush=True)
                    failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
