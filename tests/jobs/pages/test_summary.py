"""The closing table, as a person reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.prices import Prices
from jobs.measure.evaluate import Evaluation
from jobs.pages.comparison import UNMEASURED, MeasuredRun
from jobs.pages.summary import _shown, closing_table
from jobs.runs.folder import RunFolder
from jobs.terminal.tables import page_text
from tests.support.jobs.run_folders import Make, Query, RunMaker, frame_of
from tests.support.jobs.terminals import printed

CORES = [Query("one", {"keyword": "a, b", "core_content": "a b c"}), Query("two", {"keyword": "a", "core_content": "a"})]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


def lines(run: RunFolder, measured: MeasuredRun = UNMEASURED) -> list[str]:
    return [" ".join(line.split()) for line in printed(closing_table(run, None, measured), 120).splitlines()]


def test_cores_longer_than_the_keywords_are_counted_where_both_were_asked_for(make: Make, tmp_path: Path) -> None:
    shown = lines(make(CORES, ("keyword", "core_content")))
    assert "core_content json 2; longer than keyword for 1 query" in shown
    assert "keyword json 2" in shown
    assert any(line.startswith("cost: not in money: there is no prices.yaml beside ") for line in shown)
    alone = [Query("one", {"core_content": "a b c"})]
    assert "core_content json 1" in lines(RunMaker(tmp_path / "alone")(alone, ("core_content",)))


@pytest.mark.parametrize(("reranked", "alone"), [(True, "original alone, fused, not reranked"), (False, "original alone")])
def test_what_the_results_are_compared_with(make: Make, reranked: bool, alone: str) -> None:
    run = make()
    rerank = run.config.rerank.model_copy(update={"kind": "bi_encoder" if reranked else "none"})
    evaluation = Evaluation(frame_of([[0.5] * 5, [0.4] * 5]), run.config.model_copy(update={"rerank": rerank}))
    shown = lines(run, MeasuredRun(evaluation))
    assert f"nDCG@10 0.5000 ({alone} 0.4000)" in shown
    assert f"Success@5 (H@5) 0.5000 ({alone} 0.4000)" in shown


def test_where_nothing_is_judged_a_warning_stands_and_no_row_of_dashes(make: Make) -> None:
    run, nothing = make(), frame_of([[], []], judged=7, missing=7, unmatched=("q1", "log.parquet#0"))
    shown = lines(run, MeasuredRun(Evaluation(nothing, run.config)))
    assert not [line for line in shown if line.startswith(("nDCG", "R@"))]
    assert "warning: nothing is measured: none of 7 judged log rows is in the log" in " ".join(shown)


def test_the_cost_is_the_bill_by_stage_driver_and_idle_nodes(make: Make) -> None:
    run = make()
    start = run.record["starts"][0]
    start |= {
        "node_seconds": {"cpu": 3600.0},
        "spent": {"driver": {"work@": {"driver_seconds": 90.0}, "storage@": {"put": 1, "get": 1}}},
    }
    shown = filter(None, printed(closing_table(run, Prices(node_hour=2.0))).splitlines())
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in shown}
    assert said["cost"].startswith("$2.00, ")
    assert said["driver"].endswith("1 min 30 s of the driver, 2 requests to S3")
    shown = [
        float(said[name].split(",")[0].removeprefix("$"))
        for name in ("rewrite", "retrieve", "fuse", "write", "driver", "idle")
        if name in said
    ]
    assert sum(shown) == pytest.approx(2.0, abs=0.03)  # of cents, six of them


def test_a_stage_of_which_only_zeros_would_be_said_has_no_row() -> None:
    assert not _shown({"seconds": 0.2}, 0.00004)
    assert _shown({"seconds": 0.2}, 0.0001)
    assert _shown({"seconds": 0.6}, None)
    assert _shown({"put": 1}, None)


def test_a_terminal_warns_where_no_answer_is_measured() -> None:
    answers = SimpleNamespace(kind="answers", warning="none is in the log")
    shown = page_text(MeasuredRun(None, [answers]).page(), 80)  # type: ignore[list-item]
    assert shown.strip() == "warning: answers, against gold answers: none is in the log"
