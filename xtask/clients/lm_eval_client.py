"""lm-evaluation-harness: `local-completions` with the server's tokenizer; its log-likelihoods are those of `redline score`."""

import json
import math
import subprocess
import tempfile

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

PAIRS = [
    ("In the", " beginning"),
    ("In the", " end"),
    ("And God said, Let there be", " light"),
    ("And God said, Let there be light: and there was", " light and darkness"),
]


def check(url, redline):
    model = LocalCompletionsAPI(
        model="demo", base_url=f"{url}/v1/completions", tokenizer_backend="remote", tokenized_requests=True, num_concurrent=1,
        batch_size=4, max_length=511,
    )
    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=index) for index, pair in enumerate(PAIRS)
    ]
    answers = model.loglikelihood(requests)
    for (context, continuation), (logprob, _) in zip(PAIRS, answers, strict=True):
        ours = scored(redline, model.tok_encode(context), continuation)
        assert math.isclose(logprob, ours, rel_tol=0, abs_tol=2e-5), (context, continuation, logprob, ours)
        assert logprob < 0


def scored(redline, context, continuation):
    """The log-probability of the continuation of these ids, from the command line."""
    line = {"query": context[:-1], "items": [context[-1:]], "labels": [continuation], "long_labels": "sum"}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        done = subprocess.run(
            [redline, "score", "--model", "demo", "--jsonl", file.name], capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout)["meta"]["logprobs"][0][0]
