"""Submitting to three raylets with a real job server, on whose nodes the project is not installed.

The run that nothing disturbs, and the cluster, are made once for all.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.run.job_server import JobServer
from cluster.storage import open_storage
from jobs.runs.status import read_status
from jobs.submit.follow import follow
from tests.support.jobs.simulated import Simulated, fetched_text
from tests.support.jobs.whole_runs import (
    ROOT,
    SAMPLE,
    Done,
    check_files,
    check_same_rows,
    committed,
    finish,
    sample_shards,
    start,
    wait_until,
)
from tests.support.plugins import installed, page_file
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow

SECRET = "a-key-that-nodes-hold"
SHARD_SIZE = 4
SHARDS = sample_shards(SHARD_SIZE)
IN_FLIGHT = 4  # requests of a rewriting worker
QUERIES = [f"{a} {b}" for a in ("light", "lamp", "moon", "yeast") for b in ("sea", "bread", "tide", "keeper")]
PROBE = """
import importlib.util, json, sys, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init()
probe = ray.remote(num_cpus=0)(lambda: (sys.executable, importlib.util.find_spec("jobs") is None))
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
print("found", json.dumps(ray.get([probe.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes])))
"""


class Calm(NamedTuple):
    """A run that nothing disturbed, and the index that is searched."""

    folder: Path
    built: Path
    asked: int


Verb = Callable[..., "Popen[str]"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    """Three raylets."""
    pytest.importorskip("ray.dashboard.optional_deps", reason="ray[default], with its job server, is not installed")
    cluster = Simulated(tmp_path_factory.mktemp("nodes"), {"ENGINE_KEY": SECRET}, 2)
    try:
        yield cluster
    finally:
        cluster.close()
        cluster.remove()


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(key=SECRET, text=lambda body: "A keeper of lighthouses answers.") as one:
        yield one


@pytest.fixture
def engine(server: FakeServer, calm: Calm) -> FakeServer:
    """The engine of all runs, which takes its time with this one."""
    server.sends.clear()
    server.seconds = 1
    return server


@pytest.fixture(scope="module")
def calm(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    place = tmp_path_factory.mktemp("calm")
    config = written(place, server, place / "index")
    with pytest.MonkeyPatch.context() as patch:
        dmqr = verbs(place, patch)
        ended(dmqr("index", config, "--corpus", str(SAMPLE / "corpus.parquet")))
        folder = ended(dmqr("run", config)).folder
    return Calm(folder, place / "index", sum(server.sends.values()))


@pytest.fixture
def dmqr(tmp_path: Path, engine: FakeServer, calm: Calm, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Starts a verb in the folder of the config."""
    written(tmp_path, engine, calm.built)
    return verbs(tmp_path, monkeypatch)


def verbs(folder: Path, patch: pytest.MonkeyPatch, modules: Path = ROOT) -> Verb:
    patch.setenv("ENGINE_KEY", SECRET)
    patch.setenv("PYTHONPATH", f"{ROOT}:{modules}")
    return lambda *words: start(["env", "-C", str(folder), sys.executable, "-m", "jobs", *words])


def written(folder: Path, engine: FakeServer, index: Path) -> str:
    """The config of the sample's log with a strategy of its own file, asked of an engine, searched by BM25."""
    (folder / "strategies").mkdir()
    (folder / "strategies" / "plain.yaml").write_text("label: Plain Words\nprompt: |-\n  Say it plainly.\n\n  Query: {query}\n")
    values: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    values |= {
        "name": "night",
        "log": values["log"] | {"path": str(SAMPLE / "log.parquet")},
        "corpus": {"path": str(SAMPLE / "corpus.parquet")},
        "rewrite": {
            "engine": {"kind": "openai", "base_url": engine.address, "model": "tiny", "api_key_env": "ENGINE_KEY",
                       "max_in_flight": IN_FLIGHT},
            "strategies": ["./strategies/plain.yaml"],
        },
        "retrieve": {"depth": 10, "retrievers": {"bm25": {"kind": "local", "index": str(index)}}},
        "rerank": {"kind": "none"},
        "output": "runs",
        "limits": {"error_rate": 1},
        "cluster": {"address": "none", "shard_size": SHARD_SIZE},
    }  # fmt: skip
    values.pop("evaluate", None)
    (folder / "night.yaml").write_text(yaml.safe_dump(values))
    return "night.yaml"


def ended(process: Popen[str], code: int = 0) -> Done:
    done = finish(process)
    assert done.code == code, done.err[-3000:]
    return done


def check_whole(folder: Path, calm: Calm) -> None:
    """The run has the rows of the calm one, and each shard once."""
    check_same_rows(folder, calm.folder)
    check_files(folder, SHARDS)


def manifests(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("*/commits/0*.json")}


