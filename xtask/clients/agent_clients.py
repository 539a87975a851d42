"""Clients of agents against a model whose chat template knows tools: schemas, calls and their results, streamed and not.

The demo model writes nonsense; what holds it to a schema or a call is the server. So each check demands a call or a schema, and
looks at what its client makes of the answer.
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


def check_openai(_, binary):
    """`openai`: `parse`, streamed `parse`, calls and their results, Responses with tools."""
    import openai

    with Server(binary, "demo", template=TEMPLATE) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        common = {"model": "demo", "messages": QUESTION, "max_tokens": 96}
        parsed = client.chat.completions.parse(**common, response_format=King).choices[0].message.parsed
        assert parsed.land in Land and 1 <= parsed.years <= 99
        with client.chat.completions.stream(**common, response_format=King) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == parsed
        called = {**common, "tools": [FIND], "tool_choice": "required", "parallel_tool_calls": False}
        whole = client.chat.completions.create(**called).choices[0]
        call = whole.message.tool_calls[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None
        assert json.loads(call.function.arguments)["land"] in LANDS
        with client.chat.completions.stream(**called) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls
        assert [one.model_dump(include={"id", "function"}) for one in streamed][0]["id"] == call.id
        assert streamed[0].function.arguments == call.function.arguments
        result = {"role": "tool", "tool_call_id": call.id, "content": "David"}
        told = [*QUESTION, whole.message.model_dump(exclude_none=True), result]
        assert client.chat.completions.create(model="demo", messages=told, max_tokens=4).choices[0].finish_reason

        flat = {"type": "function", "name": "find", "parameters": SCHEMA}
        request = {"model": "demo", "input": QUESTION, "tools": [flat], "max_output_tokens": 96, "parallel_tool_calls": False}
        request["tool_choice"] = {"type": "function", "name": "find"}
        answer = client.responses.create(**request)
        assert answer.output[0].type == "function_call" and json.loads(answer.output[0].arguments)["land"] in LANDS
        with client.responses.stream(**request) as stream:
            assert stream.get_final_response().output[0].arguments == answer.output[0].arguments
        output = {"type": "function_call_output", "call_id": answer.output[0].call_id, "output": "David"}
        items = [*QUESTION, answer.output[0].model_dump(), output]
        assert client.responses.create(model="demo", input=items, max_output_tokens=4).status == "incomplete"
        assert client.responses.parse(model="demo", input=QUESTION, text_format=King, max_output_tokens=96).output_parsed == parsed


def check_anthropic(_, binary):
    """`anthropic`: messages, streams, calls and their results, counts of tokens."""
    import anthropic

    with Server(binary, "demo", template=TEMPLATE) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        common = {"model": "demo", "messages": QUESTION, "system": "Be brief.", "max_tokens": 96}
        plain = client.messages.create(**{**common, "max_tokens": 8})
        assert plain.content[0].text and plain.stop_reason == "max_tokens"
        with client.messages.stream(**{**common, "max_tokens": 8}) as stream:
            assert stream.get_final_message().content[0].text == plain.content[0].text
        tool = {"name": "find", "input_schema": SCHEMA}
        called = {**common, "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        whole = client.messages.create(**called)
        assert whole.stop_reason == "tool_use" and whole.content[0].input["land"] in LANDS
        with client.messages.stream(**called) as stream:
            streamed = stream.get_final_message()
        assert streamed.content[0].input == whole.content[0].input and streamed.content[0].id == whole.content[0].id
        assert streamed.usage.output_tokens == whole.usage.output_tokens
        result = {"type": "tool_result", "tool_use_id": whole.content[0].id, "content": "David"}
        told = [*QUESTION, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
        after = client.messages.create(model="demo", messages=told, tools=[tool], max_tokens=4)
        counted = client.messages.count_tokens(model="demo", messages=told, tools=[tool])
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

    with Server(binary, "demo", template=TEMPLATE) as server:
        client = ollama.Client(host=server.url)
        common = {"model": "demo", "messages": QUESTION, "options": {"num_predict": 96, "seed": 1}}
        whole = client.chat(**common, format=King.model_json_schema())
        parsed = King.model_validate_json(whole.message.content)
        assert parsed.land in Land and whole.done and whole.done_reason == "stop" and whole.eval_count > 3
        parts = list(client.chat(**common, format=King.model_json_schema(), stream=True))
        assert "".join(part.message.content for part in parts) == whole.message.content
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1].eval_count == whole.eval_count and parts[-1].eval_duration > 0

        call = {"function": {"name": "find", "arguments": {"land": "Israel"}}}
        told = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}]
        told.append({"role": "tool", "content": "David", "tool_name": "find"})
        short = {"num_predict": 4}
        after = client.chat(model="demo", messages=told, tools=[FIND], options=short)
        without = client.chat(model="demo", messages=QUESTION, options=short)
        assert after.prompt_eval_count > without.prompt_eval_count + 20

        text = client.generate(model="demo", prompt="In the beginning", raw=True, options=short)
        streamed = client.generate(model="demo", prompt="In the beginning", raw=True, options=short, stream=True)
        assert text.response and "".join(part.response for part in streamed) == text.response

        assert [model.model for model in client.list().models] == ["demo"]
        assert client.ps().models[0].context_length == 512
        assert client.show("demo").capabilities == ["completion", "tools"]
        try:
            client.chat(model="other", messages=QUESTION)
        except ollama.ResponseError as error:
            assert error.status_code == 404 and "other" in error.error
        else:
            raise AssertionError("a model that there is not was answered")


def check_langchain(_, binary):
    """`langchain-openai`: every method of `with_structured_output`, and `bind_tools`."""
    import langchain_openai

    with Server(binary, "demo", template=TEMPLATE) as server:
        model = langchain_openai.ChatOpenAI(model="demo", base_url=f"{server.url}/v1", api_key="none", max_tokens=96, max_retries=0)
        for method in ("json_schema", "function_calling"):
            assert isinstance(model.with_structured_output(King, method=method).invoke("Who is king?"), King), method
        bound = model.bind_tools([FIND], tool_choice="any", parallel_tool_calls=False)
        assert bound.invoke("Who is king?").tool_calls[0]["args"]["land"] in LANDS
        whole = None
        for chunk in bound.stream("Who is king?"):
            whole = chunk if whole is None else whole + chunk
        assert whole.tool_calls[0]["args"]["land"] in LANDS


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
