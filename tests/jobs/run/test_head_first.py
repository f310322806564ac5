"""The queries that are asked most often come first: what a stop leaves undone, what is said, and runs of before."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.chain.stages.write import Write
from jobs.pages.summary import closing_table
from jobs.run.job import Job
from jobs.run.watch import Watch
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import QUERIES, prepared_job, prepared_work, run_in_process
from tests.support.jobs.report_runs import page
from tests.support.jobs.whole_runs import rows

ASKED = dict(zip(QUERIES, (9, 1, 5, 1, 2, 1), strict=True))  # 19 in all
HEAD = {"why does bread rise", "moon and tides"}  # 14: one alone is not half


@pytest.fixture
def job(bm25_job: str) -> str:
    pq.write_table(pa.table({"query": [query for query, count in ASKED.items() for _ in range(count)]}), "log.parquet")
    return bm25_job


def committed(job: Job) -> set[str]:
    """The queries of the committed shards."""
    storage, found = job.prepared.storage, set[str]()
    shards = json.loads(storage.get("shards.json") or b"")["shards"]
    for entry in storage.list("commits"):
        _, key, group, _ = shards[json.loads(storage.get(entry.key) or b"")["shard"]]
        with storage.open(key) as file:
            found |= set(pq.ParquetFile(file).read_row_group(group).column("query").to_pylist())
    return found


def fail_at_the_second(patch: pytest.MonkeyPatch) -> None:
    """Has the second shard that comes to the ordering stage end the run."""
    order, left = Write.__call__, [1]

    def ordered(self: Write, table: pa.Table) -> pa.Table:
        if not left:
            raise ZeroDivisionError("the second shard")
        left.pop()
        return order(self, table)

    patch.setattr(Write, "__call__", ordered)


def begun(path: str, *settings: str) -> Job:
    """A run that ends after its first shard."""
    job = prepared_job(path, *settings)
    with pytest.raises(ZeroDivisionError):
        run_in_process(job)
    return job


def test_a_run_that_ends_early_leaves_what_is_asked_least(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at_the_second(monkeypatch)
    ended = begun(job, "cluster.shard_size=2")
    assert committed(ended) == HEAD
    folder = open_run(ended.prepared.storage.root)
    assert folder.state == "failed: 1 of 3 shards are committed, 73.7 % of the traffic"
    assert "6 distinct; 2 committed, 73.7 % of the traffic" in shown(folder)
    assert "73.7 % of the traffic" in " ".join(" ".join(page(folder).sections.values()).split())


def test_status_says_how_much_of_the_traffic_is_covered(
    job: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    covered = list[float | None]()
    look = Watch.look

    def looked(self: Watch, *values: Any) -> None:
        look(self, *values)
        covered.append(self.state.values(0.0)["traffic_covered"])

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "look", looked)
        fail_at_the_second(patch)
        root = begun(job, "cluster.shard_size=2").prepared.storage.root
    assert covered[-1] == pytest.approx(14 / 19, abs=1e-6)
    assert main(["runs", root, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["traffic_covered"] == pytest.approx(14 / 19, abs=1e-6)
    assert main(["runs", root]) == 0
    assert "traffic 73.7 % covered" in " ".join(capfd.readouterr().out.split())
    run_in_process(prepared_job(job, "cluster.shard_size=2"))
    assert main(["runs", root, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["traffic_covered"] == 1
    assert main(["runs", root]) == 0
    assert "covered" not in capfd.readouterr().out


def test_of_a_finished_run_the_traffic_is_not_told(job: str) -> None:
    folder = open_run(str(run_in_process(prepared_job(job))))
    assert "of the traffic" not in shown(folder) + "".join(page(folder).sections.values())


def shown(folder: Any) -> str:
    table = closing_table(folder, None).renderables[0]  # type: ignore[attr-defined]
    return "\n".join(str(cell) for cell in table.columns[1].cells)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_each_tier_is_in_order_of_the_ids_whatever_the_shards(job: str, size: int) -> None:
    folder = run_in_process(prepared_job(job, f"cluster.shard_size={size}"))
    plan = json.loads((folder / "shards.json").read_text())
    tiers: list[list[dict[str, Any]]] = [[], []]
    for number, key, group, count in plan["shards"]:
        part = pq.ParquetFile(folder / key).read_row_group(group).to_pylist()
        assert len(part) == count <= size
        tiers[number >= plan["head"]] += part
    assert {one["query"] for one in tiers[0]} == HEAD
    for tier in tiers:
        assert [one["query_id"] for one in tier] == sorted(one["query_id"] for one in tier)
    assert plan["counts"]["traffic"] == sum(ASKED.values())


def test_where_all_are_asked_equally_often_there_is_one_tier(job: str) -> None:
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    folder = run_in_process(prepared_job(job))
    plan = json.loads((folder / "shards.json").read_text())
    assert (plan["head"], len(plan["shards"]), len(list((folder / "queries").iterdir()))) == (0, 2, 1)


@pytest.mark.slow
def test_an_ablation_has_the_same_tiers(job: str) -> None:
    arms = prepared_work(job, [], {"arms": {"rrf": {"fuse.method": "rrf"}}})
    folder = run_in_process(arms)
    plan = json.loads((folder / "shards.json").read_text())
    assert plan["head"] == 1
    run = rows(run_in_process(prepared_job(job)), "results")
    of_arm, of_run = (
        sorted((one["query_id"], one["rank"], one["doc_id"], one["score"]) for one in of)
        for of in ([one for one in rows(folder, "results") if one["arm"] == "full"], run)
    )
    assert of_arm == of_run
