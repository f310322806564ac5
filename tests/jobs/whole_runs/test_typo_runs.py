"""A whole run with typos: the original is searched and reranked with them, and all else is the clean query's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config.load import load_config
from jobs.job.keys import fingerprint, identity
from jobs.pages.try_one import page
from jobs.try_one.stages import LoadedConfig
from jobs.try_one.trial import trial_values
from retrievers.retriever import SearchText, open_retriever
from retrievers.served.encoder import OpenaiEncoder
from retrievers.settings import OpenaiEncoderSettings, TypoSettings
from retrievers.typos import with_typos
from rewriters.normalise import query_id
from tests.support.jobs.in_process_runs import prepared_job, run_in_process
from tests.support.jobs.whole_runs import rows
from tests.support.retrievers.blocks import typed

QUERIES = ["why does sourdough bread rise", "lamp of a lighthouse", "spring tides of the moon"]
TYPOS = TypoSettings(rate=0.4, seed=3)


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], served_dense: dict[str, Any],
    config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """The path of a config with one strategy and a reranker."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": QUERIES}), "log.parquet")
    lines = [{"query": query, "completions": {"keyword": " ".join(query.split()[-2:])}} for query in QUERIES]
    Path("recorded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values["rewrite"]["strategies"] = ["keyword"]
    values["rewrite"]["calls"] = "separate"
    values["retrieve"] = {"retrievers": {"bm25": bm25, "dense": served_dense}}
    values |= {
        "rerank": {"kind": "bi_encoder", "encoder": served_dense["encoder"]},
        "cluster": {"address": "none", "shard_size": 2},
    }
    return config_file(values)


def done(path: str, *settings: str) -> Path:
    return run_in_process(prepared_job(path, *settings))


WITH = "retrieve.typos={rate: 0.4, seed: 3}"


@pytest.mark.slow
def test_the_original_is_searched_with_its_typos_and_all_else_is_the_clean_query_s(job: str, bm25: dict[str, Any]) -> None:
    folder, clean = done(job, WITH), done(job)
    assert folder != clean
    for table in ("queries", "query_map", "rewrites"):
        assert rows(folder, table) == rows(clean, table)
    of_rewrites = [[row for row in rows(one, "runs") if row["strategy"] == "keyword"] for one in (folder, clean)]
    assert of_rewrites[0] == of_rewrites[1]
    retriever = open_retriever("bm25", typed(bm25))
    changed = 0
    for query in QUERIES:
        text = with_typos(query, query_id(query), TYPOS)
        assert text != query
        found = retriever.search([SearchText(text)], 100)
        mine = [
            row for row in rows(folder, "runs")
            if (row["query_id"], row["strategy"], row["retriever"]) == (query_id(query), "original", "bm25")
        ]  # fmt: skip
        assert [row["doc_id"] for row in mine] == found.doc_ids.to_pylist()
        assert [row["score"] for row in mine] == pytest.approx(found.scores.tolist())
        before = retriever.search([SearchText(query)], 100)
        changed += before.doc_ids.to_pylist() != found.doc_ids.to_pylist()
    assert changed


def test_the_reranker_sees_the_typos(job: str, served_dense: dict[str, Any], passages: dict[str, str]) -> None:
    encoder = OpenaiEncoder(OpenaiEncoderSettings(**served_dense["encoder"]))
    folder = done(job, WITH)
    texts = {query_id(query): with_typos(query, query_id(query), TYPOS) for query in QUERIES}
    scores = rows(folder, "scores")
    assert {row["query_id"] for row in scores} == set(texts)
    for row in scores:
        pair = [SearchText(texts[row["query_id"]], "query"), SearchText(passages[row["doc_id"]], "passage")]
        query, passage = (encoder.encode([text])[0] for text in pair)
        assert row["score"] == pytest.approx(float(query @ passage), abs=1e-4)


@pytest.mark.slow
def test_a_rate_of_zero_changes_no_row(job: str) -> None:
    folder, clean = done(job, "retrieve.typos={rate: 0}"), done(job)
    for table in ("runs", "results", "scores"):
        assert rows(folder, table) == rows(clean, table)


def test_try_searches_and_shows_the_same_text(job: str) -> None:
    from rich.console import Console

    folder = done(job, WITH)
    with LoadedConfig(load_config(job, [WITH]), job, "small") as loaded:
        trial = loaded.try_query(QUERIES[0], lambda _: None)
    text = with_typos(QUERIES[0], query_id(QUERIES[0]), TYPOS)
    assert trial_values(trial)["searched"] == text
    console = Console(file=io.StringIO(), width=120)
    console.print(page([trial]))
    assert text in console.file.getvalue()  # type: ignore[attr-defined]
    stored = [row["doc_id"] for row in rows(folder, "results") if row["query_id"] == query_id(QUERIES[0])]
    assert [hit["doc_id"] for hit in trial.row["hits"]] == stored


def test_typos_and_their_algorithm_count_for_the_fingerprint(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*settings: str) -> str:
        return fingerprint(identity(load_config(job, list(settings)), {}, {}, {}))

    found = {of(), of(WITH), of("retrieve.typos={rate: 0.4, seed: 4}"), of("retrieve.typos={rate: 0.5, seed: 3}")}
    assert len(found) == 4
    before = of(), of(WITH)
    monkeypatch.setattr("jobs.job.keys.TYPOS_VERSION", 99)
    assert of() == before[0]  # runs without typos keep their names
    assert of(WITH) != before[1]
