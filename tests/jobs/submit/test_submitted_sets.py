"""An ablation over sets that is sent is the one of this machine, set by set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import submission
from tests.support.jobs.drawn_sets import write_paper

FOLDER = "/etc/dmqr"


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_paper(tmp_path)
    monkeypatch.chdir(tmp_path)
    return path


def table(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ablate", *words, "--json", "--set", "cluster.address=none"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_what_is_sent_is_the_same_ablation(
    paper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = table(capsys, str(paper))
    folder = tmp_path / "sent"
    folder.mkdir()
    place = write_package(folder, sent_config(load_config(str(paper))), paper.name, paper.with_name("prices.yaml"))
    monkeypatch.chdir(folder)  # as the working directory of the job
    there = table(capsys, place)
    assert there["comparisons"] == here["comparisons"]
    assert [one["measured"] for one in there["sets"].values()] == [["lists"], ["lists"]]


def test_judgements_of_every_set_are_checked_before_anything_is_sent(paper: Path) -> None:
    Path("data/tools/qrels.tsv").write_text("not judged\n")
    with pytest.raises(Exception, match=r"set tools: evaluate\.qrels: .*: line 1 is neither"):
        submission(load_config(str(paper)), str(paper), "ablate", "dmqr submit", {})
