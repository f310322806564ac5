"""Pairs by need in whole runs in this process: which are scored, stored, counted and shown, and what nothing may change."""

from __future__ import annotations

import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cluster.costs import stage_sums
from cluster.errors import ConfigError
from jobs.config.load import load_config
from jobs.counts import UNSCORED_PAIRS
from jobs.job.keys import fingerprint
from jobs.job.prepare import prepare
from jobs.pages.summary import closing_table
from jobs.plan.plan import plan
from jobs.plan.table import plan_table
from jobs.runs.folder import RunFolder
from jobs.terminal.live_display import LiveDisplay
from jobs.try_one.stages import LoadedConfig
from retrievers.local.build import build_local_index
from tests.support.jobs.full_disk import full_disk
from tests.support.jobs.in_process_runs import finished, prepared_work, rows
from tests.support.params import rest_slow
from tests.support.retrievers.blocks import index_fields
from tests.support.retrievers.fake_models import FakeModels
from tests.support.retrievers.order_oracle import combine

QUERIES = ["sea and moon", "sea and bread", "sea light", "sea keeper", "sea sea harbour"]
DOCUMENTS, KEEP = 24, 3
BUDGETS = {"pairs": {"pairs": 6}, "settled": {"settled": 4, "step": 2}, "both": {"settled": 4, "step": 3, "pairs": 12}}
Row = dict[str, Any]


def score(query: str, texts: Sequence[str]) -> list[float]:
    """By a hash, in steps, so that some are equal."""
    return [int(hashlib.sha256(f"{query}|{text}".encode()).hexdigest(), 16) % 40 / 10 - 2 for text in texts]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Documents that all queries find, in some order."""
    place = tmp_path_factory.mktemp("sea")
    words = ["moon", "bread", "light", "keeper", "harbour", "tide", "yeast"]
    texts = [
        " ".join(["sea"] * (1 + n % 3) + [words[n % 7], words[n * 3 % 7]] * (1 + n % 2)) + f" {n}" for n in range(DOCUMENTS)
    ]
    ids = [f"d{n * 7 % DOCUMENTS:02d}" for n in range(DOCUMENTS)]
    pq.write_table(pa.table({"doc_id": ids, "title": [""] * DOCUMENTS, "text": texts}), place / "corpus.parquet")
    build_local_index(place / "index", place / "corpus.parquet", index_fields("english"))
    return str(place / "index")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModels]:
    with FakeModels("vllm", "reranker", score=score) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: Row, index: str, server: FakeModels, config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    values |= {
        "rewrite": {"strategies": []},
        "fuse": {"keep_candidates": True},
        "cluster": {"address": "none", "shard_size": 2},
    }
    values["retrieve"] |= {"retrievers": {"bm25": {"kind": "local", "index": index}}}
    values["rerank"] = {"kind": "server", "model": server.model, "base_url": server.address, "keep": KEEP}
    return config_file(values)


def made(job: str, label: str, *settings: str) -> RunFolder:
    return finished(prepared_work(job, [f"label={label}", *settings], None))


def budget(of: Row) -> str:
    return f"rerank.budget={json.dumps(of)}"


def by_query(run: RunFolder, table: str) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in rows(run, table):
        found[row["query_id"]].append(row)
    return {query: sorted(of, key=lambda one: one.get("rank", 0)) for query, of in found.items()}


def same_rows(one: RunFolder, other: RunFolder) -> None:
    for table in ("scores", "results", "candidates"):
        assert sorted(map(repr, rows(one, table))) == sorted(map(repr, rows(other, table))), table


def paid(run: RunFolder) -> tuple[int, int]:
    """Pairs that were scored, and those that were taken from the store."""
    spent = stage_sums(run.spent, "rerank")
    return int(spent.get("pairs", 0)), int(spent.get("reused", 0))


@pytest.mark.parametrize("how", ["blend", "replace"])
@pytest.mark.parametrize("name", BUDGETS)
def test_results_are_made_of_the_first_candidates_that_were_scored(job: str, name: str, how: str) -> None:
    run = made(job, "one", budget(BUDGETS[name]), f"rerank.combine={how}", "store=null")
    candidates, results, scored = (by_query(run, table) for table in ("candidates", "results", "scores"))
    texts = {row["query_id"]: row["query"] for row in rows(run, "queries")}
    numbers = set()
    for query, of in candidates.items():
        scores = {row["doc_id"]: row["score"] for row in scored[query]}
        numbers.add(len(scores))
        first = of[: len(scores)]
        assert scores.keys() == {row["doc_id"] for row in first}, texts[query]
        fused = [row["score"] for row in first]
        wanted = combine([row["doc_id"] for row in first], fused, [scores[row["doc_id"]] for row in first], how, KEEP)
        assert [row["doc_id"] for row in results[query]] == [one.doc_id for one in wanted]
        assert [row["fused_score"] for row in results[query]] == [one.fused_score for one in wanted]
        assert [row["rerank_score"] for row in results[query]] == [scores[one.doc_id] for one in wanted]
        assert [row["score"] for row in results[query]] == pytest.approx([one.score for one in wanted])
    assert max(numbers) <= BUDGETS[name].get("pairs", DOCUMENTS)
    assert len(numbers) > 1 or name != "settled"  # by need
    assert numbers == {6} or name != "pairs"
    every = sum(map(len, candidates.values()))
    assert paid(run) == (len(rows(run, "scores")), 0)
    assert run.counts[UNSCORED_PAIRS] == every - len(rows(run, "scores")) > 0
    console = Console(file=io.StringIO(), width=200)
    console.print(closing_table(run, None, None))
    assert f"{run.counts[UNSCORED_PAIRS]:,} pairs that rerank.budget left out" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_what_is_proven_has_the_rows_of_all_pairs(job: str) -> None:
    """But for the blend's value, which counts ranks among the pairs that were scored."""
    settings = ["store=null", "rerank.keep=1"]
    whole, proven = made(job, "whole", *settings), made(job, "proven", *settings, budget({"proven": True, "step": 1}))
    found, wanted = ([{**row, "score": None} for row in rows(run, "results")] for run in (proven, whole))
    assert found == wanted
    assert UNSCORED_PAIRS not in whole.counts
    assert paid(proven)[0] + proven.counts[UNSCORED_PAIRS] == paid(whole)[0] == DOCUMENTS * len(QUERIES)
    assert proven.counts[UNSCORED_PAIRS] > 0


