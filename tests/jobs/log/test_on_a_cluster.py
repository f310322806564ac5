"""Both phases on a Ray of two nodes: the same tables as in one process, also where a worker dies, and refusals as they are."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.run.shards import PLAN, read_plan
from cluster.run.spread import spread
from cluster.storage import open_storage
from cluster.storage.copies import cache_folder
from cluster.storage.s3_client import add_traffic, take_traffic
from jobs.config.config import Config
from jobs.job.prepare import Prepared
from jobs.log import dedup as dedup_module
from jobs.log.check import LogColumns
from jobs.log.dedup import dedup
from jobs.log.files import find_log_files
from jobs.log.rejections import rejected_words
from jobs.run.draft import draft_plan, store_plan
from tests.support.jobs.logs import rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[None]:
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            cluster.add_node(num_cpus=1)
            ray.init(cluster.address, log_to_driver=False)
            yield
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Six files with a row that is no query each."""
    for number in range(6):
        rows = [f"Query {(n * n + number) % 97}" if n % 3 else f"query  {n % 97}" for n in range(400)]
        ids = [f"{number}-{n}" for n in range(401)]
        (tmp_path / "log").mkdir(exist_ok=True)
        said = pa.array([None if n % 5 else [f"turn {n % 3}", "and"] for n in range(401)], pa.list_(pa.string()))
        more = {"turns": said, "market": [("de", "is", None)[n % 7 % 3] for n in range(401)]}
        pq.write_table(
            pa.table({"query": [*rows, None], "id": ids, **more}), tmp_path / "log" / f"{number}.parquet", row_group_size=150
        )
    return str(tmp_path / "log")


@pytest.mark.usefixtures("two_nodes", "log")
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("columns", "distinct"),
    [(LogColumns("query", "id"), 97), (LogColumns("query", "id", context_column="turns", values=("market",)), None)],
    ids=["queries", "contexts and values"],
)
def test_the_tables_are_those_of_one_process(
    columns: LogColumns, distinct: int | None, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in list(Path(tmp_path, "log").iterdir()) if form == "jsonl" else ():
        rows = pq.read_table(path).to_pylist()
        path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        path.unlink()
    monkeypatch.setattr(dedup_module, "PART_ROWS", 300)
    monkeypatch.setattr(dedup_module, "RANGE_ROWS", 200)
    monkeypatch.chdir(tmp_path)
    found = []
    for local, out in ((True, tmp_path / "here"), (False, tmp_path / "there")):
        # the path is relative: workers have another current folder
        storage = open_storage(str(out))
        summary = dedup(find_log_files("log"), columns, storage, 10, local=local)
        assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == {
            file.key for files in summary.tables.values() for file in files
        }
        found.append((rows_of(summary, storage), [shard[2:] for shard in summary.shards], summary.counts))
    assert found[0] == found[1]
    assert (rejected_words(found[0][2]), found[0][2]["log_rows"]) == ("6 rejected (6 empty)", 6 * 401)
    assert distinct is None or len(found[0][0]["queries"]) == distinct
    assert len({row["query_id"] for row in found[0][0]["queries"]}) == len(found[0][0]["queries"])


@pytest.mark.usefixtures("two_nodes")
def test_a_plan_names_the_same_tables_wherever_they_were_made(log: str, tmp_path: Path, values: dict[str, Any]) -> None:
    config, columns = Config.model_validate(values | {"cluster": {"shard_size": 10}}), LogColumns("query", "id")
    found = []
    for local in (True, False):
        output = open_storage(str(tmp_path / f"local {local}"))
        prepared = Prepared(config, "", find_log_files(log), columns, {}, None, {}, None, output, "run")
        storage = prepared.storage
        draft = draft_plan(prepared, local=local)
        assert storage.stat(PLAN) is None
        assert bool(list(storage.list())) is not local
        assert (Path(draft.storage.root).parent == cache_folder() / "work") is local  # is swept after a kill
        plan = store_plan(prepared, draft)
        assert read_plan(storage) == plan
        named = {file.key: file.size for files in plan.tables.values() for file in files}
        assert {entry.key: entry.size for entry in storage.list() if entry.key != PLAN} == named
        for shard in plan.shards:
            with storage.open(shard.key) as file:
                assert pq.ParquetFile(file).metadata.row_group(shard.row_group).num_rows == shard.rows
        found.append((plan.counts, plan.inputs, [shard[2:] for shard in plan.shards]))
    assert found[0] == found[1]
    assert found[0][0] == {"log_rows": 6 * 401, "queries": 97, "rejected": 6, "rejected_empty": 6, "traffic": 6 * 400}


@pytest.mark.usefixtures("two_nodes")
def test_a_refusal_comes_as_it_is_and_nothing_is_left(log: str, tmp_path: Path) -> None:
    data = bytearray(Path(log, "3.parquet").read_bytes())
    data[4:200] = b"\xff" * 196
    Path(log, "3.parquet").write_bytes(data)
    with pytest.raises(LogError, match=r"^log file .*/3.parquet: damaged at or after row 0: ") as refused:
        dedup(find_log_files(log), LogColumns("query"), open_storage(str(tmp_path / "out")), 10, local=False)
    assert "\n" not in str(refused.value)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("two_nodes")
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    died = tmp_path / "died"

    def twice(item: int) -> tuple[int, int]:
        if item == 3 and not died.exists():
            died.touch()
            os._exit(1)
        add_traffic({"put": 1, "sent_bytes": 10})
        return 2 * item, os.getpid()

    take_traffic()
    worked: list[float] = []
    results = spread(twice, list(range(8)), local=False, worked=worked.append)
    assert died.exists()
    assert [double for double, _ in results] == [2 * item for item in range(8)]
    assert os.getpid() not in {process for _, process in results}
    assert len(worked) == 8
    assert take_traffic() == {"put": 8, "sent_bytes": 80}  # of the tasks, as if this process had sent them
