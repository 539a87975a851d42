"""Write chat/manifest.json: what transformers renders from the chat templates in chat/.

    python chat.py             rewrite chat/manifest.json, from the templates that lie there
    python chat.py --check     render and compare with what lies there

The templates are written for this test. They have the formats and the constructs of published ones (Llama 3.1 and 3.2, Qwen2.5,
Qwen3, Mistral 7B v0.3, Mistral Nemo, Gemma 2, Phi-3, Phi-4, Phi-4-mini), with instructions in words of their own;
`constructs.jinja` has what others use, `tool-use.jinja` is chosen where tools are given. Needs transformers and Jinja2 in the
versions of requirements.txt; torch is not needed.

chat/manifest.json: the versions, the special tokens, the date of `strftime_now`, conversations and tools by name, and a list of
cases. A case has a template, the names of its conversation and tools, the arguments of `apply_chat_template`, and the text or the
error.
"""

import argparse
import datetime
import json
from pathlib import Path

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils

HERE = Path(__file__).resolve().parent / "chat"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
DATE = datetime.datetime(2026, 7, 6)

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place, in \u00b0C & \"words\"",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "City"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
TOOLS = {"one": [WEATHER], "two": [WEATHER, CLOCK], "none": []}


def turn(role, content, **more):
    return {"role": role, "content": content} | more


def call(name, arguments, number):
    return {"type": "function", "id": f"call{number:05}", "function": {"name": name, "arguments": arguments}}


USER = turn("user", "  What is <b>2 & 3</b>? \"Five\", \u00fcber\n")
THOUGHT = turn("assistant", "<think>\nso it is\n</think>\n\nYes.")
CALLED = turn("assistant", None, tool_calls=[call("weather", {"place": "K\u00f6ln", "days": 2}, 1)])
TWO_CALLS = turn("assistant", "Both.", tool_calls=[call("weather", {"place": "Rome"}, 1), call("clock", {}, 2)])
RESULTS = [turn("tool", "18 \u00b0C", name="weather", tool_call_id="call00001"), turn("tool", "12:30", name="clock", tool_call_id="call00002")]
CONVERSATIONS = {
    "one": [USER],
    "system": [turn("system", " Be short.\n"), turn("user", "Hello"), THOUGHT, turn("user", "Why? \u4f60\u597d\U0001f600")],
    "turns": [turn("user", "Hello"), THOUGHT, turn("user", "Why?"), turn("assistant", "Because. ")],
    "reasoning": [turn("user", "Hello"), turn("assistant", "Yes.", reasoning_content="so it is\n")],
    "thinking": [turn("user", "Hello"), turn("assistant", "Yes.", thinking="so it is")],
    "call": [turn("user", "Weather?"), CALLED, RESULTS[0]],
    "calls": [turn("system", "Help."), turn("user", "Weather and time?"), TWO_CALLS, *RESULTS, turn("assistant", "18 \u00b0C at 12:30."), turn("user", "Thanks")],
    "parts": [turn("user", [{"type": "text", "text": "One"}, {"type": "text", "text": " two "}]), turn("assistant", [{"type": "text", "text": "Three "}])],
    "mixed up": [turn("user", "Hello"), turn("user", "Hello again")],
    "unknown role": [turn("wizard", "Hello")],
}
DOCUMENTS = [{"title": "Moon", "text": "It is \"far\"."}, {"id": 7, "title": "Sun"}]
PROMPT = {"add_generation_prompt": True}
CONTINUE = {"continue_final_message": True}
FAMILIES = ["llama-3.1", "llama-3.2", "qwen-2.5", "qwen-3", "mistral-v0.3", "mistral-nemo", "gemma-2", "phi-3", "phi-4", "phi-4-mini"]


def requests(template):
    """What a template is rendered with: conversation, tools, arguments."""
    if template == "constructs":
        yield from ((name, tools, {}) for name in ("one", "turns", "call", "mixed up") for tools in (None, "two"))
        yield "one", None, {"documents": DOCUMENTS}
        return
    if template == "parts":
        yield from (("parts", None, more) for more in ({}, PROMPT, CONTINUE))
        yield "one", None, CONTINUE
        return
    if template == "tool-use":
        yield "one", "two", {}
        return
    for name in CONVERSATIONS:
        if name != "parts":
            yield from ((name, None, more) for more in ({}, PROMPT))
    yield from ((name, None, CONTINUE) for name in ("turns", "one", "system"))
    yield from ((name, "two", PROMPT) for name in ("one", "system", "call", "calls"))
    yield "one", "none", PROMPT
    yield "one", None, PROMPT | {"bos_token": "<other>"}
    if template == "llama-3.1":
        yield "one", "one", PROMPT | {"tools_in_user_message": False, "date_string": "1 Jan 2030"}
        yield "call", "one", PROMPT | {"builtin_tools": ["weather", "code_interpreter"]}
        yield "turns", None, PROMPT | {"builtin_tools": ["search", "code_interpreter"]}
    if template == "qwen-3":
        for thinks in (False, True):
            yield from ((name, tools, PROMPT | {"enable_thinking": thinks}) for name in ("one", "calls") for tools in (None, "one"))


class Midnight(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return DATE


def tokenizer():
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, **TOKENS)


def rendered(tokenizer, template, conversation, tools, arguments):
    tokenizer.chat_template = template
    try:
        return {"text": tokenizer.apply_chat_template(conversation, tools=tools, tokenize=False, **arguments)}
    except Exception as error:  # what a template raises, whatever its class
        return {"error": f"{type(error).__name__}: {error}"}


def manifest():
    chat_template_utils.datetime = Midnight
    encoder = tokenizer()
    sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.jinja"))}
    assert set(sources) == {*FAMILIES, "constructs", "parts", "tool-use"}, sorted(sources)
    cases = []
    for name, source in sources.items():
        # A model whose templates have names: one for conversations with tools.
        template = {"default": "{{ raise_exception('not chosen') }}", "tool_use": source} if name == "tool-use" else source
        for conversation, tools, arguments in requests(name):
            found = rendered(encoder, template, CONVERSATIONS[conversation], TOOLS.get(tools), arguments)
            cases.append({"template": name, "conversation": conversation, "tools": tools, "arguments": arguments} | found)
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
    return {
        "versions": versions,
        "tokens": TOKENS,
        "date": str(DATE.date()),
        "conversations": CONVERSATIONS,
        "tools": TOOLS,
        "cases": cases,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file here instead of writing it")
    arguments = parser.parse_args()
    made, path = manifest(), HERE / "manifest.json"
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    errors = sum("error" in case for case in made["cases"])
    print(f"{len(made['cases'])} cases, {errors} errors")
    if not arguments.check:
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{path} differs")


if __name__ == "__main__":
    main()
