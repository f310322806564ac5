"""Money is counted when it is spent, and no request is sent that the budget does not pay for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.run.grants import Budget
from jobs.chain.allowance import Allowance
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.run.limits import Stopped
from jobs.terminal.formats import money
from rewriters.engines import Request
from rewriters.engines.anthropic import protocol as anthropic
from rewriters.engines.openai import protocol as openai
from rewriters.engines.settings import AnthropicSettings, OpenaiSettings
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.rewriters.fake_server import FakeServer

COUNT, TOKENS = 200, 100
PRICE = TOKENS / 1e4  # USD of a request: 100 USD for a million tokens
IN_FLIGHT = 4


# ---------------------------------------------------------------- division among workers


def test_grants_never_exceed_the_limit() -> None:
    budget = Budget(10.0)
    budget.spent_elsewhere(2.0)
    assert budget.reserve("a", 0.0, 5.0) == 5.0
    assert budget.reserve("b", 0.0, 5.0) == 3.0
    assert budget.reserve("a", 5.0, 5.0) == 5.0  # nothing is left
    budget.spent_elsewhere(1.0)
    assert budget.reserve("a", 6.0, 5.0) == 6.0  # spent more than it was granted
    assert Budget(None).reserve("a", 100.0, 5.0) == float("inf")


def test_requests_in_flight_are_paid_for_before_they_are_sent() -> None:
    asked: list[tuple[float, float]] = []

    def reserve(spent: float, wanted: float) -> float:
        asked.append((spent, wanted))
        return 3.0

    async def take() -> list[bool]:
        allowance = Allowance(reserve)
        first = [await allowance.take("keyword", 1.0) for _ in range(3)]
        for grant in first:
            assert grant is not None
            allowance.settle(grant, 0.5)  # cheaper than expected
        return [grant is not None for grant in [*first, *[await allowance.take("keyword", 1.0) for _ in range(3)]]]

    async def end() -> bool:
        allowance = Allowance(reserve)
        for _ in range(3):
            grant = await allowance.take("keyword", 1.0)
            assert grant is not None
            allowance.settle(grant, 1.0)
        refused = await allowance.take("keyword", 1.0) is None
        return refused and allowance.ended

    assert asyncio.run(take()) == [True] * 6
    assert asked[0] == (0.0, 32.0)
    assert asyncio.run(end())


def test_requests_without_a_price_are_sent() -> None:
    budget = Budget(1.0)

    async def take() -> bool:
        allowance = Allowance(lambda spent, wanted: budget.reserve("w", spent, wanted))
        found = [await allowance.take("keyword", 0.0) for _ in range(3)]
        assert found[0] is not None
        allowance.settle(found[0], 0.0)
        return all([*found, await allowance.take("keyword", 0.0)])

    assert asyncio.run(take())


def test_one_request_does_not_tell_what_another_costs() -> None:
    """Of a strategy's own engine, say: ten times as dear."""

    async def take() -> list[bool]:
        allowance = Allowance(lambda spent, wanted: min(10.0, spent + wanted))
        for _ in range(5):
            grant = await allowance.take("keyword", 1.0)
            assert grant is not None
            allowance.settle(grant, 1.0)
        return [await allowance.take(name, price) is not None for name, price in (("general", 10.0), ("keyword", 1.0))]

    assert asyncio.run(take()) == [False, True]  # what is left is used


# ---------------------------------------------------------------- a run


