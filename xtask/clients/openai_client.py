"""The client of OpenAI: models, completions, chat, responses, decisions and embeddings, streamed and not, one by one and many at once."""

import asyncio

import openai

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Who is king?"}]},
]
USAGE = {"include_usage": True}


def check(url, _):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["demo"]
    completions(client)
    chat(client)
    responses(client)
    decisions(client)
    embeddings(client)
    errors(client)
    asyncio.run(at_once(url))


def completions(client):
    request = {"model": "demo", "prompt": ["In the beginning", "And God said"], "max_tokens": 12}
    whole = client.completions.create(**request)
    parts = list(client.completions.create(**request, stream=True, stream_options=USAGE))
    for choice in whole.choices:
        own = [part.choices[0] for part in parts if part.choices and part.choices[0].index == choice.index]
        assert "".join(one.text for one in own) == choice.text and choice.text
        assert own[-1].finish_reason == choice.finish_reason == "length"
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens


def chat(client):
    request = {"model": "demo", "messages": MESSAGES, "max_completion_tokens": 12, "n": 2, "temperature": 1, "seed": 3}
    request |= {"logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**request)
    parts = list(client.chat.completions.create(**request, stream=True, stream_options=USAGE))
    for choice in whole.choices:
        own = [part.choices[0] for part in parts if part.choices and part.choices[0].index == choice.index]
        assert own[0].delta.role == "assistant"
        assert "".join(one.delta.content or "" for one in own) == choice.message.content
        assert own[-1].finish_reason == choice.finish_reason
        assert [token for one in own if one.logprobs for token in one.logprobs.content] == choice.logprobs.content
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens


def responses(client):
    request = {"model": "demo", "input": [{"role": "user", "content": "Who is king?"}], "instructions": "Be brief."}
    request |= {"max_output_tokens": 12, "metadata": {"a": "b"}}
    whole = client.responses.create(**request)
    assert whole.status in ("completed", "incomplete") and whole.metadata == {"a": "b"}
    events = list(client.responses.create(**request, stream=True))
    assert events[0].type == "response.created" and events[-1].type == f"response.{whole.status}"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.total_tokens == whole.usage.total_tokens
    turns = request["input"] + [item.to_dict() for item in whole.output] + [{"role": "user", "content": "Why?"}]
    assert client.responses.create(model="demo", input=turns, max_output_tokens=4).output_text is not None


def decisions(client):
    questions = [
        {"type": "predicate", "name": "refund", "instructions": "A refund is due."},
        {"type": "choice", "name": "team", "instructions": "Which team?",
         "choices": [{"value": "billing", "description": "payments"}, {"value": True}]},
        {"type": "score", "instructions": "How urgent?", "levels": [{"label": "low"}, {"label": "middle"}, {"label": "high"}]},
    ]
    answer = client.decisions.create(model="demo", input="I was charged twice.", questions=questions)
    refund, team, urgency = answer.answers
    assert refund.name == "refund" and 0 < refund.probability < 1
    assert team.choice in ("billing", True) and abs(sum(p.probability for p in team.probabilities) - 1) < 1e-4
    assert 0 <= urgency.score <= 2 and len(urgency.probabilities) == 3
    alone = [client.decisions.create(model="demo", input="I was charged twice.", questions=[one]).answers[0] for one in questions]
    assert alone == [refund, team, urgency], "questions do not change each other"


def embeddings(client):
    # The demo model writes text, so the request says how it embeds. The client asks for base64 unless it is told otherwise.
    request = {"model": "demo", "input": ["Who is king?", "It rains."], "extra_body": {"pooling": "mean"}}
    whole, listed = (client.embeddings.create(**request, **more) for more in ({}, {"encoding_format": "float"}))
    for one, other in zip(whole.data, listed.data, strict=True):
        # The client reads base64 as 32-bit numbers, and a list as 64-bit numbers with the fewest digits.
        assert one.index == other.index and len(one.embedding) == len(other.embedding)
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding))
        assert abs(sum(value * value for value in one.embedding) - 1) < 1e-4
    assert whole.usage.total_tokens == listed.usage.total_tokens == whole.usage.prompt_tokens > 0
    short = client.embeddings.create(**request, dimensions=8)
    assert [len(one.embedding) for one in short.data] == [8, 8]


def errors(client):
    def refused(param, call):
        try:
            call()
        except openai.BadRequestError as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"`{param}` was not refused")

    tool = {"type": "function", "function": {"name": "f"}}
    refused("tools", lambda: client.chat.completions.create(model="demo", messages=MESSAGES, tools=[tool]))
    refused("previous_response_id", lambda: client.responses.create(model="demo", input="a", previous_response_id="r"))
    one_choice = {"type": "choice", "instructions": "q", "choices": [{"value": "a"}]}
    refused("questions[0].choices", lambda: client.decisions.create(model="demo", input="x", questions=[one_choice]))


async def at_once(url):
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    async def text(seed):
        stream = await client.chat.completions.create(
            model="demo", messages=MESSAGES, max_tokens=20, stream=True, seed=seed, temperature=1
        )
        return "".join([part.choices[0].delta.content or "" async for part in stream])

    texts = await asyncio.gather(*[text(number % 4) for number in range(32)])
    assert all(texts[number] == texts[number % 4] for number in range(32)), "the same seed gives the same text"


def check_diffusion(url, _):
    """Clients that know nothing of canvases read the same text from a stream, also if it tells the canvas."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    order = {"block_length": 8, "threshold": 0.4, "cache": "dual"}
    completion = {"model": "demo-diffusion", "prompt": ["In the beginning", "The <|mask|> said"], "max_tokens": 24}
    chat = {"model": "demo-diffusion", "messages": MESSAGES, "max_tokens": 24}
    for create, request, text in (
        (client.completions.create, completion, lambda choice: getattr(choice, "text", None)),
        (client.chat.completions.create, chat, lambda choice: choice.delta.content),
    ):
        whole = create(**request, extra_body=order)
        assert whole.meta["passes"] > 0 and whole.usage.completion_tokens >= 24
        canvas = order | {"stream_options": USAGE | {"include_canvas": True}}
        for extra in (order, canvas):
            parts = list(create(**request, stream=True, extra_body={"stream_options": USAGE} | extra))
            for choice in whole.choices:
                own = [part.choices[0] for part in parts if part.choices and part.choices[0].index == choice.index]
                said = choice.message.content if request is chat else choice.text
                assert "".join(text(one) or "" for one in own) == said, (said, own)
                assert own[-1].finish_reason == choice.finish_reason
            told = sum("canvas" in (part.choices[0].model_extra or {}) for part in parts if part.choices)
            # The canvas of each choice before its first pass, and every pass.
            assert told == (0 if extra is order else whole.meta["passes"] + len(whole.choices)), told
            assert parts[-1].usage.total_tokens == whole.usage.total_tokens
    response = client.responses.create(model="demo-diffusion", input="Who is king?", max_output_tokens=16, extra_body={"steps": 4})
    assert response.output_text
    try:
        client.completions.create(**completion, n=2)
        raise AssertionError("n was accepted")
    except openai.BadRequestError as error:
        assert error.param == "n", error
