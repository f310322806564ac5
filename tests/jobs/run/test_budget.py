"""Money is counted when it is spent, and no request is sent that the budget does not pay for, also of tries and with faults."""

import asyncio
import json
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.prices import Prices
from cluster.run.progress import ProgressTracker
from cluster.run.stage import reporting_to
from jobs.chain.allowance import Allowance
from jobs.chain.arms.resources import AnsweredBy
from jobs.chain.engines import open_engines
from jobs.chain.worker import WorkerJob
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.run.limits import Stopped
from jobs.terminal.formats import money
from rewriters.engines import Request
from rewriters.engines.anthropic import MessagesProtocol
from rewriters.engines.openai.protocol import ChatProtocol
from rewriters.engines.settings import AnthropicSettings, OpenaiSettings
from rewriters.retries import FIRST_TRY
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.jobs.workers import job
from tests.support.rewriters.fake_server import FAULTS, Body, FakeServer, Reply, completion

TOKENS = 100
PRICE = TOKENS / 1e4  # USD of an answer of so many tokens: 100 USD for a million
LONGEST_SECONDS = 400.0  # a quiet machine needs a few
Night = Callable[..., Prepared]


@pytest.fixture
def night(tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str]) -> Night:
    """Makes a job of so many queries and shards with a priced server and a budget."""

    def make(
        server: FakeServer, count: int, shards: int, usd: float, *settings: str,
        in_flight: int = 16, prices: str = "{completion: 100}", **rewrite: Any,
    ) -> Prepared:  # fmt: skip
        if not (tmp_path / "log.parquet").exists():  # a log that was written again is another
            pq.write_table(pa.table({"query": [f"question {n}" for n in range(count)]}), tmp_path / "log.parquet")
        (tmp_path / "prices.yaml").write_text(f"tokens: {{tiny: {prices}}}\n")
        engine = {"kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": in_flight}
        changed = values | {
            "log": {"path": str(tmp_path / "log.parquet"), "query_column": "query"},
            "rewrite": {"engine": engine, "strategies": ["keyword"], "calls": "separate"} | rewrite,
            "retrieve": {"retrievers": {"bm25": bm25}},
            "output": str(tmp_path / "runs"),
            "rerank": {"kind": "none"},
            "cluster": {"address": "none", "shard_size": count // shards},
            "limits": {"error_rate": 1, "max_cost_usd": usd},
        }
        path = config_file(changed)
        return prepare(load_config(path, list(settings)), path)

    return make


# ---------------------------------------------------------------- division among workers


def test_grants_never_exceed_the_limit() -> None:
    budget = ProgressTracker({}, 1, 10.0)
    budget.spent_elsewhere(2.0)
    assert budget.reserve("a", 0.0, 5.0) == 5.0
    assert budget.reserve("b", 0.0, 5.0) == 3.0
    assert budget.reserve("a", 5.0, 5.0) == 5.0  # nothing is left
    budget.spent_elsewhere(1.0)
    assert budget.reserve("a", 6.0, 5.0) == 6.0  # spent more than it was granted
    assert ProgressTracker({}, 1).reserve("a", 100.0, 5.0) == float("inf")


def test_requests_without_a_price_are_sent() -> None:
    budget = ProgressTracker({}, 1, 1.0)

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


@pytest.mark.slow
@pytest.mark.parametrize("shards", [10, 1])
def test_a_quarter_of_the_money_pays_for_a_quarter_of_the_requests(night: Night, shards: int) -> None:
    count = 200
    with FakeServer(seconds=0.005, completion_tokens=TOKENS) as server:
        limit = count * PRICE / 4
        prepared = night(server, count, shards, limit, in_flight=4)
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
            run_in_process(night(server, count, shards, limit, in_flight=4))
        assert sum(server.sends.values()) <= limit / PRICE
        folder = run_in_process(night(server, count, shards, 1000, in_flight=4))
        assert sum(server.sends.values()) == count  # nothing is paid for twice
    spent = json.loads(prepared.storage.get("run.json") or b"")["costs"]["rewrite"]["keyword@tiny"]
    assert (spent["requests"], spent["completion_tokens"]) == (count, count * TOKENS)
    costs, host = rows(folder, "costs"), server.address.split("/")[2]
    assert {row["provider"] for row in costs if row["component"] == "keyword"} == {host}
    assert {row["provider"] for row in costs if row["stage"] == "retrieve"} == {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prices", "settings", "tokens"),
    [
        ("{cache_write: 10000}", (), 0),  # a prompt may be written to a cache and cost some dollars
        # The limit of `args` is what is sent; the decoding's would leave room for all in flight.
        ("{completion: 100}", ("rewrite.engine.args={max_tokens: 20000}",), TOKENS // 10),
    ],
)
def test_no_request_goes_beside_a_first_one_that_may_take_most_of_the_money(
    night: Night, prices: str, settings: tuple[str, ...], tokens: int
) -> None:
    with FakeServer(seconds=0.02, **({"completion_tokens": tokens} if tokens else {})) as server:
        run_in_process(night(server, 200, 10, 2, *settings, in_flight=4, prices=prices))
        assert server.times[1] - server.times[0] >= server.seconds
        assert sum(server.sends.values()) == 200


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
    protocol = {"openai": ChatProtocol, "anthropic": MessagesProtocol}[kind]()
    body, _ = protocol.request_body("tiny", asked, args, ())
    assert settings.longest_answer(512) == body.get("max_tokens", body.get("max_completion_tokens"))


# ---------------------------------------------------------------- tries


def refuses_at_first(body: Body) -> Reply:
    """Every answer has 100 tokens; the second is good."""
    text = "I'm sorry, but I can't help with that request." if body["seed"] < FIRST_TRY else '{"general": "about it"}'
    return Reply(content=json.dumps(completion(text, {"prompt_tokens": 0, "completion_tokens": TOKENS})).encode())


def is_cut_at_first(body: Body) -> Reply:
    """Every answer has as many tokens as it may: that of a try is twice as dear."""
    cut, usage = body["seed"] < FIRST_TRY, {"prompt_tokens": 0, "completion_tokens": body["max_tokens"]}
    text = '{"general": "about' if cut else '{"general": "about it"}'
    return Reply(content=json.dumps(completion(text, usage, "length" if cut else "stop")).encode())


@pytest.mark.parametrize(("answer", "dear", "shards"), [(refuses_at_first, 1, 6), (is_cut_at_first, 2, 1)])
def test_a_budget_holds_with_tries(night: Night, answer: Any, dear: int, shards: int) -> None:
    """Money for all first requests, and some of the tries: `dear` times the price of a first request."""
    count, tried = 60, {"strategies": ["general"], "calls": "joint", "retries": 1, "decoding": {"max_tokens": TOKENS}}
    limit = (count + 20 * dear + 0.5) * PRICE if shards == 1 else (1 + dear) * PRICE * count / 2

    def paid(bodies: list[Body]) -> float:
        return sum(dear if body["seed"] >= FIRST_TRY else 1 for body in bodies) * PRICE

    with FakeServer(answer=answer) as server:
        prepared = night(server, count, shards, limit, **tried)
        with pytest.raises(Stopped) as stopped:
            run_in_process(prepared)
        assert stopped.value.code == "stopped-cost"
        assert 0.8 * limit <= paid(server.bodies) <= limit + 1e-9
        committed = len(list(prepared.storage.list("commits")))
        assert f"{committed} of {shards} shards are committed" in str(stopped.value)
        tries = [body for body in server.bodies if body["seed"] >= FIRST_TRY]
        assert tries
        assert all(body["max_tokens"] == dear * TOKENS for body in tries)
        suggested = float(str(stopped.value).rpartition("limits.max_cost_usd=")[2])
        folder = run_in_process(night(server, count, shards, suggested if dear == 1 else 1000, **tried))
        assert len(server.bodies) == 2 * count  # nothing is paid for twice
        whole = (1 + dear) * count * PRICE
        assert paid(server.bodies) == pytest.approx(whole)
    costs = [row for row in rows(folder, "costs") if row["stage"] == "rewrite" and row["requests"]]
    assert sum(row["requests"] for row in costs) == 2 * count
    assert sum(row["completion_tokens"] for row in costs) == (1 + dear) * count * TOKENS
    assert sum(row["reason"] == "tried_again" for row in rows(folder, "errors")) == count
    assert len(rows(folder, "rewrites")) == count


# ---------------------------------------------------------------- faults


class Flaky:
    """The `answer` of a server of which a share of the sends ends in HTTP 500."""

    def __init__(self, seed: int, share: float = 0.05) -> None:
        self._random, self._share = random.Random(seed), share

    def __call__(self, body: dict[str, Any]) -> Reply | None:
        return FAULTS["500"] if self._random.random() < self._share else None


def _requests(count: int, *engines: str) -> list[Request]:
    return [
        Request(f"{n:032d}", f"question {n}", engine or "keyword", f"{engine} question {n}", "0" * 16, engine=engine,
                decoding={"max_tokens": 4 * TOKENS})
        for n in range(count)
        for engine in engines
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_money_is_granted_before_it_is_spent_whatever_fails(tmp_path: Path, seed: int) -> None:
    """Two blocks at a time, two engines, a share of 500s: both end, and no more is paid than was granted."""
    prices = Prices(tokens={"tiny": {"completion": 100.0}, "dear": {"completion": 1000.0}})
    limit, seen = 3.0, threading.Lock()
    failures = {"tiny": 0, "dear": 0}

    def counting(model: str, flaky: Flaky) -> Callable[[dict[str, Any]], Reply | None]:
        def answer(body: dict[str, Any]) -> Reply | None:
            reply = flaky(body)
            with seen:
                failures[model] += reply is not None
            return reply

        return answer

    def reserve(spent: float, wanted: float) -> float:
        return min(limit, spent + wanted)

    with (
        FakeServer(["tiny"], completion_tokens=TOKENS, answer=counting("tiny", Flaky(seed))) as cheap,
        FakeServer(["dear"], completion_tokens=TOKENS, answer=counting("dear", Flaky(seed + 100))) as dear,
    ):
        settings = {
            "": OpenaiSettings(kind="openai", model="tiny", base_url=cheap.address, max_in_flight=16),
            "general": OpenaiSettings(kind="openai", model="dear", base_url=dear.address, max_in_flight=16),
        }
        with reporting_to(reserve=reserve):
            asked = {name: AnsweredBy(one, {"model": name}) for name, one in settings.items()}
            engines = open_engines(WorkerJob(job(), str(tmp_path), prices=prices), "rewrite", asked.values(), 4 * TOKENS)
        ended: list[str] = []

        def block(shard: int, *order: str) -> None:
            requests = [replace(one, engine=asked[one.engine].key) for one in _requests(100, *order)]
            try:
                engines.open(shard).add((engines.key(one), one) for one in requests)
                ended.append("done")
            except Exception as error:
                ended.append(type(error).__name__)

        threads = [threading.Thread(target=block, args=one, daemon=True) for one in ((0, "", "general"), (1, "general", ""))]
        for one in threads:
            one.start()
        for one in threads:
            one.join(LONGEST_SECONDS)
        assert ended == ["BlockHalted"] * 2
        engines.close()
        tiny, more = sum(cheap.sends.values()) - failures["tiny"], sum(dear.sends.values()) - failures["dear"]
    paid = tiny * PRICE + more * 10 * PRICE
    assert limit - 10 * PRICE <= paid <= limit + 1e-9
