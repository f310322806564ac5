"""A budget counts tries: it holds where they are dearer than first requests, and the run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.run.limits import Stopped
from rewriters.outcome.retries import FIRST_TRY
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, completion

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
            run_in_process(prepared)
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
    return run_in_process(prepared)
