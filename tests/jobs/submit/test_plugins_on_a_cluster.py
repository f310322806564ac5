"""Code of users on Ray: of the current folder, on three raylets that have neither it nor the project, and of a package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.simulated import Simulated
from tests.support.jobs.whole_runs import ROOT, Done, check_same_rows, finish, start
from tests.support.plugins import page_file

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
