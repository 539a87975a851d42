"""What the tests share."""

import pathlib

import pytest

import redline

ROOT = pathlib.Path(__file__).parents[3]
# These run in processes of their own (`test_seed.py`).
collect_ignore = ["seed"]


@pytest.fixture(scope="session")
def engine():
    with redline.Engine("demo", threads=2) as engine:
        yield engine


@pytest.fixture(scope="session")
def words():
    return (ROOT / "models/demo/held-out.txt").read_text().split()
