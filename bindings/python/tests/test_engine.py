"""The engine as people call it from Python."""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT

import redline

QUERY = "The king is "
ITEMS = ["old.", "young.", "not here."]
LABELS = [5, 9, 272]


def run(script, *arguments, **options):
    """Runs Python in a process of its own."""
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300, **options)


def test_scores_are_a_row_for_each_item(engine):
    scores = engine.score(QUERY, ITEMS, LABELS)
    assert [len(row) for row in scores] == [3, 3, 3]
    assert all(0 < p < 1 for row in scores for p in row)
    normalised = engine.score(QUERY, ITEMS, LABELS, apply_softmax=True)
    assert [sum(row) for row in normalised] == pytest.approx([1, 1, 1])
    assert engine.score(QUERY, "old.", LABELS) == scores[:1]
    assert engine.score(QUERY, [], LABELS) == [] and engine.score_array(QUERY, [], LABELS).shape == (0, 3)
    assert engine.score("old.", [QUERY], LABELS, item_first=True) != engine.score("old.", [QUERY], LABELS)


def test_texts_and_ids_and_arrays_are_one(engine):
    encode = engine.tokenizer.encode
    query = encode(QUERY, add_special_tokens=True)
    items = [encode(item, add_special_tokens=False) for item in ITEMS]
    want = engine.score(QUERY, ITEMS, LABELS, tokenization="separate")
    assert engine.score(query, items, LABELS, tokenization="separate") == want
    arrays = [np.array(item, dtype=np.uint16) for item in items]
    assert engine.score(np.array(query), arrays, np.array(LABELS, dtype=np.int32), tokenization="separate") == want
    texts = [engine.tokenizer.decode([label]) for label in LABELS[1:]]
    assert engine.score(QUERY, ITEMS, labels=texts) == [row[1:] for row in engine.score(QUERY, ITEMS, LABELS)]


def test_every_kind_can_be_awaited(engine):
    async def all_of_them():
        return await asyncio.gather(
            engine.score_async(QUERY, ITEMS, LABELS),
            engine.classify_async(ITEMS, ["good", "bad"]),
            engine.rerank_async("Who?", ITEMS),
            engine.embed_async(ITEMS, pooling="mean"),
            engine.answer_async("generate", prompt="So", max_new_tokens=2),
        )

    scores, classes, ranked, vectors, answer = asyncio.run(all_of_them())
    assert scores == engine.score(QUERY, ITEMS, LABELS)
    assert classes == engine.classify(ITEMS, ["good", "bad"])
    assert ranked == engine.rerank("Who?", ITEMS)
    assert np.array_equal(vectors, engine.embed(ITEMS, pooling="mean"))
    assert answer["choices"] == engine.generate("So", 2)["choices"]
    with pytest.raises(redline.RequestError, match="no request is called 'sing'"):
        asyncio.run(engine.answer_async("sing"))


def test_an_array_has_the_same_bits(engine):
    array = engine.score_array(QUERY, ITEMS, LABELS)
    assert (array.dtype, array.shape) == (np.float32, (3, 3))
    assert array.astype(float).tolist() == engine.score(QUERY, ITEMS, LABELS)


def test_an_item_that_fails_leaves_the_others(engine):
    items = ["old.", "a " * 900, "young."]
    scores = engine.score(QUERY, items, LABELS, item_errors=True)
    assert scores[1] is None and len(scores[0]) == len(scores[2]) == 3
    array = engine.score_array(QUERY, items, LABELS, item_errors=True)
    assert np.isnan(array[1]).all() and not np.isnan(array[[0, 2]]).any()
    with pytest.raises(redline.RequestError, match="512"):
        engine.score(QUERY, items, LABELS)
    answer = engine.answer("score", query=QUERY, items=items, label_token_ids=LABELS, item_errors=True)
    assert answer["scores"] == scores and answer["meta"]["item_errors"][0]["index"] == 1
    own = {"item_labels": [[5, 9], [5], [9, 5]], "item_errors": True}
    assert [row and len(row) for row in engine.score(QUERY, items, **own)] == [2, None, 2]
    with pytest.raises(redline.RequestError, match="rows of 2 and of 1 labels"):
        engine.score_array(QUERY, items, **own)


