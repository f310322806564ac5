"""Code of users on Ray: of the current folder, on three raylets that have neither it nor the project, and of a package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.simulated import Simulated
from tests.support.jobs.whole_runs import ROOT, Done, check_same_rows, finish, start
from tests.support.plugins import installed, page_file

pytestmark = pytest.mark.slow

QUERIES = [f"{a} {b}" for a in ("light", "lamp", "moon", "yeast") for b in ("sea", "bread", "tide", "keeper")]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    """Three raylets."""
    pytest.importorskip("ray.dashboard.optional_deps", reason="ray[default], with its job server, is not installed")
    cluster = Simulated(tmp_path_factory.mktemp("nodes"), {}, 2)
    yield cluster
    cluster.close()
    cluster.remove()


def dmqr(place: Path, *words: object, path: Path = ROOT) -> Done:
    done = finish(start(["env", "-C", str(place), f"PYTHONPATH={ROOT}:{path}", sys.executable, "-m", "jobs", *map(str, words)]))
    assert done.code == 0, done.err[-3000:]
    return done


def log(place: Path) -> tuple[str, str]:
    """The log by its whole path, under which a submitted job knows it."""
    return "--set", f"log.path={place}/log.parquet"


def test_it_runs_there_and_its_changed_code_is_another_run(nodes: Simulated, tmp_path: Path, corpus: Path) -> None:
    text = page_file("overlap.py").replace("float(len(asked & held))", "1.0 * len(asked & held)")
    (tmp_path / "overlap.py").write_text(text)
    (tmp_path / "own.yaml").write_text(page_file("own.yaml"))
    pq.write_table(pa.table({"query": QUERIES}), tmp_path / "log.parquet")
    dmqr(tmp_path, "index", "own.yaml", "--corpus", corpus)
    small = ("--set", "cluster.shard_size=4", "--set", "retrieve.retrievers.overlap.least=1", *log(tmp_path))
    here = dmqr(tmp_path, "run", "own.yaml", *small, "--set", f"output={tmp_path}/here").folder
    wide = (*small, "--set", "cluster.retrieve.workers=3")
    to = ("--address", nodes.address)
    there = dmqr(tmp_path, "submit", "own.yaml", *wide, *to).folder
    assert there.name == here.name
    check_same_rows(there, here)
    (tmp_path / "overlap.py").write_text(text.replace("1.0 *", "2.0 *"))
    changed = dmqr(tmp_path, "submit", "own.yaml", *wide, *to).folder
    assert changed.name != there.name
    scores = {
        folder: max(pq.read_table(folder / "runs", filters=[("retriever", "=", "overlap")])["score"].to_pylist())
        for folder in (there, changed)
    }
    assert scores[changed] == 2 * scores[there]
    (tmp_path / "overlap.py").write_text(text)
    assert dmqr(tmp_path, "submit", "own.yaml", *wide, *to).folder == there


STRATEGY = """
label: AGAIN
joint: false
definition: the query once more
prompt: |
  Say this again: {query}
"""
POINTS = """[dmqr.retrievers]
overlap = own_package.overlap:OverlapSettings
[dmqr.engines]
echo = own_package.echo:Echo
[dmqr.strategies]
again = own_package
"""
CONFIG = """
name: packaged
log: {path: log.parquet, query_column: query}
rewrite: {engine: {kind: echo, model: echo-2}, strategies: [again]}
retrieve: {retrievers: {overlap: {kind: overlap, index: overlap.json}}}
rerank: {kind: none}
output: runs
cluster: {address: local, shard_size: 8}
"""


def test_a_retriever_an_engine_and_a_strategy_of_a_package_work_on_ray(tmp_path: Path, corpus: Path) -> None:
    """Each is found by an entry point of a distribution outside this repository."""
    files = {
        "own_package/__init__.py": "",
        "own_package/overlap.py": page_file("overlap.py"),
        "own_package/echo.py": page_file("echo.py"),
        "own_package/again.yaml": STRATEGY,
    }
    (tmp_path / "config.yaml").write_text(CONFIG)
    pq.write_table(pa.table({"query": QUERIES}), tmp_path / "log.parquet")
    with installed(tmp_path / "site", "own-package", files, POINTS) as site:
        dmqr(tmp_path, "index", "config.yaml", "--corpus", corpus, path=site)
        run = dmqr(tmp_path, "run", "config.yaml", path=site).folder
    rewrites, lists = (pq.read_table(run / table).to_pylist() for table in ("rewrites", "runs"))
    assert {(row["strategy"], row["model"], row["text"]) for row in rewrites} == {
        ("again", "echo-2", f"{query} again") for query in QUERIES
    }
    assert {(row["strategy"], row["retriever"]) for row in lists} == {("original", "overlap"), ("again", "overlap")}
