"""Tables in, tables out: a request is made of every row, and its answer becomes columns of the results.

>>> import redline
>>> with redline.Engine("model") as engine:
...     redline.offline.run(engine, "classify", "reviews.parquet", "classes", columns={"text": "review"}, classes=["good", "bad"])

Tables are Parquet, Arrow, JSON Lines or CSV. Any number of workers, on any machines, may share the directory of the results, each with a shard
of its own; they may be killed at any time, and others may go on in another division: the files are always the same, to the last bit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .engine import Engine, _json
from .errors import RedlineError, RequestError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Progress", "Summary", "answer", "run"]

Path = str | os.PathLike[str]


class Progress(NamedTuple):
    """How far a run is."""

    rows: int
    """Rows of the shard that are done, in this run or before."""
    before: int
    """Of these, rows that were done before this run."""
    all: int
    """Rows of the shard."""
    failed: int
    """Rows of this run with an error instead of an answer."""


class Summary(NamedTuple):
    """What a run did."""

    rows: int
    """Rows of the shard."""
    answered: int
    """Rows that were answered in this run; the others had been before."""
    failed: int
    """Of these, rows with an error instead of an answer: see the column ``error``."""
    files_done: int
    """Files of results that are done, of all shards."""
    files: int
    """Files that there will be."""
    manifest: str | None
    """The file that says what the results are, once all of them are done."""
    all_failed: int | None
    """Then: the number of rows with an error in all of them."""


def run(
    engine: Engine,
    kind: str,
    inputs: Path | Sequence[Path],
    output: Path,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    prefix: str = "",
    rows_per_file: int | None = None,
    shard: str = "1/1",
    progress: bool | Callable[[Progress], object] | None = None,
    **values: Any,
) -> Summary:
    """Answers the rows of tables that are not answered yet, and writes the results.

    Args:
        engine: a loaded model.
        kind: ``"score"``, ``"classify"``, ``"rerank"``, ``"embed"``, ``"generate"`` or ``"diffuse"``.
        inputs: files, or directories whose tables are read in the order of their names.
        output: the directory of the results; work that is found there is continued.
        columns: the columns that give keys of the request their values, such as ``{"text": "review"}``. Keys about the text of a row,
            such as ``text``, ``query``, ``items`` and ``prompt``, take the column of their name by default.
        keep: the columns of the input that the results repeat; default: all.
        prefix: what the names of the new columns begin with.
        rows_per_file: the most rows of a file of results; default: 4096.
        shard: the share of this worker: ``"1/4"`` to ``"4/4"`` are those of four workers.
        progress: a function that is called now and then; or ``True`` for a bar of tqdm, ``False`` for none. By default there is a bar if
            tqdm is installed and standard error is a terminal.
        values: keys of the request with the same value for all rows, such as ``classes=["good", "bad"]`` or ``max_new_tokens=64``.

    Raises:
        RequestError: if the request is wrong whatever the rows. Nothing is written then.
        RedlineError: if the results are of other work, an input changed, another process has the shard, or a file cannot be written.
            Files that were written stay, and the same call goes on.
    """
    request = _request(kind, columns, keep, prefix, values)
    given = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    places = {
        "inputs": [os.fspath(path) for path in given],
        "output": os.fspath(output),
        "shard": shard,
        "rows_per_file": rows_per_file,
    }
    ticket = engine._engine.batch(_json({**request, **places}))
    try:
        with _Watcher(progress) as watch:
            while (at := ticket.next_piece()) is not None:
                watch(Progress(**at))
        return Summary(**ticket.wait())
    except BaseException:
        # The shard is free again when the work has ended.
        ticket.cancel()
        while not ticket.done():
            time.sleep(0.01)
        raise


def answer(
    engine: Engine,
    kind: str,
    table: pyarrow.Table | pyarrow.RecordBatch,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    prefix: str = "",
    **values: Any,
) -> pyarrow.Table:
    """As :func:`run`, of a table in memory, which needs pyarrow.

    Returns:
        The columns of ``table`` that are kept, and the new ones; a row that cannot be answered has nulls, and the reason in ``error``.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    request = _json(_request(kind, columns, keep, prefix, values))
    answered = engine._engine.rows(request, sink.getvalue().to_pybytes()).wait()
    return cast("pyarrow.Table", pa.ipc.open_file(pa.py_buffer(answered)).read_all())


def _request(
    kind: str,
    columns: Mapping[str, str] | None,
    keep: Sequence[str] | None,
    prefix: str,
    values: Mapping[str, Any],
) -> dict[str, object]:
    given = {name: value for name, value in values.items() if value is not None}
    if isinstance(keep, str):
        raise RequestError(f"`keep` is the text {keep!r}", f"give a list: keep=[{keep!r}]")
    return {
        "kind": kind,
        "columns": dict(columns or {}),
        "keep": None if keep is None else list(keep),
        "prefix": prefix,
        "values": given,
    }


class _Watcher:
    """Shows how far a run is."""

    def __init__(self, progress: bool | Callable[[Progress], object] | None) -> None:
        self.tell = progress if callable(progress) else None
        self.bar: Any = None
        self.wanted = progress is True
        self.wants_bar = progress is True or (progress is None and sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> _Watcher:
        if self.tell is None and self.wants_bar:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                if self.wanted:
                    raise RedlineError("tqdm is not installed", "pip install tqdm, or leave out `progress`") from None
            else:
                self.bar = tqdm(unit=" rows")
        return self

    def __call__(self, at: Progress) -> None:
        if self.tell is not None:
            self.tell(at)
        elif self.bar is not None:
            if self.bar.total is None:
                self.bar.total, self.bar.initial = at.all, at.before
                self.bar.n = at.before
            if at.failed:
                self.bar.set_postfix(failed=at.failed, refresh=False)
            self.bar.update(at.rows - self.bar.n)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
