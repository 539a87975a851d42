"""Clients for JavaScript, with the packages of `npm` and `npm/promptfoo`. The lock file of the latter would have 10,000 lines."""

import json
import os
import pathlib
import shutil
import subprocess

from agent_clients import TEMPLATE
from framework_clients import serve_long
from huggingface_clients import serve_embeddings
from server import ROOT, Server

SOURCES = pathlib.Path(__file__).parent / "npm"
# npm installs beside package.json, and the packages may not lie among the sources.
FOLDER = ROOT / "target/clients/npm"


def check_openai(url, _):
    """`openai`: `npm/openai.mjs`."""
    folder = install(SOURCES, FOLDER)
    shutil.copy(SOURCES / "openai.mjs", folder)
    subprocess.run(["node", "openai.mjs", url], cwd=folder, check=True)


def check_ai(_, binary):
    """`ai` of Vercel: `npm/ai.mjs`."""
    folder = install(SOURCES, FOLDER)
    shutil.copy(SOURCES / "ai.mjs", folder)
    with serve_long(binary) as server, serve_embeddings(binary) as embeddings:
        subprocess.run(["node", "ai.mjs", server.url, embeddings.url], cwd=folder, check=True)


def check_promptfoo(_, binary):
    """`promptfoo`: an answer that meets a schema and a call of a tool, by its own assertions."""
    # Its optional packages, such as browsers and models, take 1.6 GB. It needs one of them: a database, which package.json names.
    folder = install(SOURCES / "promptfoo", ROOT / "target/clients/promptfoo", "--omit=optional")
    shutil.copy(SOURCES / "promptfoo/promptfooconfig.yaml", folder)
    offline = ("TELEMETRY", "UPDATE", "REMOTE_GENERATION", "SHARING")
    variables = {f"PROMPTFOO_DISABLE_{name}": "1" for name in offline} | {"PROMPTFOO_CONFIG_DIR": str(folder / "state")}
    with Server(binary, "demo", template=TEMPLATE) as server:
        variables |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
        flags = ["--no-cache", "--no-write", "--no-table", "--no-progress-bar", "--output", "results.json"]
        command = ["node_modules/.bin/promptfoo", "eval", *flags]
        subprocess.run(command, cwd=folder, env=os.environ | variables, stdout=subprocess.DEVNULL, check=True)
    counts = json.loads((folder / "results.json").read_text())["results"]["stats"]
    assert (counts["successes"], counts["failures"], counts["errors"]) == (2, 0, 0), counts


def install(sources, folder, *flags):
    """Installs packages into a folder, unless they are installed, and returns the folder."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise RuntimeError(f"`{program}` is not on PATH\n\nhint: install Node.js and npm (Debian: apt-get install nodejs npm)")
    files = [path for path in (sources / "package.json", sources / "package-lock.json") if path.exists()]
    wanted = "".join(path.read_text() for path in files)
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copy(path, folder)
        command = ["ci"] if len(files) == 2 else ["install", "--no-package-lock"]
        subprocess.run(["npm", *command, "--ignore-scripts", "--no-audit", "--no-fund", *flags], cwd=folder, check=True)
        stamp.write_text(wanted)
    return folder
