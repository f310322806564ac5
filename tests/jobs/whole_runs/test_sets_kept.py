"""Ablations over sets beside other jobs: one driver at a time, a query that is forgotten, and the removal of old ones."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cluster.run.lease import Lease
from cluster.run.shards import SUCCESS
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.runs.old import prune as pruning
from jobs.runs.old.answers import Unsaved
from jobs.runs.old.prune import prune
from tests.support.jobs.drawn_sets import write_paper

AGE = 10_000.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_paper(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["ablate", "paper.yaml", "--set", "retrieve.store=true"]) == 0
    return tmp_path


def wholes() -> list[Path]:
    return sorted(Path("runs").glob("paper-*"), key=lambda path: (path / SUCCESS).stat().st_mtime)


def test_a_second_driver_is_refused_and_a_forgotten_query_names_the_ablation_that_holds_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (whole,) = wholes()
    lease = Lease.acquire(open_storage(str(whole)))
    try:
        assert main(["ablate", "paper.yaml"]) == 2
        assert "another driver works on this run" in capsys.readouterr().err
    finally:
        lease.release()
    asked = json.loads((place / "data/tools/queries.jsonl").read_text().splitlines()[0])["text"]
    capsys.readouterr()
    assert main(["store", "forget", "paper.yaml", asked, "--dry-run", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert Path(run).parent == whole.resolve()
    assert Path(run).name.startswith("tools-")


@pytest.mark.slow
def test_an_old_one_goes_with_its_sets_the_newest_stays_and_so_does_one_with_answers_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ablate", "paper.yaml", "--set", "retrieve.depth=20"]) == 0
    old, new = wholes()
    output, later = open_storage("runs"), time.time() + AGE
    found = prune(output, None, 60, later, dry_run=False)
    assert [one.run_id for one in found.going] == [old.name]
    assert not old.exists()
    assert found.kept == {new.name: "the newest finished ablation of paper"}
    assert len(list(new.glob("*/report.html"))) == 2
    (new / SUCCESS).unlink()
    (tools,) = new.glob("tools-*")
    (tools / SUCCESS).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(pruning, "unsaved_answers", lambda *_: Unsaved([{"text": "paid for"}], None))
        found = prune(output, None, 60, later, dry_run=False)
    assert found.kept == {new.name: "its set tools has answers that no store has; go on with it, or remove its folder"}
    assert [one.run_id for one in prune(output, None, 60, later, dry_run=True).going] == [new.name]