def test_the_nodes_do_not_have_the_project(nodes: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    server, shown = JobServer(nodes.address), list[str]()
    server.submit("probe", f"python -c '{PROBE}'", {}, {})
    assert follow(server, "probe", shown.append).code == 0, "".join(shown)
    (line,) = (line for line in "".join(shown).splitlines() if line.startswith("found "))
    assert json.loads(line.removeprefix("found ")) == [[str(nodes.python), True]] * 3


def test_code_of_the_current_folder_runs_there_and_changed_it_is_another_run(
    nodes: Simulated, dmqr: Verb, tmp_path: Path, corpus: Path
) -> None:
    text = page_file("overlap.py").replace("float(len(asked & held))", "1.0 * len(asked & held)")
    (tmp_path / "overlap.py").write_text(text)
    (tmp_path / "own.yaml").write_text(page_file("own.yaml"))
    pq.write_table(pa.table({"query": QUERIES}), tmp_path / "log.parquet")
    ended(dmqr("index", "own.yaml", "--corpus", str(corpus)))
    small = ("--set", "cluster.shard_size=4", "--set", "retrieve.retrievers.overlap.least=1")
    small = (*small, "--set", f"log.path={tmp_path}/log.parquet")  # the path by which a submitted job knows the log
    here = ended(dmqr("run", "own.yaml", *small, "--set", f"output={tmp_path}/here")).folder
    wide = ("submit", "own.yaml", *small, "--set", "cluster.retrieve.workers=3", "--address", nodes.address)
    there = ended(dmqr(*wide)).folder
    assert there.name == here.name
    check_same_rows(there, here)
    (tmp_path / "overlap.py").write_text(text.replace("1.0 *", "2.0 *"))
    changed = ended(dmqr(*wide)).folder
    assert changed.name != there.name
    scores = {
        folder: max(pq.read_table(folder / "runs", filters=[("retriever", "=", "overlap")])["score"].to_pylist())
        for folder in (there, changed)
    }
    assert scores[changed] == 2 * scores[there]
    (tmp_path / "overlap.py").write_text(text)
    assert ended(dmqr(*wide)).folder == there


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


def test_a_retriever_an_engine_and_a_strategy_of_a_package_work_on_ray(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        dmqr = verbs(tmp_path, monkeypatch, site)
        ended(dmqr("index", "config.yaml", "--corpus", str(corpus)))
        run = ended(dmqr("run", "config.yaml")).folder
    rewrites, lists = (pq.read_table(run / table).to_pylist() for table in ("rewrites", "runs"))
    assert {(row["strategy"], row["model"], row["text"]) for row in rewrites} == {
        ("again", "echo-2", f"{query} again") for query in QUERIES
    }
    assert {(row["strategy"], row["retriever"]) for row in lists} == {("original", "overlap"), ("again", "overlap")}


def test_a_night_is_submitted_twice_stopped_in_order_and_submitted_again(
    nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path
) -> None:
    to, output = ("--address", nodes.address), tmp_path / "runs"
    job_id = ended(dmqr("submit", "night.yaml", *to, "--detach")).out.strip()
    second = dmqr("submit", "night.yaml", *to)
    wait_until(second, lambda: committed(output) >= 3)

    stopped = ended(dmqr("stop", "night.yaml", *to))
    assert stopped.out == f"{job_id}: stopped\n"
    followed = ended(second, 143)
    assert f"job {job_id} is working already" in followed.err
    (folder,) = output.glob("night-*/commits")
    found = read_status(str(folder.parent))
    assert (found.state, found.holder.released) == ("interrupted", True)
    assert 3 <= found.committed < SHARDS
    assert f" submit night.yaml --address {nodes.address}" in (found.reason or "")

    again = ended(dmqr("submit", "night.yaml", *to))
    assert f"job {job_id}-2 submitted" in again.err
    assert again.folder == folder.parent
    assert set(engine.sends.values()) == {1}  # nothing was asked twice: what was under way at the stop was committed
    assert sum(engine.sends.values()) == calm.asked

    shown = ended(dmqr("submit", "night.yaml", *to, "--json"))
    assert json.loads(shown.out) == {
        "job": f"{job_id}-3", "address": nodes.address, "status": "SUCCEEDED", "code": 0, "folder": str(folder.parent)
    }  # fmt: skip
    assert sum(engine.sends.values()) == calm.asked
    listed = fetched_text(f"{nodes.address}/api/jobs/")
    assert len(set(re.findall(rf"{job_id}(?:-\d)?", listed))) == 3
    told = ended(dmqr("logs", str(folder.parent), *to, "--no-follow")).out
    assert SECRET not in listed + told + again.err + followed.err
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in folder.parent.rglob("*") if path.is_file())
    assert open_storage(str(output)).folders() == ["night", folder.parent.name, "store"]
    check_whole(again.folder, calm)


def test_a_node_is_killed_in_the_middle(nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path) -> None:
    output, address = tmp_path / "runs", nodes.address
    lost = nodes.add(6)  # the only one with room for the rewriting worker
    job = dmqr("submit", "night.yaml", "--address", address, "--set", "cluster.rewrite={workers: 1, cpus: 6}")
    wait_until(job, lambda: committed(output) >= 3)
    assert nodes.workers()["Rewrite", lost] == 1
    before = manifests(output)
    nodes.kill(lost)
    spare = nodes.add(6)
    wait_until(job, lambda: nodes.workers()["Rewrite", spare] == 1)
    folder = ended(job).folder
    again = sum(times - 1 for times in engine.sends.values())
    check_whole(folder, calm)
    assert before.items() <= manifests(output).items()
    assert again <= IN_FLIGHT
    nodes.kill(spare)


def test_the_head_is_killed_and_the_job_submitted_anew(
    nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path
) -> None:
    output, old = tmp_path / "runs", nodes.address
    followed = dmqr("submit", "night.yaml", "--address", old)
    wait_until(followed, lambda: committed(output) >= 5)
    nodes.kill_head()
    before = manifests(output)
    assert 5 <= len(before) < SHARDS
    new = nodes.address
    assert new != old
    again = ended(dmqr("submit", "night.yaml", "--address", new))
    assert " submitted at " in again.err
    twice = sum(times - 1 for times in engine.sends.values())
    check_whole(again.folder, calm)
    assert before.items() <= manifests(output).items()
    assert twice <= IN_FLIGHT
    assert "may work on" in ended(followed, 1).err
