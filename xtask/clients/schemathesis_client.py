"""schemathesis: random requests from the OpenAPI document, valid and invalid, whose answers the document must describe.

Every check of schemathesis is on but `max_response_time`, which has no default. `schemathesis_hooks.py` lists the refusals of valid requests
that are correct, and why. The expected statuses below differ from the defaults of schemathesis: neither valid nor invalid requests may be
answered with 409, 429 or 5xx, which are expected by default; 408 and 413 are added.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from server import ROOT, Server

KEY = "key-of-the-tests"
# Examples per operation; operations without parameters need few.
EXAMPLES = 300
MIN_REQUESTS = 10_000
CONFIG = """\
seed = 1
continue-on-failure = true
request-timeout = 60.0
workers = 1

[generation]
database = "none"

[checks.positive_data_acceptance]
# 408: a request may ask for less time than it takes.
expected-statuses = ["2xx", "401", "403", "404", "408"]

[checks.negative_data_rejection]
# 408: as above. 413: TypeSafe's API and that of Text Embeddings Inference have this status for too many questions and texts.
expected-statuses = ["400", "401", "403", "404", "405", "408", "413", "415", "422"]
"""


def check(_, redline):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        keys, config, count = folder / "keys", folder / "schemathesis.toml", folder / "count"
        keys.write_text(f"tester {KEY}\n")
        config.write_text(CONFIG)
        adapters = ROOT / "models/demo-adapter"
        # Short sequences and a short time limit, because many requests generate without a limit.
        flags = ["--api-key-file", keys, "--adapter-root", adapters, "--adapter", f"jargon={adapters / 'jargon'}"]
        flags += ["--max-context", "256", "--request-timeout", "2"]
        with Server(redline, "demo", *map(str, flags)) as server:
            here = pathlib.Path(__file__).parent
            paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
            environment = os.environ | {
                "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": paths, "REQUEST_COUNT_FILE": str(count)
            }
            command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "--no-color", "run"]
            command += [f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}"]
            command += ["--max-examples", str(EXAMPLES)]
            code = subprocess.run(command, cwd=folder, env=environment).returncode
        requests = int(count.read_text())
    print(f"schemathesis sent {requests} requests")
    assert code == 0, "schemathesis reports failures"
    assert requests >= MIN_REQUESTS, f"{requests} requests are fewer than {MIN_REQUESTS}"
