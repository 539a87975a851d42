"""Tables: in files, and in memory."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from conftest import ROOT

import redline
from redline import offline

CLASSES = ["king", "ship"]
REDLINE = os.environ.get("REDLINE", str(ROOT / "target/release/redline"))


def texts(words, rows):
    return [" ".join(words[row * 3 : row * 3 + 3]) for row in range(rows)]


@pytest.fixture
def table(words):
    """300 rows, of which two have no text."""
    rows = texts(words, 300)
    rows[7] = rows[200] = None
    return pa.table({"id": range(300), "text": rows, "lang": pa.array(["en"] * 300).dictionary_encode()})


def content(folder):
    """Names and bytes of all files, without locks."""
    files = (path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def read(folder, form="parquet"):
    return pa.dataset.dataset(folder, format=form).to_table().sort_by("id")


def test_results_are_the_answers_beside_the_columns(engine, table, tmp_path):
    pa.parquet.write_table(table, tmp_path / "in.parquet", row_group_size=100)
    seen = []
    done = offline.run(
        engine, "classify", tmp_path / "in.parquet", tmp_path / "out", classes=CLASSES, rows_per_file=64, progress=seen.append
    )
    assert (done.rows, done.answered, done.failed, done.files_done, done.files, done.all_failed) == (300, 300, 2, 6, 6, 2)
    assert done.manifest == str(tmp_path / "out/_manifest.json")
    assert seen and seen[-1] == (300, 0, 300, 2) and [at.rows for at in seen] == sorted(at.rows for at in seen)
    results = read(tmp_path / "out")
    assert results.select(table.column_names).equals(table)
    assert [row for row, error in enumerate(results["error"].to_pylist()) if error] == [7, 200]
    rows = [row for row in range(300) if row not in (7, 200)]
    want = engine.classify([table["text"][row].as_py() for row in rows], CLASSES)
    got = results.take(rows)
    assert got["class"].to_pylist() == [one["class"] for one in want]
    assert got["probabilities"].to_pylist() == [one["probabilities"] for one in want]
    assert got["margin"].to_pylist() == [one["margin"] for one in want]
    again = offline.run(engine, "classify", tmp_path / "in.parquet", tmp_path / "out", classes=CLASSES, rows_per_file=64)
    assert (again.answered, again.all_failed) == (0, 2)


@pytest.mark.skipif(not os.path.exists(REDLINE), reason="the program is not built")
def test_files_are_those_of_the_command_line(engine, table, tmp_path):
    pa.feather.write_feather(table, tmp_path / "in.feather")
    for shard in ("2/2", "1/2"):
        offline.run(engine, "generate", tmp_path / "in.feather", tmp_path / "python", columns={"prompt": "text"}, keep=["id"],
                    shard=shard, rows_per_file=50, max_new_tokens=2)
    arguments = ["--column", "prompt=text", "--keep", "id", "--rows-per-file", "50", "--set", "max_new_tokens=2"]
    places = ["--input", tmp_path / "in.feather", "--output", tmp_path / "command", "--threads", "1", "--quiet"]
    subprocess.run([REDLINE, "batch", "generate", "--model", "demo", *arguments, *places], capture_output=True)
    assert content(tmp_path / "python") == content(tmp_path / "command")
    assert read(tmp_path / "python", "feather").num_rows == 300


def test_a_table_in_memory_has_the_same_answers(engine, table, tmp_path):
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    asked = dict(kind="score", columns={"items": "text"}, keep=["id"], query="So", labels=[" the", " a"])
    offline.run(engine, inputs=tmp_path / "in.parquet", output=tmp_path / "out", **asked)
    answered = offline.answer(engine, table=table, **asked)
    assert answered.equals(read(tmp_path / "out"))
    assert answered.column_names == ["id", "scores", "prompt_tokens", "error"]
    few = offline.answer(engine, table=table.slice(5, 3).to_batches()[0], **asked)
    assert few.equals(answered.slice(5, 3))
    empty = offline.answer(engine, table=table.slice(0, 0), **asked)
    assert (empty.num_rows, empty.schema) == (0, answered.schema)


def test_lists_of_texts_have_lists_of_answers(engine):
    table = pa.table({"query": ["Who?", "What?"], "documents": [["The king.", "It rains."], ["A ship."]]})
    ranked = offline.answer(engine, "rerank", table)["relevance"].to_pylist()
    assert [len(row) for row in ranked] == [2, 1]
    want = sorted(engine.rerank("Who?", ["The king.", "It rains."]), key=lambda found: found["index"])
    assert ranked[0] == [found["relevance"] for found in want]


def test_what_is_wrong_is_told(engine, table, tmp_path):
    def refused(kind="classify", error=redline.RequestError, inputs=tmp_path / "in.parquet", output=tmp_path / "out", **options):
        with pytest.raises(error) as told:
            offline.run(engine, kind, inputs, output, **options)
        return str(told.value)

    pa.parquet.write_table(table, tmp_path / "in.parquet")
    assert "give at least two classes" in refused(classes=["king"])
    assert "`columns={\"prompt\": \"NAME\"}`" in refused("generate")
    assert "column `id` holds Int64, and `text` is a text" in refused(columns={"text": "id"}, classes=CLASSES)
    assert "`timeout_s` is given" in refused(classes=CLASSES, timeout_s=1)
    assert "cannot be asked of rows\nhint: one of score" in refused("translate")
    assert "from 1/N to N/N" in refused(classes=CLASSES, shard="0/2")
    assert "keep=['id']" in refused(classes=CLASSES, keep="id")
    assert "No such file" in refused(error=redline.RedlineError, inputs=tmp_path / "none.parquet", classes=CLASSES)
    assert not (tmp_path / "out").exists()
    offline.run(engine, "classify", tmp_path / "in.parquet", tmp_path / "out", classes=CLASSES)
    assert "`request.values.classes` was" in refused(error=redline.RedlineError, classes=["war", "peace"])
    pa.parquet.write_table(table.slice(1), tmp_path / "in.parquet")
    assert "`in.parquet` changed" in refused(error=redline.RedlineError, classes=CLASSES)
    with pytest.raises(redline.RequestError, match="the results would have two columns `class`"):
        offline.answer(engine, "classify", pa.table({"text": ["a"], "class": ["b"]}), classes=CLASSES)
    with pytest.raises(redline.RequestError, match="no column is chosen for `text`"):
        offline.answer(engine, "classify", pa.table({"review": ["a"]}), classes=CLASSES)
    nan = offline.answer(engine, "generate", pa.table({"prompt": ["a", "b"], "top_p": [0.5, float("nan")]}),
                         columns={"top_p": "top_p"}, max_new_tokens=1)
    assert nan["error"].to_pylist() == [None, "column `top_p`: NaN is no number that a request can have"]


def test_a_bar_shows_how_far_it_is(engine, table, tmp_path, capsys):
    pytest.importorskip("tqdm")
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    offline.run(engine, "classify", tmp_path / "in.parquet", tmp_path / "out", classes=CLASSES, progress=True)
    assert "300/300" in capsys.readouterr().err


WORKER = """
import sys, redline
with redline.Engine("demo", threads=1) as engine:
    redline.offline.run(engine, "embed", sys.argv[1], sys.argv[2], pooling="mean", shard=sys.argv[3], rows_per_file=20)
