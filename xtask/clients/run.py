"""Uses `redline serve` through clients that others wrote, unchanged and with pinned versions.

Every check uses one of them against a server with a demo model and raises an exception if an answer is not what
the client's users would expect. `run.py --only openai` runs one of them, and
`run.py --group frameworks` those whose packages do not go together with the others.
"""

import argparse
import importlib
import sys
import traceback

from server import ROOT, Server

# The checks by name, each with the model that it needs, its function, and the group of packages that has its client. The group `base`
# is `requirements.txt`, and `frameworks` is `requirements-frameworks.txt`, with clients that need older packages than these.
CLIENTS = {
    "openai": ("demo", "openai_client.check", "base"),
    "openai-npm": ("demo", "npm_client.check_openai", "base"),
    "ai-npm": ("demo", "npm_client.check_ai", "base"),
    "promptfoo-npm": ("demo", "npm_client.check_promptfoo", "base"),
    "async-openai": ("demo", "async_openai_client.check", "base"),
    "typesafe": ("demo", "typesafe_client.check", "base"),
    "cohere": ("demo", "rerank_clients.check_cohere", "base"),
    "litellm": ("demo", "rerank_clients.check_litellm", "base"),
    "lm-eval": ("demo", "lm_eval_client.check", "base"),
    "guidellm": ("demo", "load_clients.check_guidellm", "base"),
    "aiperf": ("demo", "load_clients.check_aiperf", "base"),
    "openai-tools": ("demo", "agent_clients.check_openai", "base"),
    "anthropic": ("demo", "agent_clients.check_anthropic", "base"),
    "ollama": ("demo", "agent_clients.check_ollama", "base"),
    "langchain-openai": ("demo", "agent_clients.check_langchain", "base"),
    "pydantic-ai": ("demo", "agent_clients.check_pydantic_ai", "base"),
    "haystack": ("demo", "framework_clients.check_haystack", "base"),
    "dspy": ("demo", "framework_clients.check_dspy", "base"),
    "openai-agents": ("demo", "framework_clients.check_openai_agents", "base"),
    "agent-framework": ("demo", "framework_clients.check_agent_framework", "base"),
    "agent-framework-responses": ("demo", "framework_clients.check_agent_framework_responses", "base"),
    "semantic-kernel": ("demo", "framework_clients.check_semantic_kernel", "base"),
    "smolagents": ("demo", "framework_clients.check_smolagents", "base"),
    "outlines": ("demo", "framework_clients.check_outlines", "base"),
    "huggingface-hub": ("demo", "huggingface_clients.check_huggingface_hub", "base"),
    "tei-client": ("demo", "huggingface_clients.check_tei_client", "base"),
    "instructor": ("demo", "framework_clients.check_instructor", "frameworks"),
    "llama-index": ("demo", "framework_clients.check_llama_index", "frameworks"),
    "text-generation": ("demo", "huggingface_clients.check_text_generation", "frameworks"),
    "infinity-client": ("demo", "huggingface_clients.check_infinity_client", "frameworks"),
    "openai-diffusion": ("demo-diffusion", "openai_client.check_diffusion", "base"),
    "schemathesis": ("demo", "schemathesis_client.check", "base"),
}


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask clients", description=__doc__.splitlines()[0])
    parser.add_argument("--redline", default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--only", choices=list(CLIENTS), action="append", help="one client (repeatable)")
    parser.add_argument("--group", choices=["base", "frameworks"], default="base", help="the group of packages that are installed")
    arguments = parser.parse_args()
    failed = []
    names = [name for name in arguments.only or CLIENTS if CLIENTS[name][2] == arguments.group]
    for model in dict.fromkeys(CLIENTS[name][0] for name in names):
        with Server(arguments.redline, model) as server:
            for name in [name for name in names if CLIENTS[name][0] == model]:
                try:
                    load(CLIENTS[name][1])(server.url, arguments.redline)
                    print(f"ok      {name}", flush=True)
                except Exception:
                    traceback.print_exc()
                    print(f"FAILED  {name}", flush=True)
                    failed.append(name)
    return 1 if failed else 0


def load(path):
    """The function of a module that a path such as `openai_client.check` names; a module may need packages of its group."""
    module, function = path.split(".")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    sys.exit(main())