@pytest.mark.parametrize("before", [None, {"pairs": 4}, pytest.param({"settled": 1, "step": 1}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", rest_slow(BUDGETS, list(BUDGETS)[:1]))
def test_what_is_stored_changes_no_row(job: str, name: str, before: Row | None) -> None:
    alone = made(job, "alone", budget(BUDGETS[name]), "store=null")
    made(job, "before", *([] if before is None else [budget(before)]))
    tonight, again = (made(job, label, budget(BUDGETS[name])) for label in ("tonight", "again"))
    for run in (tonight, again):
        same_rows(run, alone)
        assert sum(paid(run)) == paid(alone)[0]  # a stored score is free, and counts as any other
        assert run.counts[UNSCORED_PAIRS] == alone.counts[UNSCORED_PAIRS]
    assert paid(again)[0] == 0
    assert (paid(tonight)[0] == 0) == (before is None)


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_rows_of_one_that_was_not_stopped(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = made(job, "calm", budget(BUDGETS["settled"]), "store=null")
    with full_disk(monkeypatch):
        made(job, "one", budget(BUDGETS["settled"]))
    same_rows(made(job, "one", budget(BUDGETS["settled"])), calm)


@pytest.mark.slow
def test_arms_share_scores_and_each_is_its_run(job: str) -> None:
    arms: dict[str, Row] = {
        "few": {"rerank.budget": {"pairs": 5}},
        "by need": {"rerank.budget": BUDGETS["settled"]},
        "by need, replaced": {"rerank.budget": BUDGETS["both"], "rerank.combine": "replace"},
        "proven": {"rerank.budget": {"proven": True, "step": 1}, "rerank.keep": 1},
    }
    small = ["fuse.keep=15", "store=null"]
    ablation = finished(prepared_work(job, [*small, "label=arms"], {"arms": arms, "keep": 12}))
    pairs = sum(number for key, number in ablation.counts.items() if key.startswith("arm/full/pairs/"))
    assert pairs == 15 * len(QUERIES) == paid(ablation)[0]
    assert UNSCORED_PAIRS not in ablation.counts  # `full` needs them all
    for arm, changes in arms.items():
        alone = made(job, "alone", *small, *(f"{key}={json.dumps(value)}" for key, value in changes.items()))
        own = [row for row in rows(ablation, "results") if row["arm"] == arm]
        names = ("query_id", "rank", "doc_id", "score", "rerank_score")
        found, wanted = (sorted(tuple(row[name] for name in names) for row in of) for of in (own, rows(alone, "results")))
        assert found == wanted, arm
        assert sum(n for key, n in ablation.counts.items() if key.startswith(f"arm/{arm}/pairs/")) == paid(alone)[0], arm
    behind = [row for row in rows(ablation, "tails") if row["arm"] == "few"]
    fused = by_query(ablation, "candidates")
    for query, of in by_query(ablation, "results").items():
        shown = [row["doc_id"] for row in of if row["arm"] == "few"]
        shown += [row["doc_id"] for row in sorted(behind, key=lambda one: one["rank"]) if row["query_id"] == query]
        first = [row["doc_id"] for row in fused[query]]
        assert set(shown[:5]) == set(first[:5])  # the scored ones, reranked
        assert shown[5:] == first[5:12]  # the others, as they were fused


def test_the_plan_counts_up_to_the_budget(job: str) -> None:
    path, wanted = job, {"pairs": 8 * len(QUERIES), "candidates": 50 * len(QUERIES)}
    planned = plan(prepare(load_config(path, [budget({"pairs": 8})]), path), LiveDisplay(io.StringIO()))
    assert {name: planned["left"][name] for name in wanted} == wanted
    console = Console(file=io.StringIO(), width=200)
    console.print(plan_table(planned))
    assert "of up to 250 candidates (rerank.budget)" in console.file.getvalue()  # type: ignore[attr-defined]
    plain = plan(prepare(load_config(path, []), path), LiveDisplay(io.StringIO()))
    assert (plain["left"]["pairs"], "candidates" in plain["left"]) == (50 * len(QUERIES), False)


def test_a_try_says_what_was_left_unscored(job: str) -> None:
    with LoadedConfig(load_config(job, [budget({"pairs": 6})]), job, "few") as loaded:
        trial = loaded.try_query("sea and moon", lambda words: None)
    assert trial.document_counts["left unscored (rerank.budget)"] == DOCUMENTS - 6
    assert trial.document_counts["found"] == DOCUMENTS == sum(trial.document_counts.values()) - DOCUMENTS


def test_a_budget_is_of_the_fingerprint_and_none_is_of_none(job: str) -> None:
    names = [
        fingerprint(prepare(load_config(job, more), job).identity)
        for more in ([], ["rerank.budget=null"], [budget({"pairs": 6})])
    ]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("iterate={by: rerank, below: 1, documents: 2}", "iterate.by is rerank"),
        ("answer={documents: 2, labels: {by: score, high: 2, medium: 1}}", "answer.labels.by is score"),
    ],
)
def test_what_goes_by_more_than_the_order_is_refused_beside_proven(job: str, setting: str, words: str) -> None:
    engine = "rewrite.engine={kind: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}"
    load_config(job, [engine, setting])
    with pytest.raises(ConfigError, match=words):
        load_config(job, [budget({"proven": True}), engine, setting])