"""


def test_workers_that_are_killed_are_replaced(words, tmp_path):
    table = pa.table({"id": range(2000), "text": texts(words, 2000)})
    pa.parquet.write_table(table, tmp_path / "in.parquet")

    def start(output, shard):
        return subprocess.Popen([sys.executable, "-c", WORKER, tmp_path / "in.parquet", tmp_path / output, shard])

    assert start("whole", "1/1").wait() == 0
    whole = content(tmp_path / "whole")
    for number, wait_s in enumerate((0.1, 0.3, 0.6)):
        workers = [start(str(number), shard) for shard in ("1/2", "2/2")]
        time.sleep(wait_s)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        for shard in ("3/3", "2/3", "1/3"):
            assert start(str(number), shard).wait() == 0
        assert content(tmp_path / str(number)) == whole


INTERRUPTED = """
import signal, sys, redline
signal.signal(signal.SIGINT, signal.default_int_handler)
with redline.Engine("demo", threads=1) as engine:
    asked = dict(kind="embed", inputs=sys.argv[1], output=sys.argv[2], pooling="mean", rows_per_file=20)
    try:
        redline.offline.run(engine, progress=lambda at: print("begun", flush=True), **asked)
    except KeyboardInterrupt:
        print("interrupted", redline.offline.run(engine, **asked).rows)
"""


def test_ctrl_c_reaches_it_and_the_shard_is_free_again(words, tmp_path):
    pa.parquet.write_table(pa.table({"text": texts(words, 3000)}), tmp_path / "in.parquet")
    arguments = [sys.executable, "-c", INTERRUPTED, tmp_path / "in.parquet", tmp_path / "out"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=300)[0].splitlines()
    assert out[-1] == "interrupted 3000" and process.returncode == 0, out
    assert json.loads((tmp_path / "out/_manifest.json").read_text())["rows"] == 3000