@pytest.fixture
def night(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str]
) -> Callable[..., Any]:
    """A job with a priced server and a number of shards."""
    pq.write_table(pa.table({"query": [f"question {n}" for n in range(COUNT)]}), tmp_path / "log.parquet")

    def make(server: FakeServer, shards: int, *settings: str, prices: str = "{completion: 100}") -> Any:
        values["log"]["path"] = str(tmp_path / "log.parquet")
        engine = {"kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": IN_FLIGHT}
        values["rewrite"] = {"engine": engine, "strategies": ["keyword"], "calls": "separate"}
        values["retrieve"] |= {"retrievers": {"bm25": bm25}}
        values["output"] = str(tmp_path / f"runs-{shards}")
        values.update({"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": COUNT // shards}})
        values["limits"] = {"error_rate": 1}
        (tmp_path / "prices.yaml").write_text(f"tokens: {{tiny: {prices}}}\n")
        path = config_file(values)
        return prepare(load_config(path, list(settings)), path)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("shards", [10, 1])
def test_a_quarter_of_the_money_pays_for_a_quarter_of_the_requests(night: Callable[..., Any], shards: int) -> None:
    with FakeServer(seconds=0.005, completion_tokens=TOKENS) as server:
        limit = COUNT * PRICE / 4
        prepared = night(server, shards, f"limits.max_cost_usd={limit}")
        with pytest.raises(Stopped) as stopped:
            run_in_process(prepared)
        sent = sum(server.sends.values())
        assert 0.9 * limit <= sent * PRICE <= limit
        committed = len(list(prepared.storage.list("commits")))
        assert f"{money(sent * PRICE)} are spent" in str(stopped.value)
        assert f"{committed} of {shards} shards are committed" in str(stopped.value)
        assert committed in ((1, 2) if shards == 10 else (0,))  # two shards are under way at a time, and the money ends in both
        # The same command sends nothing more: the money of the shard that was given up is spent, too.
        with pytest.raises(Stopped):
            run_in_process(night(server, shards, f"limits.max_cost_usd={limit}"))
        assert sum(server.sends.values()) <= limit / PRICE
        run_in_process(night(server, shards, "limits.max_cost_usd=1000"))
        assert sum(server.sends.values()) == COUNT  # nothing is paid for twice
    spent = json.loads(prepared.storage.get("run.json") or b"")["costs"]["rewrite"]["keyword@tiny"]
    assert (spent["requests"], spent["completion_tokens"]) == (COUNT, COUNT * TOKENS)
    rows = pq.read_table(Path(prepared.storage.root, "costs")).to_pylist()
    host = server.address.split("/")[2]
    assert {row["provider"] for row in rows if row["component"] == "keyword"} == {host}
    assert {row["provider"] for row in rows if row["stage"] == "retrieve"} == {None}


@pytest.mark.slow
def test_no_request_goes_beside_a_first_one_that_may_be_written_to_a_cache_and_so_take_most_of_the_money(
    night: Callable[..., Any],
) -> None:
    """A prompt of some hundred characters may cost some dollars; it costs nothing, and then the others go."""
    with FakeServer(seconds=0.02) as server:
        run_in_process(night(server, 10, "limits.max_cost_usd=2", prices="{cache_write: 10000}"))
        assert server.times[1] - server.times[0] >= server.seconds
        assert sum(server.sends.values()) == COUNT


@pytest.mark.slow
def test_no_request_goes_beside_a_first_one_whose_answer_may_take_most_of_the_money(night: Callable[..., Any]) -> None:
    """By the limit of `args`, which is what is sent; the decoding's would leave room for all in flight."""
    with FakeServer(seconds=0.02, completion_tokens=TOKENS // 10) as server:
        run_in_process(night(server, 10, "limits.max_cost_usd=2", "rewrite.engine.args={max_tokens: 20000}"))
        assert server.times[1] - server.times[0] >= server.seconds
        assert sum(server.sends.values()) == COUNT


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("openai", {}), ("openai", {"max_tokens": 8000}), ("openai", {"max_tokens": None, "max_completion_tokens": 900}),
        ("openai", {"max_tokens": 40}), ("anthropic", {}), ("anthropic", {"max_tokens": 9000}),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 8000}}),
        ("anthropic", {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8000}}),
    ],
)  # fmt: skip
def test_the_longest_answer_is_what_the_body_of_a_request_says(kind: str, args: dict[str, Any]) -> None:
    engine = {"openai": OpenaiSettings, "anthropic": AnthropicSettings}[kind]
    settings = engine(kind=kind, model="tiny", base_url="http://h/v1", args=args)
    asked = Request("q", "lamp", "keyword", "lamp", "0", decoding={"max_tokens": 512})
    body, _ = {"openai": openai.request_body, "anthropic": anthropic.request_body}[kind]("tiny", asked, args, ())
    assert settings.longest_answer(512) == body.get("max_tokens", body.get("max_completion_tokens"))
