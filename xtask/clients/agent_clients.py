"""Clients of agents against a model whose chat template knows tools: schemas, calls and their results, streamed and not.

`demo-chat` knows a toy world: it calls functions of its own accord and fills objects with what a sentence says. Checks of other clients
use the demo model, which writes nonsense: there each demands a call or a schema, which the server holds, and looks at what the client makes
of the answer.
"""

import enum
import json

import pydantic

from server import ROOT, Server

# The template of a family that marks calls, and short enough for the context of the demo model.
TEMPLATE = ROOT / "tests/golden/chat/qwen-2.5.jinja"
QUESTION = [{"role": "user", "content": "Who is king?"}]


class Land(enum.Enum):
    """A country."""

    ISRAEL = "Israel"
    JUDAH = "Judah"


class King(pydantic.BaseModel):
    """A king."""

    model_config = pydantic.ConfigDict(extra="forbid")

    land: Land
    years: int = pydantic.Field(ge=1, le=99)


SCHEMA = {
    "type": "object",
    "properties": {"land": {"enum": ["Israel", "Judah"]}},
    "required": ["land"],
    "additionalProperties": False,
}
FIND = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
LANDS = ("Israel", "Judah")
# What the chat model was trained for.
SENTENCE = [{"role": "user", "content": "Ruth is 32 years old and lives in Paris."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
GET_WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER}}
ASKED = [{"role": "user", "content": "What is the weather in Paris?"}]
REPORT, TOLD = "18 degrees and sunny", "It is 18 degrees and sunny in Paris."


class Person(pydantic.BaseModel):
    """A person."""

    name: str
    age: int
    city: str


RUTH = Person(name="Ruth", age=32, city="Paris")


