"""Writes tests/golden/tables: one small table as pyarrow and polars write it, in every form that readers must know.

    python tables.py             rewrite the files
    python tables.py --check     write them elsewhere and compare with what lies here

`rows.json` has the values that a reader must find; those that JSON cannot say are left out.
"""

import filecmp
import json
import sys
import tempfile
from pathlib import Path

import polars
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

TEXTS = ["The king is here.", "", None, "Schiffe über dem Meer \U0001f6a2", "a\nb\t\"c\""]


def table() -> pa.Table:
    """Five rows of every type that a value of a request can be made of."""
    return pa.table(
        {
            "id": pa.array([1, 2, 3, None, 5], pa.int64()),
            "text": pa.array(TEXTS, pa.string()),
            "large": pa.array(TEXTS, pa.large_string()),
            "view": pa.array(TEXTS, pa.string_view()),
            "category": pa.array(["x", "y", "x", None, "y"]).dictionary_encode(),
            "texts": pa.array([["a", "b"], [], None, ["c"], ["d", "e", "f"]], pa.list_(pa.string())),
            "ids": pa.array([[1, 2], [3], None, [], [4]], pa.large_list(pa.int32())),
            "pair": pa.array([["a", "b"]] * 4 + [None], pa.list_(pa.string(), 2)),
            "messages": pa.array(
                [[{"role": "user", "content": text or ""}] for text in TEXTS],
                pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
            ),
            "half": pa.array([0.5, -2.0, None, 0.25, 8.0], pa.float32()).cast(pa.float16()),
            "single": pa.array([0.5, float("nan"), None, 0.1, 1e30], pa.float32()),
            "double": pa.array([0.1, 1e300, None, -0.0, 3.0], pa.float64()),
            "flag": pa.array([True, False, None, True, False]),
            "byte": pa.array([0, 255, None, 7, 8], pa.uint8()),
            "when": pa.array([0, 1, None, 2, 3], pa.timestamp("us")),
        }
    )


def values(of: pa.Table) -> list[dict[str, object]]:
    """The values as JSON has them; what JSON cannot say is left out."""
    rows = of.drop_columns(["when"]).to_pylist()
    for row in rows:
        if row["single"] != row["single"]:
            del row["single"]
    return rows


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    rows = table()
    for compression in ("none", "snappy", "gzip", "lz4", "zstd"):
        parquet.write_table(rows, folder / f"{compression}.parquet", compression=compression, row_group_size=2)
    parquet.write_table(rows, folder / "pages.parquet", data_page_version="2.0", use_dictionary=False, store_schema=False)
    polars.DataFrame({"id": [1, 2, 3, None, 5], "text": TEXTS}).write_parquet(folder / "polars.parquet")
    for compression in ("uncompressed", "lz4", "zstd"):
        feather.write_feather(rows, folder / f"{compression}.feather", compression=compression, chunksize=2)
    with pa.OSFile(str(folder / "stream.arrow"), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    text = json.dumps(values(rows), ensure_ascii=False, indent=1)
    (folder / "rows.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    here = Path(__file__).parent / "tables"
    if sys.argv[1:] != ["--check"]:
        write(here)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        names = sorted(path.name for path in here.iterdir())
        _, mismatch, errors = filecmp.cmpfiles(here, folder, names, shallow=False)
        if mismatch or errors:
            sys.exit(f"tests/golden/tables differs: {mismatch + errors}")


if __name__ == "__main__":
    main()
