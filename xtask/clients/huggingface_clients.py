"""Clients of Hugging Face and of Infinity: texts and their streams, chat, embeddings, similarities, classes and relevance."""

import contextlib
import json
import math
import pathlib
import tempfile

from agent_clients import FIND, LANDS, QUESTION, SCHEMA, TEMPLATE
from server import ROOT, Server

PROMPT = "In the beginning"
TEXTS = ["It rains.", "Henry is king."]
DOCUMENTS = [*TEXTS, "A horse."]


@contextlib.contextmanager
def serve_embeddings(binary):
    """A server with the demo model as one that embeds: the mean of the states of a text, of length 1."""
    source = ROOT / "models/demo"
    modules = ["Transformer", "Pooling", "Normalize"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (folder / file).symlink_to(source / file)
        steps = [{"idx": at, "name": str(at), "path": f"{at}_{step}" if at else "", "type": f"sentence_transformers.models.{step}"}
                 for at, step in enumerate(modules)]
        (folder / "modules.json").write_text(json.dumps(steps))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 256, "pooling_mode_mean_tokens": True}))
        # One with classes is a classifier to its clients.
        with Server(binary, folder, "--served-model-name", "demo", classes=()) as server:
            yield server


def cosine(one, other):
    """The cosine of the angle between two vectors."""
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def check_huggingface_hub(url, binary):
    """`huggingface_hub`: texts and their streams, chat with calls and a schema, embeddings and similarities."""
    import huggingface_hub

    client = huggingface_hub.InferenceClient(model=url)
    text = client.text_generation(PROMPT, max_new_tokens=12)
    assert text and "".join(client.text_generation(PROMPT, max_new_tokens=12, stream=True)) == text
    whole = client.text_generation(PROMPT, max_new_tokens=12, details=True)
    parts = list(client.text_generation(PROMPT, max_new_tokens=12, details=True, stream=True))
    assert whole.details.finish_reason == "length" and whole.details.generated_tokens == len(whole.details.tokens) == 12
    assert [part.token.text for part in parts] == [token.text for token in whole.details.tokens]
    assert parts[-1].generated_text == whole.generated_text == text
    grammar = huggingface_hub.TextGenerationInputGrammarType(type="json", value=SCHEMA)
    assert json.loads(client.text_generation(PROMPT, max_new_tokens=64, grammar=grammar))["land"] in LANDS

    with Server(binary, "demo", template=TEMPLATE) as server:
        client = huggingface_hub.InferenceClient(base_url=f"{server.url}/v1", api_key="none")
        chat(lambda **more: client.chat_completion(QUESTION, model="demo", max_tokens=96, **more))
    with serve_embeddings(binary) as server:
        client = huggingface_hub.InferenceClient(model=server.url)
        rows = client.feature_extraction(TEXTS)
        assert rows.shape == (2, 256) and abs(cosine(rows[0], rows[0]) - 1) < 1e-5
        scores = huggingface_hub.InferenceClient(model=f"{server.url}/similarity").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
        assert all(abs(score - cosine(rows[0], row)) < 1e-4 for score, row in zip(scores, rows, strict=True))


def chat(create):
    """A text and its stream, a call and its stream, and an answer that meets a schema."""
    whole = create().choices[0].message.content
    assert whole and "".join(part.choices[0].delta.content or "" for part in create(stream=True) if part.choices) == whole
    called = {"tools": [FIND], "tool_choice": "required", "extra_body": {"parallel_tool_calls": False}}
    answer = create(**called).choices[0]
    function = answer.message.tool_calls[0].function
    assert answer.finish_reason == "tool_calls" and function.name == "find" and json.loads(function.arguments)["land"] in LANDS
    pieces = [call for part in create(**called, stream=True) for call in part.choices[0].delta.tool_calls or []]
    assert "".join(piece.function.arguments or "" for piece in pieces) == function.arguments
    format = {"type": "json_schema", "json_schema": {"name": "find", "schema": SCHEMA, "strict": True}}
    assert json.loads(create(response_format=format).choices[0].message.content)["land"] in LANDS


def check_text_generation(url, _):
    """`text-generation`: a text with its details, a stream that adds up to it, a grammar, and an error."""
    import text_generation

    client = text_generation.Client(url)
    whole = client.generate(PROMPT, max_new_tokens=12)
    parts = list(client.generate_stream(PROMPT, max_new_tokens=12))
    assert whole.generated_text and whole.details.finish_reason.value == "length"
    assert "".join(part.token.text for part in parts) == whole.generated_text == parts[-1].generated_text
    assert [part.token.logprob for part in parts] == [token.logprob for token in whole.details.tokens]
    grammar = {"type": "json", "value": SCHEMA}
    assert json.loads(client.generate(PROMPT, max_new_tokens=64, grammar=grammar).generated_text)["land"] in LANDS
    try:
        client.generate(PROMPT, max_new_tokens=4, watermark=True)
    except text_generation.errors.ValidationError as error:
        assert "watermark" in str(error)
    else:
        raise AssertionError("`watermark` was not refused")


def check_tei_client(url, binary):
    """`tei-client`: the kind of a model, classes, tokens and their text, and embeddings."""
    import tei_client

    client = tei_client.HttpClient(url)
    assert client.health() and client.info().server_model_type == tei_client.ModelType.Classifier
    single, pair = client.classify("I loved it"), client.classify([("It rains.", "It is wet.")])
    for result in (*single, *pair):
        assert {score.label for score in result.scores} == {"good", "bad"}
        assert abs(sum(score.score for score in result.scores) - 1) < 1e-4
    tokens = client.tokenize(TEXTS)
    assert len(tokens) == 2 and client.decode([one.get_ids() for one in tokens]) == TEXTS
    with serve_embeddings(binary) as server:
        client = tei_client.HttpClient(server.url)
        assert client.info().server_model_metadata.pooling == "mean"
        rows = client.embed(TEXTS)
        assert len(rows) == 2 and all(abs(sum(value * value for value in row) - 1) < 1e-4 for row in rows)
        # The bits of a text do not depend on the others.
        assert client.embed(TEXTS[1]) == rows[1:]


def check_infinity_client(_, binary):
    """`infinity-client`: embeddings and relevance, at routes that begin with `/v1`, which is a setting of Infinity."""
    from infinity_client import Client
    from infinity_client.api.default import embeddings, rerank
    from infinity_client.models import OpenAIEmbeddingInputText, RerankInput

    with serve_embeddings(binary) as server:
        client = Client(base_url=f"{server.url}/v1", raise_on_unexpected_status=True)
        answer = embeddings.sync(client=client, body=OpenAIEmbeddingInputText(input_=TEXTS, model="demo"))
        assert [one.index for one in answer.data] == [0, 1] and answer.usage.total_tokens > 0
        assert all(abs(sum(value * value for value in one.embedding) - 1) < 1e-4 for one in answer.data)
        ranked = rerank.sync(client=client, body=RerankInput(query="Who is king?", documents=DOCUMENTS, model="demo"))
        scores = [one.relevance_score for one in ranked.results]
        assert scores == sorted(scores, reverse=True) and sorted(one.index for one in ranked.results) == [0, 1, 2]
        first = rerank.sync(client=client, body=RerankInput(query="Who is king?", documents=DOCUMENTS, model="demo", top_n=1))
        assert [one.index for one in first.results] == [ranked.results[0].index]
