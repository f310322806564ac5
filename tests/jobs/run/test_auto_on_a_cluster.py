"""A run with `workers: auto` on a Ray of two nodes: calibrated the first night, sized by that night the second."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.placement import NodeGroup
from cluster.run.pool_sizes import PoolRequest, size_pools
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import check_files, check_same_rows

pytestmark = pytest.mark.slow

CPUS = (3, 3)  # of the nodes
QUERIES = [f"{word} {number}" for number in range(80) for word in ("bread", "moon", "lamp", "sea", "yeast")]
SHARDS = 16


@pytest.fixture
def address() -> Iterator[str]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPUS[0]})
    try:
        cluster.add_node(num_cpus=CPUS[1])
        yield str(cluster.address)
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def make(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Prepared]:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    lines = [{"query": query, "completions": {"dmqr": json.dumps({"general": f"about {query}"})}} for query in QUERIES]
    (tmp_path / "recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = ["general"]
    values |= {"retrieve": {"retrievers": {"bm25": bm25}}, "rerank": {"kind": "none"}, "limits": {"error_rate": 1}}
    values["cluster"] = {"shard_size": 25, "rewrite": {"workers": "auto"}, "retrieve": {"workers": "auto"}}
    path = config_file(values)

    def prepared(*settings: str) -> Prepared:
        return prepare(load_config(path, list(settings)), path)

    return prepared


def done(prepared: Prepared) -> tuple[Path, dict[str, Any]]:
    run_in_process(prepared)
    record = json.loads(prepared.storage.get("run.json") or b"")
    (start,) = record["starts"]
    (node,) = record["node_time"]
    assert node["attributed"] + node["start_up"] + node["idle"] + node["lost"] == pytest.approx(node["worker_seconds"])
    return Path(prepared.storage.root), start


def computed(start: dict[str, Any]) -> dict[str, tuple[int, int | None]]:
    """The workers that follow from the seconds which the run has recorded."""
    requests = {name: PoolRequest("auto", seconds=seconds) for name, seconds in start["seconds_per_query"].items()}
    pools = size_pools(requests, [NodeGroup(1, cpus, 0) for cpus in CPUS], local=False)
    return {name: (pool.workers, pool.most) for name, pool in pools.items()}


def test_pools_follow_the_work(make: Callable[..., Prepared], address: str) -> None:
    calm, _ = done(make("output=calm", "cluster.address=none"))
    joined = f"cluster.address={address}"
    folder, first = done(make(joined, "label=first"))
    check_files(folder, SHARDS)
    check_same_rows(folder, calm)
    assert first["sized_by"] == "a calibration"
    assert first["calibration"]["workers"] == 2
    assert 0 < first["calibration"]["seconds"] < first["wall_seconds"]
    pools = {name: (pool["workers"], pool["most"]) for name, pool in first["pools"].items()}
    assert pools == computed(first)
    assert sum(workers for workers, _ in pools.values()) > 2  # six CPUs hold four workers of one CPU beside the tasks

    folder, second = done(make(joined, "label=second"))
    check_same_rows(folder, calm)
    assert second["sized_by"].endswith(", the last run of this kind")
    assert second["calibration"] is None
    assert {name: (pool["workers"], pool["most"]) for name, pool in second["pools"].items()} == computed(second)
