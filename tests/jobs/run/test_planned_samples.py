"""Samples of a planned job's queries: the same for all shards and tiers, and of both."""

from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from jobs.log.check import LogColumns
from jobs.log.dedup import dedup
from jobs.log.files import find_log_files
from jobs.run.planning.sample import PlannedQueries, read_sample
from rewriters.normalise import query_id

ASKED = {f"query {number}": 1 + 40 // (1 + number) for number in range(60)}


def planned(place: Path, shard_size: int) -> tuple[PlannedQueries, int]:
    pq.write_table(pa.table({"query": [query for query, n in ASKED.items() for _ in range(n)]}), place / "log.parquet")
    storage = open_storage(str(place / f"plan-{shard_size}"))
    log = dedup(find_log_files(str(place / "log.parquet")), LogColumns("query"), storage, shard_size)
    return PlannedQueries(storage, log.shards), log.head


def by_hand(size: int, seed: int) -> list[str]:
    ids = sorted(map(query_id, ASKED))
    begin = bisect_left(ids, f"{random.Random(seed).getrandbits(128):032x}")
    return (ids[begin:] + ids[:begin])[:size]


@pytest.mark.parametrize("ranges", [1 << 18, 50])
@pytest.mark.parametrize("shard_size", [1, 7, 1000])
def test_a_sample_is_a_stretch_of_the_ids_from_a_drawn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_size: int, ranges: int
) -> None:
    monkeypatch.setattr("jobs.log.dedup.RANGE_ROWS", ranges)
    queries, head = planned(tmp_path, shard_size)
    assert 0 < head < len(queries.shards)
    for size, seed in ((1, 0), (10, 1), (25, 7), (60, 3), (500, 4)):
        found: Any = read_sample(queries, size, seed).column("query_id").to_pylist()
        assert found == by_hand(size, seed)
