"""Replays of runs that lie on S3, as those of a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.run.stage import shard_of
from cluster.storage import open_storage
from jobs.chain.stages.order import Order
from jobs.runs.folder import RunFolder, find_runs, open_run
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.replayed_runs import QUERIES, REFUSED, Llm, Nights, good

BAD, HALF, WORSE = QUERIES[1], QUERIES[2], QUERIES[4]


def run_of(output: str, label: str) -> RunFolder:
    """The only run with a label."""
    storage = open_storage(output)
    (folder,) = [folder for folder, _ in find_runs(storage, "small", label)]
    return open_run(storage.url(folder))


def rows(run: RunFolder, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in run.tables.get(table, []):
        key = file.removeprefix(run.storage.root).lstrip("/")
        with run.storage.open(key) as source:
            found += pq.read_table(source).to_pylist()
    return found


def texts(run: RunFolder) -> dict[str, dict[str, str]]:
    shown = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, dict[str, str]] = {}
    for one in rows(run, "rewrites"):
        found.setdefault(shown[one["query_id"]], {})[one["strategy"]] = one["text"]
    return found


def expected(query: str) -> dict[str, str]:
    said: dict[str, str] = json.loads(good(query, 1 if query in (BAD, WORSE) else 0))
    return {"general": "as the moon, so the tide"} if query == HALF else said


@pytest.mark.slow
def test_a_run_on_s3_is_replayed_there_and_later_nights_read_it(
    told_nights: Nights, told: Llm, s3: S3Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Killed on its way, too; of the answer that is worse than the one before it the older is read."""
    half = json.dumps(expected(HALF))
    told.faulty = {BAD: [REFUSED], WORSE: [REFUSED], HALF: [half, REFUSED]}
    output = s3.fresh("replays")
    settings = [f"output={output}"]
    assert len(told_nights.run("one", *settings)) == len(QUERIES)
    first = run_of(output, "one")
    assert texts(first).keys() == {*QUERIES} - {BAD, WORSE}

    with monkeypatch.context() as patch:
        patch.setattr(Order, "__call__", once_broken(Order.__call__))
        began = told_nights.replay(f"{output}/small", "refusal", "missing", code=1)
    assert f"replay {first.storage.root} --reason refusal --reason missing" in capfd.readouterr().err.splitlines()[-1]
    went_on = told_nights.replay(first.storage.root, "refusal", "missing")
    assert sorted(one.query for one in began + went_on) == sorted([BAD, HALF, WORSE])
    assert {one.replay for one in began + went_on} == {1}
    again = run_of(output, "one-replay")
    assert texts(again) == {query: expected(query) for query in (BAD, HALF, WORSE)}
    assert again.record["replay"]["of"] == first.record["run_id"]
    latest = json.loads(open_storage(output).get("small/latest.json") or b"")
    assert latest["run_id"] == first.record["run_id"]
    assert told_nights.replay(first.storage.root, "refusal", "missing") == []  # it is finished

    assert told_nights.run("two", *settings) == []
    assert texts(run_of(output, "two")) == {query: expected(query) for query in QUERIES}
    capfd.readouterr()
    assert told_nights.command("try", told_nights.path, BAD, "--json", "--set", settings[0]) == []
    (trial,) = json.loads(capfd.readouterr().out)
    assert {one["strategy"]: one["text"] for one in trial["rewrites"]} == expected(BAD)


def once_broken(order: Callable[[Order, pa.Table], pa.Table]) -> Callable[[Order, pa.Table], pa.Table]:
    """The stage, which fails at the second shard once."""
    broken = [1]

    def ordered(self: Order, table: pa.Table) -> pa.Table:
        if broken and shard_of(table) == broken[0]:
            broken.pop()
            raise MemoryError("no room")
        return order(self, table)

    return ordered


def test_without_a_store_the_answers_lie_in_the_run_on_s3(told_nights: Nights, told: Llm, s3: S3Server) -> None:
    told.faulty = {BAD: [REFUSED]}
    output = s3.fresh("replays")
    told_nights.run("one", f"output={output}", "store=null")
    assert [(one.query, one.replay) for one in told_nights.replay(f"{output}/small", "refusal")] == [(BAD, 1)]
    assert texts(run_of(output, "one-replay")) == {BAD: json.loads(good(BAD, 1))}
