"""A budget ends a run also where the server fails now and then, and where strategies have engines of their own."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.costs import Prices
from cluster.run.stage import reporting_to
from cluster.storage import open_storage
from jobs.chain.completer import Completer
from jobs.chain.completions import key_of
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.run.limits import Stopped
from rewriters.engines import Request
from rewriters.engines.settings import OpenaiSettings
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.rewriters.fake_server import FAULTS, FakeServer, Reply

COUNT, TOKENS = 300, 100
PRICE = TOKENS / 1e4  # USD of an answer: 100 USD for a million tokens
LONGEST_SECONDS = 400.0  # a quiet machine needs a few


class Flaky:
    """The `answer` of a server of which a share of the sends ends in HTTP 500."""

    def __init__(self, seed: int, share: float = 0.05) -> None:
        self._random, self._share = random.Random(seed), share

    def __call__(self, body: dict[str, Any]) -> Reply | None:
        return FAULTS["500"] if self._random.random() < self._share else None


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Fails if the body does not end; it runs on the main thread, as `run` wants."""

    def late(_number: int, _frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def night(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str]
) -> Callable[..., Any]:
    """Returns a prepared run with a budget; `own` answers for a strategy that has an engine of its own."""
    pq.write_table(pa.table({"query": [f"question {n}" for n in range(COUNT)]}), tmp_path / "log.parquet")

    def make(server: FakeServer, usd: float, own: FakeServer | None = None, shards: int = 3) -> Any:
        values["log"]["path"] = str(tmp_path / "log.parquet")
        engine = {"kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": 16}
        strategies: list[Any] = ["keyword"]
        if own is not None:
            strategies.append({"general": {"engine": engine | {"model": "dear", "base_url": own.address}}})
        values["rewrite"] = {"engine": engine, "strategies": strategies, "calls": "separate"}
        values["retrieve"] |= {"retrievers": {"bm25": bm25}}
        values["output"] = str(tmp_path / "runs")
        values.update({"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": COUNT // shards}})
        values["limits"] = {"error_rate": 1, "max_cost_usd": usd}
        (tmp_path / "prices.yaml").write_text("tokens: {tiny: {completion: 100}, dear: {completion: 1000}}\n")
        path = config_file(values)
        return prepare(load_config(path, []), path)

    return make


def test_a_budget_ends_a_run_whose_server_fails_now_and_then(night: Callable[..., Any]) -> None:
    failing = Flaky(1)
    failures: list[Reply] = []

    def answer(body: dict[str, Any]) -> Reply | None:
        reply = failing(body)
        failures.extend([reply] if reply else [])
        return reply

    limit = COUNT * PRICE / 2
    with FakeServer(seconds=0.005, completion_tokens=TOKENS, answer=answer) as server:
        prepared = night(server, limit)
        with in_time(), pytest.raises(Stopped) as stopped:
            run_in_process(prepared)
        paid = (sum(server.sends.values()) - len(failures)) * PRICE
    assert failures
    assert 0.9 * limit <= paid <= limit + 1e-9
    assert f"${paid:.2f} are spent" in str(stopped.value)
    record = json.loads(prepared.storage.get("progress.json") or b"")
    assert record["state"] == "stopped"


def test_a_budget_ends_a_run_of_two_engines(night: Callable[..., Any]) -> None:
    limit = COUNT * PRICE * 2
    with (
        FakeServer(["tiny"], seconds=0.002, completion_tokens=TOKENS, answer=Flaky(1)) as server,
        FakeServer(["dear"], seconds=0.002, completion_tokens=TOKENS) as own,
    ):
        prepared = night(server, limit, own)
        with in_time(), pytest.raises(Stopped):
            run_in_process(prepared)
        paid = sum(server.sends.values()) * PRICE + sum(own.sends.values()) * 10 * PRICE
    assert 0.8 * limit <= paid <= limit * 1.02  # the 500s are counted here, and are not paid


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
        engines = {
            "": OpenaiSettings(kind="openai", model="tiny", base_url=cheap.address, max_in_flight=16),
            "general": OpenaiSettings(kind="openai", model="dear", base_url=dear.address, max_in_flight=16),
        }
        with reporting_to(lambda _share, _spent: None, reserve):
            completer = Completer(
                "rewrite", engines, open_storage(str(tmp_path)), 1, key_of, prices=prices, most_tokens=4 * TOKENS
            )
        ended: list[str] = []

        def block(shard: int, *order: str) -> None:
            requests = {key_of(one): one for one in _requests(100, *order)}
            store = completer.open(shard)
            try:
                completer.fill(store, requests)
                ended.append("done")
            except Exception as error:
                ended.append(type(error).__name__)

        threads = [threading.Thread(target=block, args=one, daemon=True) for one in ((0, "", "general"), (1, "general", ""))]
        for one in threads:
            one.start()
        for one in threads:
            one.join(LONGEST_SECONDS)
        assert ended == ["BlockHalted"] * 2
        completer.close()
        tiny, more = sum(cheap.sends.values()) - failures["tiny"], sum(dear.sends.values()) - failures["dear"]
    paid = tiny * PRICE + more * 10 * PRICE
    assert limit - 10 * PRICE <= paid <= limit + 1e-9
