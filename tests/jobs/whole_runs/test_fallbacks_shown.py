"""Where the original stands in for answers that cannot be used, an ablation's closing table counts it, as a run's does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.pages.ablation import closing_page, compared
from jobs.run.ablation import prepare_ablation
from jobs.runs.folder import open_run
from tests.support.jobs.in_process_runs import QUERIES, UNANSWERED, job_in_process, run_in_process
from tests.support.jobs.terminals import printed

VIEWS = Path(__file__).parents[3] / "configs" / "strategies" / "book_views.yaml"


def test_fallbacks_stand_in_the_closing_table_of_an_ablation(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values, bm25, config_file)
    answers = [{"query": one, "completions": {"book_views": "[]"}} for one in QUERIES if one != UNANSWERED]
    Path("recorded.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    settings = [f"rewrite.strategies=[{VIEWS}]", "ablate={arms: {shallow: {retrieve.depth: 3}}}"]
    ablation = prepare_ablation(load_config(path, settings), path)
    run_in_process(ablation)
    found = compared(open_run(ablation.prepared.storage.root), None, ablation.prepared.config.evaluate, None)
    text = " ".join(printed(closing_page(found), 120).split())
    assert f"fallbacks the original in place of book_views {len(QUERIES) - 1} queries" in text
    assert f"requests {len(QUERIES)} with retries in place of {3 * len(QUERIES)} without (3.0 times less)" in text
    assert main(["ablate", path, *(word for setting in settings for word in ("--set", setting))]) == 0
    assert "finished before: nothing was done again" in capfd.readouterr().err