@pytest.mark.parametrize("arguments", [{"threads": 1}, {"threads": 3}, {"isa": "scalar"}, {"tp_size": 2}, {"prefix_cache": False}])
def test_bits_depend_on_no_argument_of_the_machine(engine, words, arguments):
    items = [" ".join(words[at : at + 9]) for at in range(0, 200, 10)]
    with redline.Engine("demo", **arguments) as other:
        assert (other.score_array("", items, LABELS) == engine.score_array("", items, LABELS)).all()
        assert other.generate(QUERY, 20)["choices"] == engine.generate(QUERY, 20)["choices"]
        assert (other.embed(items, pooling="mean") == engine.embed(items, pooling="mean")).all()


@pytest.mark.skipif("REDLINE" not in os.environ, reason="REDLINE names no binary to compare with")
def test_answers_are_those_of_the_command_line(engine, words):
    def lines(command, fields):
        call = [os.environ["REDLINE"], command, "--model", "demo", "--quiet", "--jsonl", "-"]
        given = "".join(json.dumps(one) + "\n" for one in fields)
        answers = subprocess.run(call, input=given, capture_output=True, text=True, check=True).stdout
        return [json.loads(line) for line in answers.splitlines()]

    fields = [{"query": " ".join(words[at : at + 8]), "items": words[at + 8 : at + 12], "label_token_ids": LABELS} for at in range(40)]
    for one, answer in zip(fields, lines("score", fields), strict=True):
        assert np.array_equal(np.float32(answer["scores"]), engine.score_array(**one))
    prompts = [{"prompt": " ".join(words[at : at + 5]), "max_new_tokens": 9, "temperature": 0.7, "seed": at} for at in range(9)]
    for one, answer in zip(prompts, lines("generate", prompts), strict=True):
        assert answer["choices"][0]["token_ids"] == engine.generate(**one)["choices"][0]["token_ids"]
    texts = [{"text": " ".join(words[:n]), "pooling": "mean"} for n in (3, 30)]
    for one, answer in zip(texts, lines("embed", texts), strict=True):
        assert np.array_equal(np.float32(answer["embeddings"]), engine.embed(one["text"], pooling="mean"))
    judged = {"text": "What a day!", "classes": [" good", " bad"], "template": "{text} It was"}
    (answer,) = lines("classify", [judged])
    (mine,) = engine.classify("What a day!", [" good", " bad"], template="{text} It was")
    assert np.float32(mine["probabilities"]).tolist() == np.float32(answer["results"][0]["probabilities"]).tolist()
    call = [os.environ["REDLINE"], "perplexity", "--model", "demo", "--json", "--quiet", "--text", " ".join(words[:700])]
    said = json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
    assert said["perplexity"] == engine.perplexity(" ".join(words[:700]))["perplexity"]
    (answer,) = lines("rerank", [{"query": "king", "documents": ITEMS}])
    assert [found["index"] for found in answer["results"]] == [found["index"] for found in engine.rerank("king", ITEMS)]


def test_texts_get_a_class_and_documents_an_order(engine):
    results = engine.classify(["What a day!", "No."], [" good", " bad"])
    assert [set(one) >= {"class", "probabilities", "margin"} for one in results] == [True, True]
    assert all(sum(one["probabilities"]) == pytest.approx(1) for one in results)
    ranked = engine.rerank("king", ITEMS, top_n=2)
    assert len(ranked) == 2 and ranked[0]["relevance"] >= ranked[1]["relevance"]


