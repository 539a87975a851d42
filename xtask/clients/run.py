"""Uses `redline serve` through clients that others wrote, unchanged and with pinned versions.

Every function below `client` uses one of them against a server with the demo model and raises an exception if an answer is not what
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
CLIENTS = {
    "openai": openai_client.check,
    "typesafe": typesafe_client.check,
    "cohere": rerank_clients.check_cohere,
    "litellm": rerank_clients.check_litellm,
    "lm-eval": lm_eval_client.check,
}


class Server:
    """A server on a free port, which ends with the block."""

    def __init__(self, binary):
        template = ROOT / "tests/golden/chat/parts.jinja"
        self.process = subprocess.Popen(
            [binary, "serve", "--model", "demo", "--port", "0", "--quiet", "--chat-template", template, "--classes", "good,bad"],
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
    with Server(arguments.redline) as server:
        for name in arguments.only or CLIENTS:
            try:
                CLIENTS[name](server.url, arguments.redline)
                print(f"ok      {name}", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"FAILED  {name}", flush=True)
                failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
