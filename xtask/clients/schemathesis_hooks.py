"""Hooks of schemathesis: count the requests, name a model and an adapter that exist, and ignore failures that are none.

No check is excluded. Each rule below names a fact that a schema cannot state, by the message in which the server states it.
"""

import atexit
import os
import pathlib
import re

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# Why a request that is valid by its schema may be refused.
RIGHT_REFUSALS = [
    # The schemas do not know the model: its context, its vocabulary, its name, how its tokenizer divides a label, whether it begins
    # an empty text with a token, and how it embeds texts.
    r"exceeds? the (context|maximum of)",
    r"does not say how the states of a text become its embedding|\d+ dimensions, but an embedding of this model has|there is no prompt `",
    r"token ids? outside 0\.\.|is no token; there are",
    r"makes no sparse vectors|makes no vectors of single tokens|only dense vectors have a pooling|base64 is for dense vectors",
    # How large an answer is depends on the sizes of the model, and all answers together have a limit.
    r"the answer may take \d+ bytes of memory, and all answers together have",
    r"is the name of the model; give the adapter another",
    r"a label must be one token|a label has at most \d+ tokens",
    r"query and item have 0 tokens together",
    # JSON Schema counts 7.0 as an integer. The server reads integers that are written as such, as most servers do.
    r"invalid type: floating point",
    # Numbers are read as f32, in which 5e-324 is 0, and 0 is refused.
    r"`(top_p|typical_p|repetition_penalty)` is 0; give a number above 0",
    r"greedy continuations are all the same; give a `temperature` above 0",
    # Fields and elements that depend on each other by their values: elements that differ in one of their keys, lists of equal lengths,
    # parts that are not empty together, outputs of earlier calls, numbers that are equal or ordered.
    r"is the value of an earlier choice",
    r"elements and `\w+` ",
    r"`questions\[\d+\]\.instructions` is empty",
    r"names no call before it",
    r"`max_completion_tokens` is \d+, and `max_tokens` is \d+",
    r"`best_of` is \d+; give a number from \d+ to 128|`best_of` is above `n`, and the best are known only at the end",
    # Texts that become equal, or that the template cannot place.
    r"are the same tokens",
    r"the template has `\{\w+\}` \d+ times|both `add_generation_prompt` and `continue_final_message`|the final message has no ",
    r"the template argument `\w+` has a place of its own in a request",
    # Tokens that mark gaps, calls that the template writes, and layers are those of the model.
    r"has no tokens that mark a gap|has no calls of tools|but the model has \d+, from 0",
    r"the conversation has 0 messages|two tools are named|give blocks of type |`tool_choice` is \{",
    # Over how many tokens repetitions are counted, and whether a text is JSON, or a schema one that says anything.
    r"repetitions are counted over all tokens|not valid JSON|no schema is given|a schema is given for the type|a JSON schema is an object",
    # Which texts are grammars and regular expressions, and at most one of many fields, whatever they are.
    r"no finite answer meets the schema|docs/generation.md says what grammars may have|both say what the text has to be|does not have exactly one grammar",
    # What a block or a stream has depends on other fields, and a system message on whether the model has a chat template.
    r"is missing; give it|a receipt is part of a whole answer|is not formatted by a chat template",
    # A path names a directory of the server.
    r"below the root of adapters",
]

count = 0


@schemathesis.hook
def after_call(context, case, response):
    global count
    count += 1


@atexit.register
def write_count():
    pathlib.Path(os.environ["REQUEST_COUNT_FILE"]).write_text(str(count))


@schemathesis.hook
def map_body(context, body):
    """Asks for the model and an adapter that exist in most requests that name some: others end with 404, and nothing else is tried."""
    if isinstance(body, dict):
        # Any text is valid here, so that an invalid body stays invalid.
        for field, known in (("model", "demo"), ("adapter", "jargon")):
            if isinstance(body.get(field), str) and len(body[field]) % 8:
                body[field] = known
    return body


def message_of(response):
    """The message of an error in OpenAI's form or in that of Text Embeddings Inference."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return error if isinstance(error, str) else error["message"]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether a failure counts."""
    message = message_of(response)
    # With the header `X-Queue-Timeout: 0`, a request asks to be refused with 503, or 429 in the form of Text Embeddings Inference, unless
    # it is begun at once.
    impatient = any(name.lower() == "x-queue-timeout" for name in case.headers or {})
    if impatient and response.status_code in (429, 503) and "was not begun within its time" in message:
        return False
    # A server ignores header fields that it does not know (RFC 9110, 5.1).
    if isinstance(failure, AcceptedNegativeData) and "in header - object with unexpected properties" in failure.message:
        return False
    if isinstance(failure, RejectedPositiveData):
        # What this route takes depends on what the model is for.
        if case.operation.path == "/":
            return False
        return not any(re.search(pattern, message) for pattern in RIGHT_REFUSALS)
    return True
