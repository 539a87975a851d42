"""Uses `redline serve` through clients that others wrote, unchanged and with pinned versions.

Every check uses one of them against a server with a demo model and raises an exception if an answer is not what
the client's users would expect. `run.py --only openai` runs one of them.
"""

import argparse
import sys
import traceback

import agent_clients
import async_openai_client
import lm_eval_client
import load_clients
import npm_client
import openai_client
import rerank_clients
import schemathesis_client
import typesafe_client
from server import ROOT, Server

# The checks by name, each with the model that it needs.
CLIENTS = {
    "openai": ("demo", openai_client.check),
    "openai-npm": ("demo", npm_client.check),
    "async-openai": ("demo", async_openai_client.check),
    "typesafe": ("demo", typesafe_client.check),
    "cohere": ("demo", rerank_clients.check_cohere),
    "litellm": ("demo", rerank_clients.check_litellm),
    "lm-eval": ("demo", lm_eval_client.check),
    "guidellm": ("demo", load_clients.check_guidellm),
    "aiperf": ("demo", load_clients.check_aiperf),
    "openai-tools": ("demo", agent_clients.check_openai),
    "anthropic": ("demo", agent_clients.check_anthropic),
    "langchain-openai": ("demo", agent_clients.check_langchain),
    "pydantic-ai": ("demo", agent_clients.check_pydantic_ai),
    "openai-diffusion": ("demo-diffusion", openai_client.check_diffusion),
    "schemathesis": ("demo", schemathesis_client.check),
}


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
