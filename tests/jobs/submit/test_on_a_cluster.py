"""Submitting to three raylets with a real job server, on whose nodes the project is not installed.

Each test prints its times; the run that nothing disturbs, and the cluster, are made once for all.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

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
    rows,
    sample_shards,
    start,
    wait_until,
)
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow

SECRET = "a-key-that-nodes-hold"
SHARD_SIZE = 4
SHARDS = sample_shards(SHARD_SIZE)
IN_FLIGHT = 4  # requests of a rewriting worker
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


class Timed:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def took(self, what: str) -> None:
        now = time.monotonic()
        self.seconds[what], self._began = round(now - self._began, 1), now


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


def verbs(folder: Path, patch: pytest.MonkeyPatch) -> Verb:
    patch.setenv("ENGINE_KEY", SECRET)
    patch.setenv("PYTHONPATH", f"{ROOT}:{folder}")
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


def check_whole(folder: Path, calm: Calm, timed: Timed, **more: object) -> None:
    """The run has the rows of the calm one, and each shard once."""
    check_same_rows(folder, calm.folder)
    check_files(folder, SHARDS)
    print(json.dumps(timed.seconds | more | {"rows": len(rows(folder, "results"))}))


def manifests(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("*/commits/0*.json")}


def test_the_nodes_do_not_have_the_project(nodes: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "")
    server, shown = JobServer(nodes.address), list[str]()
    server.submit("probe", f"python -c '{PROBE}'", {}, {})
    assert follow(server, "probe", shown.append).code == 0, "".join(shown)
    (line,) = (line for line in "".join(shown).splitlines() if line.startswith("found "))
    assert json.loads(line.removeprefix("found ")) == [[str(nodes.python), True]] * 3


def test_a_night_is_submitted_twice_stopped_in_order_and_submitted_again(
    nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path
) -> None:
    to, output = ("--address", nodes.address), tmp_path / "runs"
    timed = Timed()
    job_id = ended(dmqr("submit", "night.yaml", *to, "--detach")).out.strip()
    second = dmqr("submit", "night.yaml", *to)
    wait_until(second, lambda: committed(output) >= 3)
    timed.took("first commits")

    stopped = ended(dmqr("stop", "night.yaml", *to))
    timed.took("stop")
    assert stopped.out == f"{job_id}: stopped\n"
    followed = ended(second, 143)
    assert f"job {job_id} is working already" in followed.err
    (folder,) = output.glob("night-*/commits")
    found = read_status(str(folder.parent))
    assert (found.state, found.holder.released) == ("interrupted", True)
    assert 3 <= found.committed < SHARDS
    assert f" submit night.yaml --address {nodes.address}" in (found.reason or "")

    again = ended(dmqr("submit", "night.yaml", *to))
    timed.took("the rest")
    assert f"job {job_id}-2 submitted" in again.err
    assert again.folder == folder.parent
    assert set(engine.sends.values()) == {1}  # nothing was asked twice: what was under way at the stop was committed
    assert sum(engine.sends.values()) == calm.asked

    shown = ended(dmqr("submit", "night.yaml", *to, "--json"))
    timed.took("finished")
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
    check_whole(again.folder, calm, timed, committed_at_the_stop=found.committed)


def test_what_the_job_refuses_ends_with_2(nodes: Simulated, dmqr: Verb) -> None:
    done = ended(dmqr("submit", "night.yaml", "--address", nodes.address, "--set", "log.query_column=nope"), 2)
    assert "dmqr run: " in done.err
    assert "nope" in done.err


def test_a_node_is_killed_in_the_middle(nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path) -> None:
    output, address = tmp_path / "runs", nodes.address
    lost = nodes.add(6)  # the only one with room for the rewriting worker
    timed = Timed()
    job = dmqr("submit", "night.yaml", "--address", address, "--set", "cluster.rewrite={workers: 1, cpus: 6}")
    wait_until(job, lambda: committed(output) >= 3)
    timed.took("first commits")
    assert nodes.workers()["Rewrite", lost] == 1
    before = manifests(output)
    nodes.kill(lost)
    spare = nodes.add(6)
    wait_until(job, lambda: nodes.workers()["Rewrite", spare] == 1)
    timed.took("worker elsewhere")
    folder = ended(job).folder
    timed.took("the rest")
    again = sum(times - 1 for times in engine.sends.values())
    check_whole(folder, calm, timed, committed_at_the_kill=len(before), asked_again=again)
    assert before.items() <= manifests(output).items()
    assert again <= IN_FLIGHT
    nodes.kill(spare)


def test_the_head_is_killed_and_the_job_submitted_anew(
    nodes: Simulated, engine: FakeServer, calm: Calm, dmqr: Verb, tmp_path: Path
) -> None:
    output, old = tmp_path / "runs", nodes.address
    timed = Timed()
    followed = dmqr("submit", "night.yaml", "--address", old)
    wait_until(followed, lambda: committed(output) >= 5)
    timed.took("first commits")
    nodes.kill_head()
    before = manifests(output)
    assert 5 <= len(before) < SHARDS
    new = nodes.address
    assert new != old
    timed.took("another cluster")
    again = ended(dmqr("submit", "night.yaml", "--address", new))
    timed.took("the rest")
    assert " submitted at " in again.err
    twice = sum(times - 1 for times in engine.sends.values())
    check_whole(again.folder, calm, timed, committed_at_the_kill=len(before), asked_again=twice)
    assert before.items() <= manifests(output).items()
    assert twice <= IN_FLIGHT
    assert "may work on" in ended(followed, 1).err