def test_a_vector_has_length_one(engine):
    vectors = engine.embed(["a", "A longer text."], pooling="mean")
    assert (vectors.dtype, vectors.shape) == (np.float32, (2, 256))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-6)
    assert engine.embed("a", pooling="mean", dimensions=64).shape == (1, 64)


def test_the_pieces_of_a_stream_make_up_the_text(engine):
    choice = engine.generate(QUERY, 24, seed=3, temperature=0.8)["choices"][0]
    pieces = list(engine.stream(QUERY, 24, seed=3, temperature=0.8))
    assert "".join(piece.text for piece in pieces) == choice["text"]
    assert [piece.token_id for piece in pieces] == choice["token_ids"]
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [choice["finish_reason"]]
    two = list(engine.stream(QUERY, 6, n=2, seed=3, temperature=0.8))
    assert sorted({piece.continuation for piece in two}) == [0, 1]
    with pytest.raises(redline.RequestError, match="best 1 of 3"):
        list(engine.stream(QUERY, 6, best_of=3, temperature=0.8))
    with pytest.raises(redline.RequestError, match="context"):
        list(engine.stream(QUERY, 4000))


def test_a_model_that_fills_masks():
    with redline.Engine("demo-diffusion") as model:
        answer = model.diffuse("In the beginning", 12, steps=6, seed=1)
        (choice,) = answer["choices"]
        assert len(choice["token_ids"]) == 12 and len(choice["passes"]) == 6
        positions = [at for one in choice["passes"] for at in one["positions"]]
        assert len(positions) == len(set(positions)) == 12
        with pytest.raises(redline.RequestError) as caught:
            model.generate("In the beginning")
        assert "`Engine.diffuse`" in caught.value.hint


def test_perplexity_is_that_of_the_text(engine, words):
    text = " ".join(words[:900])
    answer = engine.perplexity(text)
    assert answer["perplexity"]["value"] == pytest.approx(np.exp(answer["nll"]["value"]))
    assert answer["tokens"] > 900 and answer["nll"]["value"] < engine.perplexity(text, window=64)["nll"]["value"]
    with pytest.raises(redline.RequestError, match="window"):
        engine.perplexity(text, window=1)


def test_the_tokenizer_goes_both_ways(engine):
    tokenizer = engine.tokenizer
    ids = tokenizer.encode("In the beginning")
    assert tokenizer.decode(ids) == "In the beginning" and ids[1:] == tokenizer.encode("In the beginning", False)
    with pytest.raises(redline.RequestError, match="4096"):
        tokenizer.decode([4096])


def test_an_adapter_is_chosen_by_name(engine):
    places = {"jargon": ROOT / "models/demo-adapter/jargon"}
    with redline.Engine("demo", adapters=places) as adapted:
        assert adapted.info["adapters"] == ["jargon"]
        base = engine.score(QUERY, ITEMS, LABELS)
        assert adapted.score(QUERY, ITEMS, LABELS, adapter="base") == base
        assert adapted.score(QUERY, ITEMS, LABELS, adapter="jargon") != base
        with pytest.raises(redline.RequestError) as caught:
            adapted.score(QUERY, ITEMS, LABELS, adapter="law")
        assert "law" in caught.value.fact and "jargon" in caught.value.hint
    with pytest.raises(redline.LoadError, match="nowhere"):
        redline.Engine("demo", adapters={"a": "/nowhere"})


