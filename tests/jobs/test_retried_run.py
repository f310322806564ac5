"""Tries in a run: what they cost, that a later start makes none twice, and that a budget counts them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_server import Body, FakeServer

from jobs.chain.stages.rewrite import Rewrite
from jobs.tables import QUERIES
from rewriters.engines.settings import OpenaiSettings
from rewriters.outcome.retries import FIRST_TRY
from rewriters.pool import load_pool
from rewriters.rewriter import Rewriting

QUERY_TEXTS = ["why is the sky blue", "how long to boil an egg", "who made the first bell"]


def said(body: Body) -> str:
    """Refuses the first query at first, and the second always."""
    query = body["messages"][0]["content"].rpartition("Query: ")[2]
    if query == QUERY_TEXTS[1] or (query == QUERY_TEXTS[0] and body["seed"] < FIRST_TRY):
        return "I'm sorry, but I can't help with that request."
    return json.dumps({"general": f"about {query}", "keyword": f"{query}, words"})


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Rewrite]]:
    opened: list[Rewrite] = []

    def build(server: FakeServer, start: int = 1, retries: int = 1) -> Rewrite:
        engine = OpenaiSettings(kind="openai", model="tiny", base_url=server.address)
        rewriting = Rewriting(load_pool(["general", "keyword"]), decoding={"max_tokens": 64, "seed": 3}, retries=retries)
        opened.append(Rewrite(engine, rewriting, str(tmp_path), start))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def block() -> pa.Table:
    rows = [{"shard": 3, "query_id": text, "query": text, "log_count": 1, "costs": [], "errors": []} for text in QUERY_TEXTS]
    return pa.Table.from_pylist(rows, QUERIES)


def outcome(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = (table.column(name).to_pylist() for name in ("rewrites", "errors", "costs"))
    return [
        (len(rewrites), sorted(one["reason"] for one in errors), sum(one["requests"] for one in costs))
        for rewrites, errors, costs in zip(*columns, strict=True)
    ]


WANTED = [(2, ["tried_again"], 2), (0, ["refusal", "refusal", "tried_again"], 2), (2, [], 1)]


def test_tries_are_made_counted_and_found_again(worker: Callable[..., Rewrite]) -> None:
    with FakeServer(text=said) as server:
        assert outcome(worker(server)(block())) == WANTED
        assert len(server.bodies) == 5
        assert outcome(worker(server, start=2)(block())) == WANTED
        assert len(server.bodies) == 5  # the later start has all of them
        assert outcome(worker(server, retries=0)(block())) == [(0, ["refusal"] * 2, 1), (0, ["refusal"] * 2, 1), (2, [], 1)]
        assert len(server.bodies) == 5


def test_a_start_that_stopped_between_makes_the_tries_only(worker: Callable[..., Rewrite]) -> None:
    with FakeServer(text=said) as server:
        worker(server, retries=0)(block())
        assert len(server.bodies) == 3
        assert outcome(worker(server, start=2)(block())) == WANTED
        assert [body["seed"] for body in server.bodies[3:]] == [3 + FIRST_TRY] * 2
