"""Frameworks for agents and for structured output, each with a tool that a model calls or a type that an answer is parsed into.

Their own instructions are longer than the context of the demo model, so the server has a copy of it with a longer one.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import tempfile

import pydantic

from agent_clients import LANDS, QUESTION, SCHEMA, TEMPLATE, King, Land
from server import ROOT, Server

QUESTION_TEXT = QUESTION[0]["content"]
KINGS = {"Israel": "David", "Judah": "Josiah"}


@contextlib.contextmanager
def serve_long(binary):
    """A server with the demo model and a context of 8192 tokens, under the name `demo`."""
    source = ROOT / "models/demo"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            (pathlib.Path(folder) / name).symlink_to(source / name)
        config = json.loads((source / "config.json").read_text()) | {"max_position_embeddings": 8192}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        with Server(binary, folder, "--served-model-name", "demo", template=TEMPLATE) as server:
            yield server


def check_instructor(_, binary):
    """`instructor`: a model, a list of models and a partial model from a stream, by a tool and by a schema."""
    import instructor
    import openai

    class Reigns(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

        kings: list[King] = pydantic.Field(min_length=2, max_length=2)

    with serve_long(binary) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        common = {"model": "demo", "messages": QUESTION, "max_tokens": 320, "max_retries": 0}
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            patched = instructor.from_openai(client, mode=mode)
            king = patched.chat.completions.create(**common, response_model=King)
            assert king.land in Land and 1 <= king.years <= 99, mode
            assert len(patched.chat.completions.create(**common, response_model=Reigns).kings) == 2, mode
            # Parts are checked as Python values, and a strict check of these refuses the text of an enum.
            parts = list(patched.chat.completions.create_partial(**common, response_model=King, strict=False))
            assert parts[0].years is None and parts[-1].land in Land and 1 <= parts[-1].years <= 99, mode


def check_llama_index(_, binary):
    """`llama-index`: chat and its stream, `structured_predict` by tools and by a schema, a call and its result."""
    from llama_index.core.llms import ChatMessage, MessageRole
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def find(land: Land) -> str:
        """Finds the king of a land."""
        return KINGS[Land(land).value]

    with serve_long(binary) as server:
        model = OpenAILike(
            model="demo", api_base=f"{server.url}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True,
            should_use_structured_outputs=True, context_window=8192, max_tokens=96, max_retries=0,
        )
        question = [ChatMessage(role=MessageRole.USER, content=QUESTION_TEXT)]
        whole = model.chat(question).message.content
        assert whole and "".join(part.delta or "" for part in model.stream_chat(question)) == whole
        prompt = PromptTemplate("Who is king of {land}?")
        for structured in (True, False):
            model.should_use_structured_outputs = structured
            assert isinstance(model.structured_predict(King, prompt, land="Israel"), King), structured
        tool = FunctionTool.from_defaults(find)
        answer = model.chat_with_tools([tool], chat_history=question, tool_required=True)
        call = model.get_tool_calls_from_response(answer)[0]
        assert call.tool_name == "find" and call.tool_kwargs["land"] in LANDS
        content = tool.call(**call.tool_kwargs).content
        assert content == KINGS[call.tool_kwargs["land"]]
        result = ChatMessage(role=MessageRole.TOOL, content=content, additional_kwargs={"tool_call_id": call.tool_id})
        assert model.chat_with_tools([tool], chat_history=[*question, answer.message, result]).message.content


def check_haystack(_, binary):
    """`haystack-ai`: calls and their results, streamed and not, `response_format`, and an agent that calls a tool."""
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret

    with serve_long(binary) as server:
        model = OpenAIChatGenerator(
            model="demo", api_key=Secret.from_token("none"), api_base_url=f"{server.url}/v1", max_retries=0,
            generation_kwargs={"max_completion_tokens": 96},
        )
        tool = Tool(name="find", description="Finds the king of a land.", parameters=SCHEMA, function=lambda land: KINGS[land])
        question = [ChatMessage.from_user(QUESTION_TEXT)]
        called = {"tools": [tool], "generation_kwargs": {"tool_choice": "required", "parallel_tool_calls": False}}
        whole = model.run(question, **called)["replies"][0]
        assert whole.tool_call.arguments["land"] in LANDS and whole.meta["finish_reason"] == "tool_calls"
        parts = []
        assert model.run(question, **called, streaming_callback=parts.append)["replies"][0].tool_calls == whole.tool_calls
        arguments = [delta.arguments or "" for part in parts for delta in part.tool_calls or []]
        assert json.loads("".join(arguments)) == whole.tool_call.arguments
        told = [*question, whole, ChatMessage.from_tool("David", origin=whole.tool_call)]
        after = model.run(told, tools=[tool])["replies"][0]
        parts.clear()
        model.run(told, tools=[tool], streaming_callback=parts.append)
        assert after.text and "".join(part.content for part in parts) == after.text
        typed = model.run(question, generation_kwargs={"response_format": King})["replies"][0]
        assert King.model_validate_json(typed.text).land in Land

        agent = Agent(chat_generator=model, tools=[tool], max_agent_steps=1, exit_conditions=["find"])
        messages = agent.run(messages=question, generation_kwargs=called["generation_kwargs"])["messages"]
        assert messages[-1].tool_call_result.result == KINGS[messages[-2].tool_call.arguments["land"]]


def check_dspy(_, binary):
    """`dspy`: a typed signature with `JSONAdapter`, which sends the schema of its fields."""
    # Prices of models, which dspy would fetch from the network.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import dspy
    from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider

    class Find(dspy.Signature):
        """Finds a king."""

        question: str = dspy.InputField()
        king: King = dspy.OutputField()

    with serve_long(binary) as server:
        access = AccessPolicy(provider="redline", base_url=f"{server.url}/v1")
        provider = ProviderDefinition.chat(access, compat=OpenAIChatCompat(), placeholder_key="none")
        register_provider(provider, supports=ModelSupport(response_schema=True))
        model = dspy.LM("redline/demo", max_tokens=96, temperature=0, cache=False, num_retries=0)
        with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
            assert dspy.Predict(Find)(question=QUESTION_TEXT).king.land in Land
        assert "response_format" in model.history[-1]["kwargs"]


def check_openai_agents(_, binary):
    """`openai-agents`: a tool and its result, an output type and a handoff, by chat and by responses, streamed and not."""
    import agents
    import openai

    agents.set_tracing_disabled(True)
    calls = []

    @agents.function_tool
    def find(land: Land) -> str:
        """Finds the king of a land."""
        calls.append(land)
        return KINGS[land.value]

    async def use(kind, client):
        model = kind("demo", client)
        settings = agents.ModelSettings(max_tokens=96, tool_choice="required", parallel_tool_calls=False)
        scribe = agents.Agent(name="Scribe", instructions="Be brief.", model=model, tools=[find], model_settings=settings)
        whole = await agents.Runner.run(scribe, QUESTION_TEXT, max_turns=2)
        assert whole.final_output and whole.new_items[1].output == KINGS[calls[-1].value]
        stream = agents.Runner.run_streamed(scribe, QUESTION_TEXT, max_turns=2)
        texts = [event.data.delta async for event in stream.stream_events()
                 if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"]
        assert "".join(texts) == stream.final_output == whole.final_output
        assert len(calls) == 2 and calls[0] == calls[1]
        calls.clear()

        settings = agents.ModelSettings(max_tokens=96)
        historian = agents.Agent(name="Historian", model=model, output_type=King, model_settings=settings)
        assert (await agents.Runner.run(historian, QUESTION_TEXT)).final_output.land in Land
        front = agents.Agent(name="Front", model=model, handoffs=[historian], model_settings=scribe.model_settings)
        result = await agents.Runner.run(front, QUESTION_TEXT)
        assert result.last_agent is historian and isinstance(result.final_output, King)

    async def both(url):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
                await use(kind, client)

    with serve_long(binary) as server:
        asyncio.run(both(server.url))


def check_agent_framework(_, binary):
    """`agent-framework`: a tool and its result, an output type and a stream, by chat."""
    from agent_framework.openai import OpenAIChatCompletionClient

    with serve_long(binary) as server:
        asyncio.run(use_agent_framework(OpenAIChatCompletionClient(model="demo", base_url=f"{server.url}/v1", api_key="none")))


def check_agent_framework_responses(_, binary):
    """`agent-framework`: the same by responses, with a conversation that the client keeps."""
    from agent_framework.openai import OpenAIChatClient

    with serve_long(binary) as server:
        client = OpenAIChatClient(model="demo", base_url=f"{server.url}/v1", api_key="none")
        asyncio.run(use_agent_framework(client, store=False))


async def use_agent_framework(client, **options):
    from agent_framework import Agent, tool

    class Arguments(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

        land: Land

    calls = []

    @tool(schema=Arguments)
    def find(land: Land) -> str:
        """Finds the king of a land."""
        calls.append(land)
        return KINGS[Land(land).value]

    demand = {"max_tokens": 96, "tool_choice": "required", "allow_multiple_tool_calls": False}
    answer = await Agent(client, "Be brief.", tools=[find]).run(QUESTION_TEXT, options={**demand, **options})
    call, result = [content for message in answer.messages for content in message.contents][:2]
    assert call.type == "function_call" and len(calls) == 1
    assert result.type == "function_result" and result.result == KINGS[json.loads(call.arguments)["land"]]

    plain, options = Agent(client), {"max_tokens": 16, **options}
    whole = await plain.run(QUESTION_TEXT, options=options)
    stream = plain.run(QUESTION_TEXT, stream=True, options=options)
    assert len([part async for part in stream if part.text]) > 1
    assert whole.text and (await stream.get_final_response()).text == whole.text
    typed = await plain.run(QUESTION_TEXT, options={**options, "max_tokens": 96, "response_format": King})
    assert typed.value.land in Land


def check_semantic_kernel(_, binary):
    """`semantic-kernel`: a function that is called and its result, a response format, and a stream."""
    import openai
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    calls = []

    class Annals:
        @kernel_function(description="Finds the king of a land.")
        def find(self, land: Land) -> str:
            calls.append(land)
            return KINGS[Land(land).value]

    def history():
        history = ChatHistory()
        history.add_user_message(QUESTION_TEXT)
        return history

    async def use(url):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            service = OpenAIChatCompletion(ai_model_id="demo", async_client=client)
            kernel = Kernel()
            kernel.add_plugin(Annals(), "annals")
            required = FunctionChoiceBehavior.Required(auto_invoke=True)
            settings = OpenAIChatPromptExecutionSettings(max_tokens=96, function_choice_behavior=required, parallel_tool_calls=False)
            told = history()
            answer = await service.get_chat_message_content(told, settings, kernel=kernel)
            assert answer.content is not None and len(calls) == 1
            call, result = told.messages[1].items[0], told.messages[2].items[0]
            assert call.name == "annals-find" and result.result == KINGS[json.loads(call.arguments)["land"]]

            settings = OpenAIChatPromptExecutionSettings(max_tokens=96, response_format=King)
            typed = await service.get_chat_message_content(history(), settings)
            assert King.model_validate_json(typed.content).land in Land
            settings = OpenAIChatPromptExecutionSettings(max_tokens=16)
            whole = await service.get_chat_message_content(history(), settings)
            parts = [str(part) async for part in service.get_streaming_chat_message_content(history(), settings)]
            assert whole.content and "".join(parts) == whole.content

    with serve_long(binary) as server:
        asyncio.run(use(server.url))


def check_smolagents(_, binary):
    """`smolagents`: a stream, a call and its result, and an agent that calls a tool with its final answer."""
    import smolagents

    class Find(smolagents.Tool):
        name = "find"
        description = "Finds the king of a land."
        inputs = {"land": {"type": "string", "description": "A country.", "enum": list(LANDS)}}
        output_type = "string"

        def forward(self, land):
            return KINGS[land]

    class Answer(Find):
        name = "final_answer"
        description = "Ends with an answer."

    with serve_long(binary) as server:
        model = smolagents.OpenAIServerModel("demo", api_base=f"{server.url}/v1", api_key="none", max_tokens=96)
        question = [smolagents.ChatMessage(role="user", content=[{"type": "text", "text": QUESTION_TEXT}])]
        whole = model.generate(question)
        assert whole.content and "".join(part.content or "" for part in model.generate_stream(question)) == whole.content
        called = model.generate(question, tools_to_call_from=[Find()])
        assert json.loads(called.tool_calls[0].function.arguments)["land"] in LANDS
        agent = smolagents.ToolCallingAgent(tools=[Answer()], model=model, max_steps=1, verbosity_level=0)
        assert agent.run(QUESTION_TEXT) in KINGS.values()


def check_outlines(_, binary):
    """`outlines`: a model, a choice, a pattern and their streams, with its client of OpenAI and that of vLLM."""
    import typing

    import openai
    import outlines

    with serve_long(binary) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        for model in (outlines.from_openai(client, "demo"), outlines.from_vllm(client, "demo")):
            text = model(QUESTION_TEXT, King, max_tokens=96)
            assert King.model_validate_json(text).land in Land
            assert "".join(model.stream(QUESTION_TEXT, King, max_tokens=96)) == text
        assert model(QUESTION_TEXT, typing.Literal["Israel", "Judah"], max_tokens=16) in LANDS
        assert 10 <= int(model(QUESTION_TEXT, outlines.types.Regex("[1-9][0-9]"), max_tokens=16)) <= 99
        grammar = outlines.types.CFG('start: "Saul" " and " NAME\nNAME: /David|Jonathan/')
        assert model(QUESTION_TEXT, grammar, max_tokens=32) in ("Saul and David", "Saul and Jonathan")
