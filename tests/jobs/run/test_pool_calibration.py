"""Pools with `workers: auto`: from what the work of the stages is known, and which shards run first where it is not."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.costs import Totals
from cluster.errors import ClusterError, ConfigError
from cluster.placement import NodeGroup
from cluster.run.pool_sizes import Pool, PoolRequest, size_pools
from cluster.run.session import Session
from cluster.run.shards import Manifest, Shard
from cluster.storage import open_storage
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.job.pools import requested_pools
from jobs.job.prepare import Prepared, prepare
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.run.pool_calibration import PoolSizes
from jobs.runs.tally import Tally
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import run_in_process

Values = dict[str, Any]
NODES = [NodeGroup(3, 16, 4)]
REQUESTS = {
    "rewrite": PoolRequest("auto", gpus=1),
    "retrieve": PoolRequest(2, cpus=2),
    "rerank": PoolRequest("auto", gpus=1),
}
ONE_EACH = {"rewrite": 1, "retrieve": 1, "rerank": 1}


class FakeSession:
    """Pools on nodes that nobody starts."""

    def __init__(self, requests: dict[str, PoolRequest] = REQUESTS) -> None:
        self.resize(requests)

    def resize(self, requests: dict[str, PoolRequest]) -> None:
        self.pools = size_pools(requests, NODES, local=False)


def shards(count: int, rows: int = 100) -> list[Shard]:
    return [Shard(number, "queries", number, rows) for number in range(count)]


def work(queries: int) -> Totals:
    """Of so many queries: reranking takes three times the rewriting; loading a model takes long."""
    each = {"rewrite": 0.01, "retrieve": 0.001, "rerank": 0.03}
    return {
        stage: {"c@m": {"seconds": value * queries}, "start_up.load@": {"seconds": 1000.0}} for stage, value in each.items()
    }


def add(tally: Tally, turn: Sequence[Shard]) -> None:
    """Commits shards."""
    for shard in turn:
        tally.add(Manifest(shard.number, 1, {}, {"queries": shard.rows}, work(shard.rows)))


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """A job that has written nothing."""
    output = open_storage(str(tmp_path))
    return SimpleNamespace(
        config=SimpleNamespace(name="small"), identity={}, output=output, storage=open_storage(str(tmp_path / "run"))
    )


def sizes_of(session: FakeSession) -> dict[str, int]:
    return {name: pool.workers for name, pool in session.pools.items()}


def test_where_nothing_is_known_the_first_shards_run_with_one_worker_each_and_size_the_pools(
    job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dmqr")
    session: Any = FakeSession()
    assert sizes_of(session) == {"rewrite": 1, "retrieve": 2, "rerank": 1}
    sizes, tally = PoolSizes(job, session, REQUESTS), Tally()
    add(tally, [Shard(99, "queries", 99, 1000)])  # of an earlier start, whose workers are not known
    turns = sizes.turns(shards(20), tally)
    first = next(turns)
    assert [shard.number for shard in first] == [0, 1]  # two hundred queries
    assert sizes_of(session) == ONE_EACH
    assert sizes.values() == {}
    add(tally, first)
    (rest,) = turns
    assert [shard.number for shard in rest] == list(range(2, 20))
    assert sizes_of(session) == {"rewrite": 3, "retrieve": 2, "rerank": 9}
    values = sizes.values()
    assert values["sized_by"] == "a calibration"
    assert values["seconds_per_query"] == {"rewrite": 0.01, "retrieve": 0.001, "rerank": 0.03}
    assert values["calibration"]["workers"] == 3
    said = [record.getMessage() for record in caplog.records if record.event == "pools"]  # type: ignore[attr-defined]
    assert said == [
        "the work of the stages is not known: the first 2 of 20 shards run with one worker of each pool, to size the others by",
        "pools: rewrite 3 x (1 CPU, 1 GPU); retrieve 2 x (2 CPU); rerank 9 x (1 CPU, 1 GPU); by a calibration: a worker needs "
        "for a query rewrite 0.010 s, retrieve 0.0010 s, rerank 0.030 s",
    ]


def test_a_small_log_is_done_by_the_calibration(job: Any) -> None:
    session: Any = FakeSession()
    turns = PoolSizes(job, session, REQUESTS).turns(shards(2, rows=50), Tally())
    assert len(next(turns)) == 2
    assert list(turns) == []
    assert sizes_of(session) == ONE_EACH


@pytest.mark.parametrize(("gpus", "calibrates"), [(1.0, False), (0.0, True)])
def test_what_is_committed_counts_if_its_workers_were_the_same(job: Any, gpus: float, calibrates: bool) -> None:
    session: Any = FakeSession()
    before = {name: pool._replace(workers=7, cpus=9 if pool.gpus else pool.cpus) for name, pool in session.pools.items()}
    before["rerank"] = before["rerank"]._replace(gpus=gpus)
    start = {"pools": {name: pool._asdict() for name, pool in before.items()}}
    job.storage.put("run.json", json.dumps({"starts": [start]}).encode())
    tally = Tally()
    add(tally, shards(4))
    sizes = PoolSizes(job, session, REQUESTS)
    first = next(sizes.turns(shards(20)[4:], tally))
    assert len(first) == (2 if calibrates else 16)
    assert sizes_of(session) == (ONE_EACH if calibrates else {"rewrite": 3, "retrieve": 2, "rerank": 9})
    assert sizes.values().get("sized_by") == (None if calibrates else "the 4 shards that are committed")


def test_there_are_no_more_workers_than_shards(job: Any) -> None:
    session: Any = FakeSession()
    turns = PoolSizes(job, session, REQUESTS).turns(shards(6), tally := Tally())
    add(tally, next(turns))
    assert len(next(turns)) == 4
    assert sizes_of(session) == {"rewrite": 2, "retrieve": 2, "rerank": 4}


def test_the_engines_of_an_ablation_have_equal_parts_of_their_stage(job: Any) -> None:
    requests = REQUESTS | {"rewrite_2": PoolRequest("auto", gpus=1)}
    session: Any = FakeSession(requests)
    sizes, tally = PoolSizes(job, session, requests), Tally()
    turns = sizes.turns(shards(30), tally)
    add(tally, next(turns))
    next(turns)
    assert sizes.values()["seconds_per_query"] == {"rewrite": 0.005, "retrieve": 0.001, "rerank": 0.03, "rewrite_2": 0.005}


def test_pools_of_fixed_sizes_are_left_as_they_are(job: Any) -> None:
    requests = {"rewrite": PoolRequest(2), "rerank": PoolRequest((1, 3))}
    session: Any = FakeSession(requests)
    pools = session.pools
    sizes = PoolSizes(job, session, requests)
    assert list(sizes.turns(shards(3), Tally())) == [shards(3)]
    assert (session.pools, sizes.values(), sizes.auto) == (pools, {}, False)


def test_on_one_machine_the_cores_are_divided_after_the_calibration(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has started by then, with as many logical CPUs as it was given."""
    import ray

    there: dict[str, float] = {}
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(ray, "init", lambda *_, num_cpus, **__: there.update(CPU=num_cpus))
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": there}])
    requests = {name: PoolRequest("auto") for name in ("rewrite", "rerank")}
    session, tally = Session("local", requests), Tally()
    turns = PoolSizes(job, session, requests).turns(shards(20), tally)
    add(tally, next(turns))
    assert len(next(turns)) == 18
    assert {name: pool.workers for name, pool in session.pools.items()} == {"rewrite": 2, "rerank": 6}
    with pytest.raises(ClusterError, match="the pools want 1 GPUs, the cluster has 0"):
        session.resize({"rerank": PoolRequest(1, gpus=1)})


