"""Forgotten means forgotten, in a folder and on S3: nights before, one that runs meanwhile, compaction, and nights after."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.storage import open_storage
from jobs.store.forget import forget
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.nights import QUERIES, Nights, log

SECRET = "Zwergohreule  and the moon"  # words that stand nowhere else; the last finds documents


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "facts")
    s3: S3Server = request.getfixturevalue("s3")
    return s3.fresh("facts")


def test_runs_on_s3_that_hold_it_are_named(nights: Nights, s3: S3Server) -> None:
    """By their queries; those after it was forgotten, and without it, are not."""
    address = s3.fresh("runs")
    output = open_storage(address)
    log([*QUERIES, SECRET])
    nights.run("one", f"output={address}")
    log(QUERIES)
    nights.run("two", f"output={address}")
    store = open_storage(output.url("store"))
    (held_by,) = forget(store, SECRET, output).runs or []
    assert held_by.startswith(f"{address}/small-one-")
    assert forget(store, "Uhu and the moon", output).runs == []
    assert forget(store, SECRET, None).runs is None
