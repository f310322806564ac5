"""An ablation over sets that is submitted to three raylets: the table is that of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.drawn_sets import write_paper
from tests.support.jobs.simulated import Simulated
from tests.support.jobs.whole_runs import ROOT, Done, finish, start

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    pytest.importorskip("ray.dashboard.optional_deps", reason="ray[default], with its job server, is not installed")
    cluster = Simulated(tmp_path_factory.mktemp("nodes"), {}, 2)
    try:
        yield cluster
    finally:
        cluster.close()
        cluster.remove()


def dmqr(place: Path, *words: object) -> Done:
    done = finish(start(["env", "-C", str(place), f"PYTHONPATH={ROOT}", sys.executable, "-m", "jobs", *map(str, words)]))
    assert done.code == 0, done.err[-3000:]
    return done


def table(place: Path, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dmqr(place, "evaluate", folder, f"{place}/data/{{set}}/qrels.tsv", "--json").out)[
        "comparisons"
    ]
    return found


def test_sets_run_there_and_have_the_same_table(nodes: Simulated, tmp_path: Path) -> None:
    path = write_paper(tmp_path)
    text = path.read_text().replace('"data/', f'"{tmp_path}/data/').replace('"index/', f'"{tmp_path}/index/')
    path.write_text(text.replace("cluster: {address: none}\n", ""))
    here = dmqr(tmp_path, "ablate", path, "--set", "cluster.address=none", "--set", f"output={tmp_path}/here").folder
    there = dmqr(tmp_path, "submit", path, "--ablate", "--address", nodes.address, "--set", f"output={tmp_path}/there").folder
    assert there.parent == tmp_path / "there"
    assert there.name == here.name
    assert table(tmp_path, there) == table(tmp_path, here)
    assert sorted(one.name for one in there.glob("*-*/")) == sorted(one.name for one in here.glob("*-*/"))
