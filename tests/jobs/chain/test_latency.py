"""The seconds in flight of each request to an LLM."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cluster import costs
from jobs.chain.stages.rewrite import Rewrite
from jobs.tables import QUERIES
from rewriters.engines.settings import OpenaiSettings
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting
from tests.support.jobs.workers import rewriter
from tests.support.rewriters.fake_server import FAULTS, FakeServer

SECONDS, AT_ONCE = 0.2, 16
Row = dict[str, Any]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Rewrite]]:
    opened: list[Rewrite] = []

    def build(server: FakeServer, start: int = 1, **settings: Any) -> Rewrite:
        engine = OpenaiSettings(kind="openai", model="tiny", base_url=server.address, **{"max_in_flight": AT_ONCE} | settings)
        rewriting = Rewriting(load_pool(["keyword"]), "separate", {"max_tokens": 16})
        opened.append(rewriter(engine, rewriting, tmp_path, start))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def block(count: int) -> pa.Table:
    rows = [
        {"shard": 3, "query_id": f"id-{n}", "query": f"query {n}", "log_count": 1, "costs": [], "errors": []}
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, QUERIES)


def spent(table: pa.Table) -> list[Row]:
    return [one for row in costs.settle(table, 1.0, 0.0, 9)[0].column("costs").to_pylist() for one in row]


def test_each_of_many_requests_in_flight_has_its_own_seconds(tmp_path: Path, worker: Callable[..., Rewrite]) -> None:
    with FakeServer(seconds=SECONDS) as server:
        server.together = AT_ONCE
        began = time.monotonic()
        rows = spent(worker(server)(block(AT_ONCE)))
        took = time.monotonic() - began
        assert server.most_in_flight == AT_ONCE
    assert len(rows) == AT_ONCE
    assert all(SECONDS <= row["latency"] <= took for row in rows)
    assert sum(row["seconds"] for row in rows) == pytest.approx(1.0)  # busy time is shared, as before
    # A later start has the answers of the earlier one, and their seconds, from the store.
    with FakeServer() as other:
        again = spent(worker(other, start=2)(block(AT_ONCE)))
        assert not other.sends
    assert [row["latency"] for row in again] == [row["latency"] for row in rows]


def test_a_request_that_is_given_up_has_those_of_its_last_send(worker: Callable[..., Rewrite]) -> None:
    with FakeServer(answer=lambda _: FAULTS["hang"]) as server:
        began = time.monotonic()
        (row,) = spent(worker(server, timeout_seconds=0.5)(block(1)))
        took = time.monotonic() - began
    assert (row["attempt"], row["error"]) == (2, "timeout")
    assert 0.5 <= row["latency"] < took - 0.5
