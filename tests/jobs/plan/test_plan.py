"""Words and refusals of `plan`."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, RetrieverError
from cluster.prices import Prices
from cluster.run.pool_sizes import local_pools
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared, prepare
from jobs.job.rewrite import read_rewriting
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.run.job import Job
from jobs.terminal.formats import money
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import prepared_job, run_in_process

Values = dict[str, Any]


@pytest.fixture
def prepared(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> Prepared:
    """A job for a server that nobody asks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "check_engines", lambda _: None)
    pq.write_table(pa.table({"query": ["sea", "bread"]}), "log.parquet")
    values["rewrite"]["engine"] = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:9/v1"}
    values["retrieve"]["retrievers"] = {"bm25": bm25}
    values["rerank"] = {"kind": "none"}
    path = config_file(values)
    return replace(prepare(load_config(path), path), prices=Prices(cpu_worker_hour=3.6, tokens={"tiny": {"prompt": 2.0}}))


def planned(job: Prepared) -> dict[str, Any]:
    return plan(job, LiveDisplay(io.StringIO()))


def cells(plan: dict[str, Any]) -> dict[str, str]:
    """The rows of the table of a plan."""
    return dict(zip(*(list(map(str, column.cells)) for column in plan_table(plan).columns), strict=True))


def of_config(prepared: Prepared, config: Config) -> Prepared:
    """The job with another config, whose strategies are read."""
    return replace(prepared, config=config, engine=config.rewrite.engine, rewriting=read_rewriting(config))


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_more_workers_than_requests_in_flight_are_refused_before_anything_is_written(
    small_job: Callable[..., str], served_dense: Values, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    dense = served_dense | {"encoder": served_dense["encoder"] | {"max_in_flight": 2}}
    path = small_job(retrieve={"retrievers": {"dense": dense}})
    job = prepared_job(path, "cluster={address: local, retrieve: {workers: 3}}")
    pools = local_pools(requested_pools(job.prepared.config), 0)
    monkeypatch.setattr("jobs.run.run.Session", lambda *_: SimpleNamespace(pools=pools, close=lambda: None, nodes=dict))
    verbs = {"plan": lambda: planned(job.prepared), "run": lambda: run_in_process(job)}
    with pytest.raises(ConfigError, match=r"3 workers cannot share 2 requests in flight \(retrieve 3\)"):
        verbs[verb]()
    assert list(job.prepared.storage.list()) == []


POOL = ["general", "hyde", {"rag_fusion": {"n": 3}}]


@pytest.mark.parametrize(
    ("select", "requests"),
    [
        ("all", 3),  # rag_fusion has one answer of three lines
        ("adaptive", 1),
        ({"kind": "random_k", "k": 1}, 1),  # whose it is is known
        ({"kind": "column", "column": "x"}, 3),
    ],
)
def test_what_a_query_needs_at_most_is_said_whatever_is_selected(prepared: Prepared, select: Any, requests: int) -> None:
    rewrite = prepared.config.rewrite.model_dump() | {"strategies": POOL, "select": select}
    config = Config.model_validate(prepared.config.model_dump() | {"rewrite": rewrite})
    kinds = planned(of_config(prepared, config))["missing"]["kinds"]
    assert kinds["requests"]["number"]["high"] == 2 * requests
    assert kinds["searches"]["number"]["high"] == 2 * (1 + 1 + 1 + 3)  # three texts of one strategy


@pytest.mark.parametrize("retries", [0, 2])
def test_tries_are_no_part_of_what_is_missing_and_it_says_so(prepared: Prepared, retries: int) -> None:
    rewrite = prepared.config.rewrite.model_copy(update={"retries": retries})
    limits = prepared.config.limits.model_copy(update={"max_cost_usd": 1e-9})
    config = prepared.config.model_copy(update={"rewrite": rewrite, "limits": limits})
    found = planned(of_config(prepared, config))
    rows = cells(found)
    apart = "; up to 2 more of each request whose answer does not serve (rewrite.retries) are apart"
    assert rows["missing"] == f"of the 2 queries that are left{apart if retries else ''}"
    usd = found["missing"]["usd"]
    expected = f"about {money(usd['expected'])} ({money(usd['low'])} to {money(usd['high'])}) are expected"
    expected += ", retries apart" if retries else ""
    assert f"the run will stop before its end: {expected}, limits.max_cost_usd is" in rows["warning"]


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(0, "cores here, all stages in one process"), (2, "cores and 2 GPUs here; they go to the last stages first")],
)
def test_accelerators_are_spoken_of_where_there_are_some(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, gpus: float, words: str
) -> None:
    for module in ("jobs.plan.plan", "cluster.run.session"):
        monkeypatch.setattr(f"{module}.usable_gpus", lambda requested: float(gpus))
    assert planned(prepared)["there"].endswith(words)


def test_where_no_document_can_be_read_requests_about_them_have_no_price(
    prepared: Prepared, values: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values["answer"] = {"documents": 2}
    path = config_file(values)
    job = replace(prepare(load_config(path), path), prices=prepared.prices)

    def tokens() -> Any:
        return planned(job)["missing"]["kinds"]["answers"]["prompt_tokens"]

    known = tokens()
    assert 0 == known["low"] < known["expected"] < known["high"]

    def away(*_: Any, **__: Any) -> Any:
        raise RetrieverError("index-missing", "it is gone")

    monkeypatch.setattr("jobs.plan.tokens.open_documents", away)
    assert tokens() is None
    assert planned(job)["missing"]["unpriced"] == ["answers"]


def test_requests_are_priced_by_the_tier_that_their_engine_asks_for(prepared: Prepared) -> None:
    priced = {"prompt": 2.0, "completion": 20.0, "tiers": {"flex": {"prompt": 1.0, "completion": 10.0}}}
    prices, values, usd = Prices.model_validate({"tokens": {"tiny": priced}}), prepared.config.model_dump(), []
    for args in ({}, {"service_tier": "flex"}):
        values["rewrite"]["engine"]["args"] = args
        job = replace(of_config(prepared, Config.model_validate(values)), prices=prices)
        usd.append(planned(job)["missing"]["usd"])
    assert usd[0] == pytest.approx({end: 2 * value for end, value in usd[1].items()}, abs=2e-6)
    assert usd[1]["expected"] > 0
