"""The sums of a run: equal to those of its manifests, in memory that bears a hundred thousand, read once to close it."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from dataclasses import asdict

import pytest

from cluster.costs import QUANTITIES, Totals, work_seconds
from cluster.run.shards import File, Manifest, read_manifest
from cluster.storage.files import FileStorage
from jobs.runs.tally import kept, summed
from tests.support.jobs.in_process_runs import prepared_job, run_in_process

COMPONENTS = {"rewrite": ("dmqr@model", "general@model"), "retrieve": ("bm25@", "dense@encoder"), "rerank": ("rerank@model",)}
STAGES = ("read", "rewrite", "retrieve", "fuse", "rerank", "order", "write")
TABLES = ("rewrites", "results", "tails", "costs", "scores")


def manifest(shard: int, start: int = 1) -> Manifest:
    """One of a run with two requests, two retrievers and a reranker, as it is read from its JSON."""
    quantities = {"seconds": 0.5 + shard, "device_seconds": 0.125, **dict.fromkeys(QUANTITIES, 1000 + shard)}
    costs: Totals = {stage: {name: dict(quantities) for name in of} for stage, of in COMPONENTS.items()}
    costs["rewrite"]["start_up@"] = {"seconds": 9.0}
    made = Manifest(
        shard,
        start,
        {name: [File(f"{name}/shard-{shard:06d}-0123456789ab.parquet", 1000, 12345)] for name in TABLES},
        {f"count/{number}": 1000 + number + shard for number in range(26)},
        costs,
        dict.fromkeys(STAGES, 0.25),
        {str(start): {stage: {"attributed": 1.5, "start_up": 0.5} for stage in COMPONENTS}},
        {stage: {"put": 3.0, "get": 1.0} for stage in ("read", "write")},
        {"rerank/failed": [f"{shard:032x}"]},
    )
    return read_manifest(json.dumps(asdict(made)))


def test_what_is_kept_is_what_the_manifests_say() -> None:
    manifests = [manifest(number, start=1 + number % 2) for number in range(5)]
    shards, tally = kept(manifests)
    assert [(one.shard, one.files, one.counts) for one in shards] == [(one.shard, one.files, one.counts) for one in manifests]
    assert [one.work_seconds for one in shards] == [work_seconds(one.spent) for one in manifests]
    assert tally == summed(manifests)
    assert tally.counts == sum((Counter(one.counts) for one in manifests), Counter())
    assert tally.starts == {1, 2}
    assert tally.by_start[2]["rewrite"] == {"attributed": 2 * 1.5 + 2 * 0.25, "start_up": 2 * 0.5}


@pytest.mark.slow
def test_a_shard_of_an_opened_run_takes_little_memory() -> None:
    few, many = 50, 550
    kept(manifest(number) for number in range(few))  # imports, and names that all shards share

    def held(count: int) -> int:
        before = tracemalloc.get_traced_memory()[0]
        found = kept(manifest(number) for number in range(count))
        return tracemalloc.get_traced_memory()[0] - before + 0 * len(found)

    tracemalloc.start()
    try:
        of_few, of_many = held(few), held(many)
    finally:
        tracemalloc.stop()
    assert (of_many - of_few) / (many - few) < 6000  # bytes: a hundred thousand in 600 MB


def test_a_run_is_closed_by_one_reading_of_its_manifests(bm25_job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepared_job(bm25_job, "rewrite.strategies=[]")
    read: Counter[str] = Counter()
    get = FileStorage.get

    def counted(storage: FileStorage, key: str) -> bytes | None:
        read[key] += key.startswith("commits/")
        return get(storage, key)

    monkeypatch.setattr(FileStorage, "get", counted)
    run_in_process(job)
    assert +read == {"commits/000000.json": 1, "commits/000001.json": 1}
