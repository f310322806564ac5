"""A guard that only counts, drift, in runs, resumed runs and ablations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.run.stage import shard_of
from jobs.chain.drift import drifted
from jobs.chain.search_texts import query_texts
from jobs.chain.stages.order import Order
from jobs.pages.summary import guard_words
from jobs.runs.folder import RunFolder
from rewriters.settings import GuardSettings
from tests.support.jobs.in_process_runs import finished, prepared_work, run_in_process
from tests.support.jobs.retrieval import block, query
from tests.support.jobs.whole_runs import rows
from tests.support.jobs.workers import retriever

PLACEHOLDER = "a passage about the subject"
QUERIES = {  # query -> the texts of general, keyword and pseudo_answer
    "why does sourdough bread rise": ("why sourdough bread does rise", "sourdough, bread", "Sourdough rises slowly."),
    "lamp of a lighthouse": ("something else entirely", "lamp, lighthouse", PLACEHOLDER),
    "moon and tides": ("moon and tides", "moon, tide", PLACEHOLDER),
    "harbor tides": ("tides of a harbour", "harbour, tides", PLACEHOLDER),
    "cuanto dura la marea de un puerto": ("marea de un puerto", "marea, puerto", "La marea dura."),
    "yeast of beer": ("beer", "beer", "Beer has it."),
}
STRATEGIES = ["general", "keyword", "pseudo_answer"]
GUARDS = {"drift": 0.35}
OFF = {"drift": None}
FOUND = {"guard/general/drift": 1}  # what a person finds in the texts above
Make = Callable[..., Any]


@pytest.fixture
def make(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], served_dense: dict[str, Any],
    config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    """Checks a job of two shards with these guards and settings, or an ablation of it."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": list(QUERIES)}), "log.parquet")
    said = {one: {"dmqr": json.dumps(dict(zip(STRATEGIES, texts, strict=True)))} for one, texts in QUERIES.items()}
    lines = [json.dumps({"query": one, "completions": completions}) for one, completions in said.items()]
    Path("recorded.jsonl").write_text("\n".join(lines), encoding="utf-8")
    values["rewrite"]["strategies"] = STRATEGIES
    values["retrieve"] |= {"retrievers": {"bm25": bm25, "dense": served_dense}}
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none", "shard_size": 3}, "limits": {"error_rate": 1}}

    def made(guards: dict[str, Any] = GUARDS, *settings: str, ablate: dict[str, Any] | None = None) -> Any:
        values["rewrite"]["guards"] = guards
        return prepared_work(config_file(values), settings, ablate)

    return made


def guard_counts(folder: RunFolder, begin: str = "guard/") -> dict[str, int]:
    """What these guards found."""
    found = {key.removeprefix(begin): n for key, n in folder.counts.items() if key.startswith(begin)}
    return {f"guard/{key}": n for key, n in found.items() if key.endswith("drift")}


def results(folder: RunFolder) -> list[tuple[Any, ...]]:
    found = rows(Path(folder.storage.root), "results")
    return sorted((one["query_id"], one["rank"], one["doc_id"], round(one["score"], 5)) for one in found)


@pytest.mark.slow
def test_what_a_run_counts_and_shows(make: Make) -> None:
    folder = finished(make())
    assert guard_counts(folder) == FOUND
    assert "drift 1" in guard_words(folder)


@pytest.mark.slow
def test_counting_changes_nothing_that_is_searched(make: Make) -> None:
    counted, plain = finished(make()), finished(make(OFF))
    assert guard_counts(plain) == {}
    assert results(counted) == results(plain)
    texts = ("query_id", "strategy", "position", "text")
    one, other = (
        sorted(tuple(row[name] for name in texts) for row in rows(Path(of.storage.root), "rewrites")) for of in (counted, plain)
    )
    assert one == other


def test_the_default_renames_no_run(make: Make) -> None:
    assert make({}).prepared.run_id == make({"drift": 0.15}).prepared.run_id


@pytest.mark.slow
def test_a_resumed_run_counts_what_a_whole_one_does(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finished(make(GUARDS, "output=whole"))
    order, broken = Order.__call__, [1]

    def once(self: Order, table: pa.Table) -> pa.Table:
        if shard_of(table) == 1 and broken:
            broken.pop()
            raise KeyboardInterrupt
        return order(self, table)

    monkeypatch.setattr(Order, "__call__", once)
    job = make()
    with pytest.raises(KeyboardInterrupt):
        run_in_process(job)
    assert not broken
    resumed = finished(make())
    assert len(resumed.starts) == 2
    assert guard_counts(resumed) == guard_counts(whole) == FOUND


@pytest.mark.parametrize("together", [False, True])
def test_texts_that_are_searched_together_are_still_compared_each(served_dense: dict[str, Any], together: bool) -> None:
    retrievers = {"dense": served_dense | {"together": together}}
    worker = retriever(retrievers, guards=GuardSettings(drift=0.35))
    row = query("lamp of a lighthouse", general="something else entirely", pseudo_answer="another matter")
    found = worker(block(row, query("rye", keyword="rye"))).column("rewrites").to_pylist()
    assert [[one["guards"] for one in of] for of in found] == [[["drift"], None], [None]]


def test_a_strategy_with_one_search_drifts_as_a_whole() -> None:
    base = {"weight": 1.0, "position_weight": 1.0, "search_as": "query", "guards": None}
    rewrites = [base | {"strategy": "views", "position": place, "text": text} for place, text in ((2, "a"), (3, "b"))]
    texts = query_texts(0, "q", rewrites, {"views": "texts"})
    assert len(texts) == 2
    far, near = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.8, 0.6]])
    assert drifted(texts, far, 0.15) == {(0, "views", 2)}
    assert drifted(texts, near, 0.15) == drifted(texts, far, None) == drifted(texts, None, 0.15) == set()
