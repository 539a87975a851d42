"""The notebooks of `examples/` run, and print what stands in them. With UPDATE_NOTEBOOKS=1, what they print is written into them."""

import os
import pathlib

import pytest
from conftest import ROOT

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def printed(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: pathlib.Path, tmp_path):
    book = nbformat.read(path, as_version=4)
    shown = [printed(cell) for cell in book.cells]
    client = nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    if os.environ.get("UPDATE_NOTEBOOKS"):
        for cell in book.cells:
            cell.metadata.clear()
            if cell.cell_type == "code":
                cell.execution_count = None
                for output in cell.outputs:
                    output.pop("execution_count", None)
        book.metadata.language_info = {"name": "python"}
        nbformat.write(book, path)
        return
    assert [printed(cell) for cell in book.cells] == shown
    assert all(output.output_type == "stream" and output.name == "stdout" for cell in book.cells for output in cell.get("outputs", []))