# ---------------------------------------------------------------- the config


def config(values: Values, **cluster: Any) -> Config:
    return Config.model_validate(values | {"cluster": cluster})


def test_auto_of_a_server_is_one_worker_and_of_searches_no_more_than_there_may_be_requests(values: Values) -> None:
    values["rewrite"]["engine"] = {"kind": "openai", "model": "m", "base_url": "http://localhost/v1"}
    elastic = {"kind": "elastic", "index": "docs", "max_in_flight": 6}
    values |= {"retrieve": {"retrievers": {"bm25": elastic}}, "rerank": {"model": "r"}}
    auto = {"workers": "auto"}
    requests = requested_pools(config(values, rewrite=auto, retrieve=auto, rerank=auto))
    assert {name: (request.workers, request.max_workers) for name, request in requests.items()} == {
        "rewrite": (1, None), "retrieve": ("auto", 3), "rerank": ("auto", 3)
    }  # fmt: skip


@pytest.mark.parametrize(("gpus", "refused"), [(None, False), (4, False), (8, False), (0, False), (1, True), (0.5, True)])
def test_a_worker_has_the_gpus_that_its_engine_spans(values: Values, gpus: float | None, refused: bool) -> None:
    args = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    values["rewrite"]["engine"] = {"kind": "vllm", "model": "m", "args": args}
    asked = config(values, rewrite={"gpus": gpus})
    if refused:
        with pytest.raises(ConfigError, match=rf"a worker has {gpus:g}, but its engine spans 4 \(tensor_parallel_size x"):
            requested_pools(asked)
    else:
        assert requested_pools(asked)["rewrite"].gpus == (4 if gpus is None else gpus)


# ---------------------------------------------------------------- a run, then the plan of the next


@pytest.fixture
def make(
    tmp_path: Path, values: Values, bm25: Values, config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Prepared]:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["sea", "bread", "moon"]}), "log.parquet")
    (tmp_path / "recorded.jsonl").write_text('{"query": "sea", "completions": {"dmqr": "{}"}}\n')
    values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "limits": {"error_rate": 1}}
    path = config_file(values)

    def prepared(*settings: str) -> Prepared:
        return prepare(load_config(path, list(settings)), path)

    return prepared


def test_the_plan_shows_by_what_the_pools_will_be_sized(make: Callable[..., Prepared]) -> None:
    auto = [f"cluster.{stage}.workers=auto" for stage in ("rewrite", "retrieve")]
    before = plan(make(*auto), LiveDisplay(io.StringIO()))
    assert before["sized"] == "auto: no run of this kind is known; the first 200 queries or more calibrate, one worker each"
    done = make("cluster.address=none", "label=first", *auto)
    run_in_process(done)
    record = json.loads(done.storage.get("run.json") or b"")["starts"][0]
    assert "sized_by" not in record  # one worker per stage: there is nothing to divide
    pq.write_table(pa.table({"query": ["rye", "yeast"]}), "log.parquet")
    after = plan(make(*auto), LiveDisplay(io.StringIO()))
    basis = f"auto: by {done.run_id}, the last run of this kind: a worker needs for a query rewrite 0."
    assert after["sized"].startswith(basis)
    cells = Counter(str(cell) for column in plan_table(after).columns for cell in column.cells)
    assert cells[after["sized"]] == 1
    assert {name: Pool(**pool).cpus for name, pool in after["pools"].items()} == {"rewrite": 1, "retrieve": 1}
