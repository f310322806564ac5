"""Whole runs in this process with several texts of a strategy and a selection: what is planned balances."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.runs.tally import tally_of
from tests.support.jobs.in_process_runs import run_in_process
from tests.support.jobs.whole_runs import rows

QUERIES = ["why does bread rise", "moon and tides", "spring tide", "rye or wheat bread", "faint galaxies"]
VARIANTS = "1. bread and yeast\n2. tides of the sea\n3. light of galaxies"
ADAPTIVE = {
    QUERIES[0]: "Query Variants: yeast in bread\nQuery Variants: sourdough\nreason: several sides",
    QUERIES[1]: "Keyword Rewriting: moon, tides\nreason: terms",
    QUERIES[2]: "reason: clear as it is",
    QUERIES[3]: "no idea",
}
RUNS: dict[str, tuple[Any, dict[str, int]]] = {
    # selection -> counts of pairs (query, strategy) of 5 queries and 3 strategies
    "all": ("all", {"not_selected": 0, "rewrite_errors": 1, "further_texts": 8, "rewrites": 22}),
    "adaptive": ("adaptive", {"not_selected": 7, "rewrite_errors": 6, "further_texts": 1, "rewrites": 3}),
    "by chance": ({"kind": "random_k", "k": 2}, {"not_selected": 5}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_planned_are_those_with_texts_that_failed_and_that_were_not_selected(
    kind: str, tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    answers = {
        query: {
            "dmqr": json.dumps({"general": f"about {query}", "keyword": ", ".join(query.split()[:3])}),
            "rag_fusion": VARIANTS if query != QUERIES[4] else "",
        }
        | ({"dmqr_adaptive": ADAPTIVE[query]} if query in ADAPTIVE else {})
        for query in QUERIES
    }
    lines = [json.dumps({"query": query, "completions": completions}) for query, completions in answers.items()]
    (tmp_path / "recorded.jsonl").write_text("\n".join(lines))
    select, expected = RUNS[kind]
    values["rewrite"] |= {"strategies": ["general", "keyword", {"rag_fusion": {"n": 3}}], "select": select}
    values["retrieve"] |= {"retrievers": {"bm25": bm25}}
    values |= {"rerank": {"kind": "none"}, "limits": {"error_rate": 1}, "cluster": {"address": "none", "shard_size": 2}}
    path = config_file(values)
    prepared = prepare(load_config(path), path)
    folder = run_in_process(prepared)  # refuses to close a run that does not balance
    found = tally_of(prepared.storage).counts
    counts = {name: found.get(name, 0) for name in ("rewrites", "further_texts", "rewrite_errors", "not_selected")}
    assert counts["rewrites"] - counts["further_texts"] + counts["rewrite_errors"] + counts["not_selected"] == 15
    assert counts.items() >= expected.items()
    success = json.loads((folder / "_SUCCESS.json").read_text())
    assert ("selections" in success["tables"]) == (kind != "all")
    chosen = rows(folder, "selections") if kind != "all" else []
    assert sum(3 - len(row["strategies"]) for row in chosen) == counts["not_selected"]
    made = {(row["query_id"], row["strategy"]) for row in rows(folder, "rewrites")}
    failed = {
        (row["query_id"], row["component"])
        for row in rows(folder, "errors")
        if row["stage"] == "rewrite" and row["reason"] != "texts_dropped"
    }
    assert not made & failed
    if chosen:
        assert made | failed == {(row["query_id"], name) for row in chosen for name in row["strategies"]}
    again = prepare(load_config(path), path)
    assert again.run_id == prepared.run_id
