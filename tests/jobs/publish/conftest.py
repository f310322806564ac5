"""Finished nights of one config, in this process: some queries stay, some go, some come; a few are hostile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.look_up_rows import HOSTILE

Night = Callable[..., Path]


@pytest.fixture
def night(
    tmp_path: Path,
    values: dict[str, Any],
    bm25: dict[str, Any],
    config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Night:
    """Runs a night over these queries, or (query, earlier turns); returns its folder.

    `said` stands in its rewrites; `counts`: how often each was asked, the column `n` of the log.
    """
    monkeypatch.chdir(tmp_path)

    def run(label: str, asked: list[Any], said: str = "rewrite", counts: list[int] | None = None, **more: Any) -> Path:
        pairs = [(one, None) if isinstance(one, str) else one for one in asked]
        columns = {"query": [query for query, _ in pairs], "turns": pa.array([turns for _, turns in pairs], pa.string())}
        pq.write_table(pa.table(columns | ({} if counts is None else {"n": counts})), "log.parquet")
        answers = [
            {"query": one, "completions": {"dmqr": json.dumps({"general": f"{said} of {one}", "keyword": "bread, yeast"})}}
            for one in dict.fromkeys(columns["query"])
        ]
        Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in answers))
        values["rewrite"] |= {"strategies": ["keyword", {"general": {"weight": 0.5}}]}
        values["retrieve"] = {"retrievers": {"bm25": bm25}}
        values["log"] |= {"context_column": "turns", "count_column": None if counts is None else "n"}
        values.update({"rerank": {"kind": "none"}, "limits": {"error_rate": 1}})
        values["cluster"] = {"address": "none", "shard_size": 2}
        return run_in_process(prepared_job(config_file(values | more), f"label={label}"))

    return run


@pytest.fixture
def hostile_night(night: Night) -> Path:
    """A night of hostile queries, some asked more often than others, one after earlier turns."""
    return night("hostile", [*HOSTILE, *HOSTILE[:3], "yeast of bread", "yeast of bread", ("lamp", "who kept the lighthouse?")])