def check_openai(_, binary):
    """`openai`: `parse`, streamed `parse`, calls and their results, Responses with tools."""
    import openai

    with Server(binary, "demo-chat", template=None) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        common = {"model": "demo-chat", "messages": SENTENCE, "max_tokens": 96}
        parsed = client.chat.completions.parse(**common, response_format=Person).choices[0].message.parsed
        assert parsed == RUTH, parsed
        with client.chat.completions.stream(**common, response_format=Person) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == RUTH
        called = {**common, "messages": ASKED, "tools": [GET_WEATHER]}
        whole = client.chat.completions.create(**called).choices[0]
        call = whole.message.tool_calls[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"}), call
        demanded = client.chat.completions.create(**called, tool_choice="required", parallel_tool_calls=False).choices[0]
        assert demanded.message.tool_calls[0].function == call.function
        with client.chat.completions.stream(**called) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls
        assert [one.model_dump(include={"id", "function"}) for one in streamed][0]["id"] == call.id
        assert streamed[0].function.arguments == call.function.arguments
        result = {"role": "tool", "tool_call_id": call.id, "content": REPORT}
        told = [*ASKED, whole.message.model_dump(exclude_none=True), result]
        after = client.chat.completions.create(model="demo-chat", messages=told, tools=[GET_WEATHER], max_tokens=32)
        assert after.choices[0].message.content == TOLD

        flat = {"type": "function", "name": "get_weather", "description": "The weather in a city", "parameters": WEATHER}
        request = {"model": "demo-chat", "input": ASKED, "tools": [flat], "max_output_tokens": 96}
        answer = client.responses.create(**request)
        assert answer.output[0].type == "function_call" and json.loads(answer.output[0].arguments) == {"city": "Paris"}
        with client.responses.stream(**request) as stream:
            assert stream.get_final_response().output[0].arguments == answer.output[0].arguments
        output = {"type": "function_call_output", "call_id": answer.output[0].call_id, "output": REPORT}
        items = [*ASKED, answer.output[0].model_dump(), output]
        assert client.responses.create(model="demo-chat", input=items, tools=[flat], max_output_tokens=32).output_text == TOLD
        assert client.responses.parse(model="demo-chat", input=SENTENCE, text_format=Person, max_output_tokens=96).output_parsed == RUTH


def check_anthropic(_, binary):
    """`anthropic`: messages, streams, calls and their results, counts of tokens."""
    import anthropic

    with Server(binary, "demo-chat", template=None) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        common = {"model": "demo-chat", "messages": QUESTION, "system": "Be brief.", "max_tokens": 96}
        plain = client.messages.create(**common)
        assert plain.content[0].text == "David is king." and plain.stop_reason == "end_turn"
        with client.messages.stream(**common) as stream:
            assert stream.get_final_message().content[0].text == plain.content[0].text
        tool = {"name": "get_weather", "description": "The weather in a city", "input_schema": WEATHER}
        called = {**common, "messages": ASKED, "tools": [tool]}
        whole = client.messages.create(**called)
        assert whole.stop_reason == "tool_use" and whole.content[0].input == {"city": "Paris"}
        demanded = client.messages.create(**called, tool_choice={"type": "any", "disable_parallel_tool_use": True})
        assert demanded.content[0].input == whole.content[0].input
        with client.messages.stream(**called) as stream:
            streamed = stream.get_final_message()
        assert streamed.content[0].input == whole.content[0].input and streamed.content[0].id == whole.content[0].id
        assert streamed.usage.output_tokens == whole.usage.output_tokens
        result = {"type": "tool_result", "tool_use_id": whole.content[0].id, "content": REPORT}
        told = [*ASKED, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
        after = client.messages.create(model="demo-chat", messages=told, tools=[tool], max_tokens=32)
        assert after.content[0].text == TOLD
        counted = client.messages.count_tokens(model="demo-chat", messages=told, tools=[tool])
        assert after.usage.input_tokens + after.usage.cache_read_input_tokens == counted.input_tokens
        try:
            client.messages.create(model="other", messages=QUESTION, max_tokens=4)
        except anthropic.NotFoundError as error:
            assert "other" in str(error)
        else:
            raise AssertionError("a model that there is not was answered")


def check_ollama(_, binary):
    """`ollama`: chats and texts, streamed and not, schemas, results of calls, vectors, and what the server has."""
    import ollama

    with Server(binary, "demo-chat", template=None) as server:
        client = ollama.Client(host=server.url)
        common = {"model": "demo-chat", "messages": SENTENCE, "options": {"num_predict": 96, "seed": 1}}
        whole = client.chat(**common, format=Person.model_json_schema())
        assert Person.model_validate_json(whole.message.content) == RUTH
        assert whole.done and whole.done_reason == "stop" and whole.eval_count > 3
        parts = list(client.chat(**common, format=Person.model_json_schema(), stream=True))
        assert "".join(part.message.content for part in parts) == whole.message.content
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1].eval_count == whole.eval_count and parts[-1].eval_duration > 0

        called = client.chat(model="demo-chat", messages=ASKED, tools=[GET_WEATHER]).message.tool_calls[0].function
        assert (called.name, called.arguments) == ("get_weather", {"city": "Paris"})
        call = {"function": {"name": called.name, "arguments": called.arguments}}
        told = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}]
        told.append({"role": "tool", "content": REPORT, "tool_name": "get_weather"})
        assert client.chat(model="demo-chat", messages=told, tools=[GET_WEATHER]).message.content == TOLD

        short = {"num_predict": 4}
        text = client.generate(model="demo-chat", prompt="In the beginning", raw=True, options=short)
        streamed = client.generate(model="demo-chat", prompt="In the beginning", raw=True, options=short, stream=True)
        assert text.response and "".join(part.response for part in streamed) == text.response

        assert [model.model for model in client.list().models] == ["demo-chat"]
        assert client.ps().models[0].context_length == 512
        assert client.show("demo-chat").capabilities == ["completion", "tools"]
        try:
            client.chat(model="other", messages=QUESTION)
        except ollama.ResponseError as error:
            assert error.status_code == 404 and "other" in error.error
        else:
            raise AssertionError("a model that there is not was answered")


def check_langchain(_, binary):
    """`langchain-openai`: every method of `with_structured_output`, and `bind_tools`."""
    import langchain_openai

    with Server(binary, "demo-chat", template=None) as server:
        model = langchain_openai.ChatOpenAI(model="demo-chat", base_url=f"{server.url}/v1", api_key="none", max_tokens=96, max_retries=0)
        for method in ("json_schema", "function_calling"):
            found = model.with_structured_output(Person, method=method).invoke(SENTENCE[0]["content"])
            assert isinstance(found, Person) and (method != "json_schema" or found == RUTH), method
        bound = model.bind_tools([GET_WEATHER])
        assert bound.invoke(ASKED[0]["content"]).tool_calls[0]["args"] == {"city": "Paris"}
        whole = None
        for chunk in bound.stream(ASKED[0]["content"]):
            whole = chunk if whole is None else whole + chunk
        assert whole.tool_calls[0]["args"] == {"city": "Paris"}


def check_pydantic_ai(_, binary):
    """`pydantic-ai`: an agent whose output is a tool, and one whose output is a schema."""
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    with Server(binary, "demo", template=TEMPLATE) as server:
        model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=f"{server.url}/v1", api_key="none"))
        settings = {"max_tokens": 80, "parallel_tool_calls": False}
        for output in (King, pydantic_ai.NativeOutput(King)):
            agent = pydantic_ai.Agent(model, output_type=output, model_settings=settings)
            assert isinstance(agent.run_sync("Who is king?").output, King)
