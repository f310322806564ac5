"""The queries that are asked most often come first: what a stop leaves undone, what is said, and runs of before."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.stages.write import Write
from jobs.pages.summary import closing_table
from jobs.run.job import Job
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import QUERIES, prepared_job, run_in_process
from tests.support.jobs.run_folders import page

ASKED = dict(zip(QUERIES, (9, 1, 5, 1, 2, 1), strict=True))  # 19 in all
HEAD = {"why does bread rise", "moon and tides"}  # 14: one alone is not half


@pytest.fixture
def job(bm25_job: str) -> str:
    pq.write_table(pa.table({"query": [query for query, count in ASKED.items() for _ in range(count)]}), "log.parquet")
    return bm25_job


def committed(job: Job) -> set[str]:
    """The queries of the committed shards."""
    storage, found = job.prepared.storage, set[str]()
    shards = json.loads(storage.get("shards.json") or b"")["shards"]
    for entry in storage.list("commits"):
        _, key, group, _ = shards[json.loads(storage.get(entry.key) or b"")["shard"]]
        with storage.open(key) as file:
            found |= set(pq.ParquetFile(file).read_row_group(group).column("query").to_pylist())
    return found


def fail_at_the_second(patch: pytest.MonkeyPatch) -> None:
    """Has the second shard that comes to the ordering stage end the run."""
    order, left = Write.__call__, [1]

    def ordered(self: Write, table: pa.Table) -> pa.Table:
        if not left:
            raise ZeroDivisionError("the second shard")
        left.pop()
        return order(self, table)

    patch.setattr(Write, "__call__", ordered)


def begun(path: str, *settings: str) -> Job:
    """A run that ends after its first shard."""
    job = prepared_job(path, *settings)
    with pytest.raises(ZeroDivisionError):
        run_in_process(job)
    return job


def test_a_run_that_ends_early_leaves_what_is_asked_least(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at_the_second(monkeypatch)
    ended = begun(job, "cluster.shard_size=2")
    assert committed(ended) == HEAD
    folder = open_run(ended.prepared.storage.root)
    assert folder.state == "failed: 1 of 3 shards are committed, 73.7 % of the traffic"
    assert "6 distinct; 2 committed, 73.7 % of the traffic" in shown(folder)
    assert "73.7 % of the traffic" in " ".join(" ".join(page(folder).sections.values()).split())


def shown(folder: Any) -> str:
    table = closing_table(folder, None).renderables[0]  # type: ignore[attr-defined]
    return "\n".join(str(cell) for cell in table.columns[1].cells)