def test_a_template_formats_prompts_and_conversations(engine, tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
    with redline.Engine("demo", chat=True, chat_template=file) as chat:
        prompt = engine.tokenizer.encode("user: Hello\nassistant:", add_special_tokens=False)
        want = engine.generate(prompt, 8)["choices"][0]["text"]
        assert chat.generate("Hello", 8)["choices"][0]["text"] == want
        conversation = [{"role": "user", "content": "Hello"}]
        assert chat.generate(messages=conversation, max_new_tokens=8)["choices"][0]["text"] == want


def test_a_bad_request_of_a_model_that_fills_masks(engine):
    with pytest.raises(redline.RequestError) as caught:
        engine.diffuse("In the beginning")
    assert "Dream" in caught.value.hint, caught.value.hint


BAD = [
    (lambda e: e.score(QUERY, ITEMS), "no label given", "`labels` or `label_token_ids`"),
    (lambda e: e.score(QUERY, ITEMS, [1.5]), "`label_token_ids[0]`: invalid type: floating point", None),
    (lambda e: e.score(QUERY, ITEMS, np.array([1.5])), "expected a token id", None),
    (lambda e: e.score(QUERY, ITEMS, np.array([[1, 2], [3, 4]])), "label [1, 2] is 2 tokens", None),
    (lambda e: e.score(QUERY, ITEMS, []), "0 labels", None),
    (lambda e: e.score(QUERY, np.full((2, 3), 1.5), LABELS), "`items[0][0]`: invalid type: floating point", None),
    (lambda e: e.score(QUERY, [None], LABELS), "`items[0]`: invalid type: null", None),
    (lambda e: e.score(None, ITEMS, LABELS), "neither `query` nor `messages`", None),
    (lambda e: e.score("\ud800", ITEMS, LABELS), "not valid Unicode", None),
    (lambda e: e.score(QUERY, ITEMS, LABELS, bogus=1), "unknown field `bogus`", None),
    (lambda e: e.generate(QUERY, temperature=float("nan")), "not finite", None),
    (lambda e: e.answer("guess", prompt=QUERY), "no request is called 'guess'", "diffuse"),
    (lambda e: e.generate("a " * 9000), "context of 512", "shorten the prompt"),
    (lambda e: e.generate(), "neither `prompt` nor `messages`", None),
    (lambda e: e.embed("a"), "does not say how", '`pooling="mean"`'),
    (lambda e: e.classify("a"), "0 classes", None),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_request_says_what_is_wrong(engine, number):
    call, fact, hint = BAD[number]
    with pytest.raises(redline.RequestError) as caught:
        call(engine)
    assert fact in caught.value.fact, caught.value.fact
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == f"{caught.value.fact}\nhint: {caught.value.hint}"
    if hint is not None:
        assert hint in caught.value.hint, caught.value.hint
    assert engine.score(QUERY, ITEMS, LABELS)


def test_what_is_no_part_of_a_request_is_named(engine):
    with pytest.raises(TypeError, match="object is no part of a request"):
        engine.score(QUERY, [object()], LABELS)


@pytest.mark.parametrize(
    ("arguments", "fact", "hint"),
    [
        ({"model": "no-such-model"}, "`no-such-model` was not found", "redline pull no-such-model"),
        ({"format": "w9"}, "`w9` is no format of weights", "w8"),
        ({"format": "w8", "group": 7}, "w8 has no group of 7", "32"),
        ({"group": 32}, "`group=32` without", "`format="),
        ({"kv_format": "x"}, "`x` is no format of keys", "bf16"),
        ({"isa": "mmx"}, "`mmx` is no instruction set", "scalar"),
        ({"memory": "8X"}, "no unit `X`", "8GiB"),
        ({"memory": 8e9}, "`memory`: expected a number of bytes, or a text such as", None),
        ({"outliers": float("inf")}, "a number is not finite", None),
        ({"memory": 1000}, "memory budget of 0 MiB", "`memory="),
        ({"threads": 0}, "0 threads", None),
        ({"threads": -1}, "`threads`: invalid value: integer `-1`", None),
        ({"tp_size": 9}, "9 logical devices", None),
        ({"max_context": 4096}, "exceeds the model's own 512", "`max_context`"),
        ({"chat": True}, "no chat template", '`chat_template="FILE"`'),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(arguments, fact, hint):
    with pytest.raises(redline.LoadError) as caught:
        redline.Engine(**{"model": "demo", **arguments})
    assert fact in caught.value.fact, caught.value.fact
    if hint is not None:
        assert hint in caught.value.hint, caught.value.hint


def test_a_request_has_a_time_limit(engine):
    with pytest.raises(redline.RequestTimeout, match="within its time"):
        engine.generate(QUERY, timeout_s=1e-9)


def test_awaited_requests_have_the_same_bits(engine):
    async def together():
        scores = [engine.score_async(QUERY, [item], LABELS) for item in ITEMS * 5]
        texts = [engine.generate_async(QUERY, 5, seed=seed, temperature=1) for seed in range(4)]
        return await asyncio.gather(*scores, *texts)

    answers = asyncio.run(together())
    assert [row for rows in answers[:15] for row in rows] == engine.score(QUERY, ITEMS * 5, LABELS)
    want = [engine.generate(QUERY, 5, seed=seed, temperature=1)["choices"] for seed in range(4)]
    assert [answer["choices"] for answer in answers[15:]] == want


# No two items begin alike, so scoring them takes minutes. What ends a request must end these much sooner.
LONG = [f"{n} b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q" for n in range(200_000)]
SOON = 100


def ends_soon(engine):
    """Waits until the engine, which takes one request at a time, is done with the one before."""
    begin = time.monotonic()
    while True:
        try:
            return engine.score(QUERY, ITEMS, LABELS)
        except redline.RedlineError as error:
            assert "1 requests are waiting or running" in error.fact
            assert time.monotonic() - begin < SOON
            time.sleep(0.01)


def test_a_request_that_nobody_waits_for_ends():
    with redline.Engine("demo", queue=1) as engine:
        want = engine.score(QUERY, ITEMS, LABELS)

        async def give_up():
            task = asyncio.ensure_future(engine.score_async(QUERY, LONG, LABELS))
            await asyncio.sleep(0.1)
            with pytest.raises(redline.RedlineError, match="waiting or running"):
                engine.score(QUERY, ITEMS, LABELS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(give_up())
        assert ends_soon(engine) == want
        ticket = engine._engine.submit("score", json.dumps({"query": QUERY, "items": LONG, "label_token_ids": LABELS}))
        assert not ticket.done()
        del ticket
        assert ends_soon(engine) == want


def test_other_threads_run_while_one_waits(engine):
    ticket = engine._engine.submit("score", json.dumps({"query": QUERY, "items": LONG, "label_token_ids": LABELS}))
    waiting = threading.Event()

    def wait():
        waiting.set()
        with pytest.raises(redline.RedlineError, match="cancelled"):
            ticket.wait()

    begin = time.monotonic()
    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    # A thread that waited with the interpreter's lock would keep it until its answer is there.
    for _ in range(20):
        time.sleep(0.01)
    assert thread.is_alive() and not ticket.done()
    ticket.cancel()
    thread.join()
    assert time.monotonic() - begin < SOON


def test_an_engine_is_pickled_as_its_arguments(engine):
    again = pickle.loads(pickle.dumps(redline.Engine("demo", format="w8", threads=1)))
    assert repr(again) == "Engine(model='demo', format='w8', threads=1)"
    assert again.info["format"].startswith("w8") and again.info["threads"] == 1
    assert again.score(QUERY, ITEMS, LABELS) != engine.score(QUERY, ITEMS, LABELS)


def test_a_closed_engine_says_so():
    with redline.Engine("demo") as engine:
        tokenizer = engine.tokenizer
    with pytest.raises(RuntimeError, match="closed"):
        engine.score(QUERY, ITEMS, LABELS)
    engine.close()
    assert tokenizer.encode("a")


def test_ctrl_c_reaches_a_call_that_waits():
    script = """if True:
        import json, os, signal, sys, threading, time, redline
        signal.signal(signal.SIGINT, signal.default_int_handler)
        engine = redline.Engine("demo")
        fields = {"query": "a", "items": json.load(sys.stdin), "label_token_ids": [5]}
        ticket = engine._engine.submit("score", json.dumps(fields))
        begin = time.monotonic()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            ticket.wait()
        except KeyboardInterrupt:
            print("interrupted", len(engine.score("a", ["b"], [5])), time.monotonic() - begin)
    """
    ended = run(script, input=json.dumps(LONG))
    said = ended.stdout.split()
    assert said[:2] == ["interrupted", "1"] and float(said[2]) < SOON, ended


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_forked_process_is_told_to_load_its_own():
    script = """if True:
        import os, sys, redline
        engine = redline.Engine("demo")
        child = os.fork()
        if child == 0:
            try:
                engine.score("a", ["b"], [5])
            except redline.RedlineError as error:
                print(error, flush=True)
                own = redline.Engine("demo")
                print(own.score("a", ["b"], [5]), flush=True)
                sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(engine.score("a", ["b"], [5]))
    """
    ended = run(script)
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    assert "a forked process has none of the engine's threads" in said[0] and said[1].startswith("hint: load the model")
    assert said[2] == said[3]


def test_nothing_but_numpy_is_imported():
    script = "import sys, numpy; before = set(sys.modules); import redline; print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    ended = run(script)
    assert ended.returncode == 0, ended.stderr
    imported = set(ended.stdout.split())
    assert "redline" in imported
    assert imported <= {*sys.stdlib_module_names, "numpy", "redline"}, imported


def test_the_guide_runs(tmp_path, monkeypatch):
    for name in ("models", "LICENSE-MIT"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/python.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) >= 11
    variables = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), variables)


def test_receipts_are_confirmed_or_told_what_is_wrong(engine):
    answer = engine.answer("score", query=QUERY, items=ITEMS, label_token_ids=LABELS, receipt=True)
    receipt = answer["receipt"]
    assert receipt["rows"] == 3 and len(receipt["layers"]) == engine.info["layers"]
    assert engine.verify(receipt) == {"confirmed": True}
    # From the server or the command line, receipts come as text.
    assert engine.verify(json.loads(json.dumps(receipt)))["confirmed"]
    generated = engine.generate("In the beginning", 6, temperature=0.9, seed=4, receipt={"layers": [1]})
    assert engine.verify(generated["receipt"])["confirmed"]
    with redline.Engine("demo", isa="scalar", threads=1) as other:
        assert other.verify(receipt)["confirmed"] and other.verify(generated["receipt"])["confirmed"]
    receipt["layers"][2]["sha256"] = "0" * 64
    verdict = engine.verify(receipt)
    assert not verdict["confirmed"] and verdict["reason"] == "differs" and verdict["place"] == "layers[2] (layer 2)"
    generated["receipt"]["request"]["sampling"]["temperature"] = 0.8
    verdict = engine.verify(generated["receipt"])
    assert (verdict["reason"], verdict["place"]) == ("changed", "request")
    with pytest.raises(redline.RequestError, match="unknown field `more`"):
        engine.verify({**receipt, "more": 1})
    with pytest.raises(redline.RequestError, match="a receipt of layer 99"):
        engine.generate("a", 1, receipt={"layers": [99]})


def test_a_text_is_held_to_a_schema_or_another_form(engine):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"], "additionalProperties": False}

    class Person:
        """Stands for a class of Pydantic."""

        @staticmethod
        def model_json_schema():
            return schema

    text = engine.generate("The king", 200, schema=schema)["choices"][0]["text"]
    assert 0 <= json.loads(text)["age"] <= 99
    assert engine.generate("The king", 200, schema=Person)["choices"][0]["text"] == text
    assert "".join(piece.text for piece in engine.stream("The king", 200, schema=Person)) == text
    assert engine.generate("The king", choice=[" yes", " no"])["choices"][0]["text"] in (" yes", " no")
    with pytest.raises(redline.RequestError, match="#/not"):
        engine.generate("The king", schema={"not": {}})
