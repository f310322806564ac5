"""The log of a whole run: ids of the run, its shards and the queries that failed, and no text of a query."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.__main__ import main
from jobs.chain import counts
from jobs.chain.counts import BlockErrors
from jobs.tables import ERROR
from tests.support.jobs.in_process_runs import QUERIES, UNANSWERED, WITHOUT_HITS, job_in_process
from tests.support.jobs.whole_runs import rows

Line = dict[str, Any]


def test_every_line_has_the_run_and_failures_have_their_queries(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values, bm25, config_file)
    assert main(["run", path]) == 0
    folder = Path(capfd.readouterr().out.splitlines()[-1])
    (log,) = (folder / "logs").glob("*.jsonl")
    lines: list[Line] = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line.get("run") for line in lines} == {folder.name}
    commits = [line for line in lines if line["event"] == "commit"]
    assert [(line["shard"], line["start"], line["queries"]) for line in commits] == [(0, 1, 3), (1, 1, 3)]
    (failures,) = [line for line in lines if line["event"] == "failures"]  # without hits is a note
    ids = {row["query"]: row["query_id"] for row in rows(folder, "queries")}
    said = {"stage": "rewrite", "reason": "not_recorded", "queries": 1, "query_ids": [ids[UNANSWERED]], "start": 1}
    assert failures.items() >= said.items()
    assert failures["message"] == f"shard {failures['shard']}: 1 query failed in rewrite: not_recorded"
    assert {row["query_id"] for row in rows(folder, "errors")} == {ids[UNANSWERED], ids[WITHOUT_HITS]}
    assert not [query for query in QUERIES if query in log.read_text()]
    assert main(["run", path]) == 0
    assert "finished before: nothing was done again" in capfd.readouterr().err


def test_the_first_queries_of_a_block_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_FIRST", 2)
    said = [("a", "rewrite", "truncated"), ("a", "rewrite", "truncated"), ("b", "retrieve", "no_hits")]
    said += [(query, "rewrite", "truncated") for query in "bcd"] + [("d", "rerank", "failed")]
    errors = [
        [{"stage": stage, "reason": reason} for query, stage, reason in said if query == row]
        for row in ("a", "b", "c", "d", "e")
    ]
    table = pa.table({"query_id": list("abcde"), "errors": pa.array(errors, pa.list_(ERROR))})
    assert BlockErrors(table).first_failed() == {"rerank/failed": ["d"], "rewrite/truncated": ["a", "b"]}
    assert BlockErrors(table.slice(4)).first_failed() == {}
    assert BlockErrors(table.slice(2, 2)).first_failed() == {"rerank/failed": ["d"], "rewrite/truncated": ["c", "d"]}
