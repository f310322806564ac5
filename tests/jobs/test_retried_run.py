"""Tries in a run: what they cost, that a later start makes none twice, and that a budget counts them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_server import Body, FakeServer, Reply, completion
from whole_runs import rows

from jobs.config.load import load_config
from jobs.run.prepare import Prepared, prepare
from jobs.run.run import run
from jobs.run.stopping import Stopped
from jobs.stages.rewrite import Rewrite
from jobs.tables import QUERIES
from jobs.terminal.live_display import LiveDisplay
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


# ---------------------------------------------------------------- a budget

COUNT, MAX_TOKENS, IN_FLIGHT = 60, 100, 16
PRICE = MAX_TOKENS / 1e4  # USD of an answer of so many tokens: 100 USD for a million


def refuses_at_first(body: Body) -> Reply:
    """Every answer has 100 tokens; the second is good."""
    text = "I'm sorry, but I can't help with that request." if body["seed"] < FIRST_TRY else '{"general": "about it"}'
    return Reply(content=json.dumps(completion(text, {"prompt_tokens": 0, "completion_tokens": MAX_TOKENS})).encode())


def is_cut_at_first(body: Body) -> Reply:
    """Every answer has as many tokens as it may: that of a try is twice as dear."""
    cut, usage = body["seed"] < FIRST_TRY, {"prompt_tokens": 0, "completion_tokens": body["max_tokens"]}
    text = '{"general": "about' if cut else '{"general": "about it"}'
    return Reply(content=json.dumps(completion(text, usage, "length" if cut else "stop")).encode())


@pytest.fixture
def night(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str]
) -> Callable[..., Prepared]:
    """A job with a priced server, one more try, and a budget."""
    pq.write_table(pa.table({"query": [f"question {n}" for n in range(COUNT)]}), tmp_path / "log.parquet")
    (tmp_path / "prices.yaml").write_text("tokens: {tiny: {completion: 100}}\n")

    def make(server: FakeServer, shards: int, usd: float) -> Prepared:
        values["log"]["path"] = str(tmp_path / "log.parquet")
        engine = {"kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        decoding = {"max_tokens": MAX_TOKENS}
        values["rewrite"] = {"engine": engine, "strategies": ["general"], "retries": 1, "decoding": decoding}
        values["retrieve"] |= {"retrievers": {"bm25": bm25}}
        values["output"] = str(tmp_path / "runs")
        values.update({"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": COUNT // shards}})
        values["limits"] = {"error_rate": 1, "max_cost_usd": usd}
        path = config_file(values)
        return prepare(load_config(path, []), path)

    return make


@pytest.mark.parametrize("shards", [1, 6])
@pytest.mark.parametrize(("answer", "dear"), [(refuses_at_first, 1), (is_cut_at_first, 2)])
def test_a_budget_holds_with_tries(night: Callable[..., Prepared], answer: Any, dear: int, shards: int) -> None:
    """Money for all first requests, and some of the tries: `dear` times the price of a first request."""
    limit = (COUNT + 20 * dear + 0.5) * PRICE if shards == 1 else (1 + dear) * PRICE * COUNT / 2

    def paid(bodies: list[Body]) -> float:
        return sum(dear if body["seed"] >= FIRST_TRY else 1 for body in bodies) * PRICE

    with FakeServer(answer=answer) as server:
        prepared = night(server, shards, limit)
        with pytest.raises(Stopped) as stopped:
            run(prepared, LiveDisplay(io.StringIO()), "dmqr run again")
        assert stopped.value.code == "stopped-cost"
        assert 0.8 * limit <= paid(server.bodies) <= limit + 1e-9
        committed = len(list(prepared.storage.list("commits")))
        assert f"{committed} of {shards} shards are committed" in str(stopped.value)
        tries = [body for body in server.bodies if body["seed"] >= FIRST_TRY]
        assert tries
        assert all(body["max_tokens"] == dear * MAX_TOKENS for body in tries)
        suggested = float(str(stopped.value).rpartition("limits.max_cost_usd=")[2])
        folder = run_to_the_end(night(server, shards, suggested if dear == 1 else 1000))
        assert len(server.bodies) == 2 * COUNT  # nothing is paid for twice
        whole = (1 + dear) * COUNT * PRICE
        assert paid(server.bodies) == pytest.approx(whole)
    costs = [row for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["requests"]]
    assert sum(row["requests"] for row in costs) == 2 * COUNT
    assert sum(row["completion_tokens"] for row in costs) == (1 + dear) * COUNT * MAX_TOKENS
    assert sum(row["reason"] == "tried_again" for row in rows(folder, "errors")) == COUNT
    assert len(rows(folder, "rewrites")) == COUNT


def run_to_the_end(prepared: Prepared) -> Path:
    run(prepared, LiveDisplay(io.StringIO()))
    return Path(prepared.storage.root)
