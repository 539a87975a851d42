"""Ray: a table that two actors answer, and a deployment. Skipped where Ray is not installed."""

import json
import urllib.error
import urllib.request

import pytest
from conftest import ROOT

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
serve = pytest.importorskip("ray.serve")

import redline.ray  # noqa: E402
from redline import offline  # noqa: E402

CLASSES = ["king", "ship"]


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    serve.shutdown()
    ray.shutdown()


def test_two_actors_give_the_answers_of_one_engine(engine, words, cluster):
    table = pa.table({"id": range(600), "text": [" ".join(words[row : row + 4]) for row in range(600)]})
    data = ray.data.from_arrow(table).repartition(4)
    answered = redline.ray.map_rows(data, "classify", "demo", actors=2, batch_size=50, keep=["id"], classes=CLASSES)
    rows = sorted(answered.take_all(), key=lambda row: row["id"])
    want = offline.answer(engine, "classify", table, keep=["id"], classes=CLASSES).to_pylist()
    assert [(row["id"], row["class"], list(row["probabilities"])) for row in rows] == [
        (row["id"], row["class"], row["probabilities"]) for row in want
    ]


def call(body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8123/", data, headers={"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_deployment_answers_and_chooses_adapters(engine, cluster):
    adapters = {"tone": str(ROOT / "models/demo-adapter")}
    serve.start(http_options={"host": "127.0.0.1", "port": 8123})
    handle = serve.run(redline.ray.deployment("demo", engine={"adapters": adapters}), route_prefix="/")
    body = {"kind": "classify", "text": "And the king said", "classes": CLASSES}
    status, answer = call(body)
    assert (status, answer["results"]) == (200, engine.classify("And the king said", CLASSES))
    by_id = call(body, serve_multiplexed_model_id="tone")[1]["results"]
    assert by_id == call({**body, "adapter": "tone"})[1]["results"] != answer["results"]
    assert handle.answer.remote(**body).result()["results"] == answer["results"]
    for wrong, status, fact in [
        ({"kind": "classify", "text": "a"}, 400, "class"),
        ({"kind": "sing"}, 400, "no request is called 'sing'"),
        ({"text": "a"}, 400, "no `kind`"),
        (b"{", 400, "no JSON"),
        ({**body, "timeout_s": 1e-6}, 504, "within its time"),
    ]:
        got, answer = call(wrong)
        assert got == status and fact in answer["error"]["message"], answer
