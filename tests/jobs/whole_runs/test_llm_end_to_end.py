"""The whole job with a server over HTTP that rewrites (vLLM in the worker: test_nightly.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.whole_runs import (
    below,
    check_files,
    check_same_rows,
    finish,
    flags,
    rows,
    sample_shards,
    start,
    wait_for_commits,
)
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow

QUERIES, SHARD_SIZE = 176, 8
SHARDS = sample_shards(SHARD_SIZE)
STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")


def rewritten(body: dict[str, Any]) -> str:
    """The server's answer: rewrites made of the query's own words."""
    query = body["messages"][0]["content"].rsplit("Query: ", 1)[1][:200]
    return json.dumps(
        {name: f"{query} {query.split()[0]} {number}" for number, name in enumerate(STRATEGIES)}, ensure_ascii=False
    )


def openai(sample_place: Path, output: Path, server: FakeServer) -> list[str]:
    engine = {
        "rewrite.engine.base_url": server.address, "rewrite.engine.model": "tiny", "rewrite.engine.timeout_seconds": 1,
        "rewrite.engine.max_in_flight": 16, "cluster.shard_size": SHARD_SIZE,
    }  # fmt: skip
    return [sys.executable, "-m", "jobs", "run", "configs/openai.yaml", *flags(sample_place, output=output, **engine)]


@pytest.fixture(scope="module")
def calm(sample_place: Path) -> Path:
    with FakeServer(text=rewritten, seconds=0.3) as server:
        done = finish(start(openai(sample_place, sample_place / "calm", server)))
        assert server.listings == 1  # the server is asked for its models once
        assert sum(server.sends.values()) == QUERIES
        assert 8 < server.most_in_flight <= 16  # requests of more than one shard
    return done.folder


def test_every_query_is_rewritten_by_the_server(calm: Path) -> None:
    assert len(rows(calm, "rewrites")) == len(STRATEGIES) * QUERIES
    asked = [row for row in rows(calm, "costs") if row["component"] == "dmqr"]
    assert len(asked) == QUERIES
    for row in asked:
        assert (row["engine"], row["model"], row["usage"], row["requests"]) == ("openai", "tiny", "reported", 1)
        assert row["prompt_tokens"] > 100
        assert row["completion_tokens"] == 3
        assert row["seconds"] > 0
    record = json.loads((calm / "run.json").read_text())
    assert record["identity"]["rewrite"]["engine"] == {"kind": "openai", "model": "tiny", "args": {}}
    assert {row["model"] for row in rows(calm, "rewrites")} == {"tiny"}


def test_a_faulty_server_and_a_killed_engine_change_no_row(calm: Path, sample_place: Path) -> None:
    output = sample_place / "faulty"
    with FakeServer(text=rewritten, seconds=0.3, unavailable=0.05, hanging=0.01) as server:
        running = start(openai(sample_place, output, server))
        at = wait_for_commits(running, output, 0)
        (worker,) = below(running, "ray::MapWorker(MapBatches(Rewrite))")
        worker.kill()
        done = finish(running)
        assert at < SHARDS, "the worker was not killed in the middle"
        assert server.sends.total() > QUERIES
    assert done.folder.name == calm.name  # neither the address nor its faults are part of what is made
    check_same_rows(done.folder, calm)
    check_files(done.folder, SHARDS)
    attempts = [row["requests"] for row in rows(done.folder, "costs") if row["component"] == "dmqr"]
    assert max(attempts) > 1
