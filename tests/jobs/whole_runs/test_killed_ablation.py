"""An ablation on Ray whose process is killed in the middle, and gone on with."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.jobs.whole_runs import check_files, finish, flags, rows, sample_shards, start, wait_until

ARMS = "{subsets: all, grid: {fuse.method: [rrf, minmax]}}"

pytestmark = pytest.mark.slow


def test_a_killed_ablation_goes_on_and_its_arms_are_those_of_an_undisturbed_one(sample_place: Path, tmp_path: Path) -> None:
    def ablate(output: Path) -> list[str]:
        given = flags(sample_place, output=output, ablate=ARMS, **{"cluster.shard_size": 20})
        return [sys.executable, "-m", "jobs", "ablate", "configs/ablate.yaml", *given]

    killed = start(ablate(tmp_path / "killed"))
    wait_until(killed, lambda: len(list((tmp_path / "killed").glob("*/commits/*.json"))) >= 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    gone_on, calm = finish(start(ablate(tmp_path / "killed"))), finish(start(ablate(tmp_path / "calm")))
    found, wanted = (
        sorted((row["arm"], row["query_id"], row["rank"], row["doc_id"]) for row in rows(one.folder, "results"))
        for one in (gone_on, calm)
    )
    assert found == wanted
    assert len({arm for arm, *_ in found}) == 32  # 31 subsets and rrf; the default, minmax, is one of them
    check_files(gone_on.folder, sample_shards(20))
    asked = [row for row in rows(gone_on.folder, "costs") if row["stage"] == "rewrite" and row["query_id"]]
    assert sum(row["requests"] + row["reused"] for row in asked) == 176
