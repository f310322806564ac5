"""Whole jobs in this process with a reranker that is a module of the current folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows

OWN = '''
from retrievers.rerankers.settings import RerankerSettings


class Longest(RerankerSettings):
    """The longer the better, times a factor."""

    factor: float = 1.0
    rounded: bool = False

    def score(self, queries, passages):
        return [self.factor * len(passage) for passage in passages]


class Fails(RerankerSettings):
    more: int = 0

    def score(self, queries, passages):
        if "yeast" in queries and not self.more:
            raise KeyError("yeast")
        return [0.0] * (len(passages) + self.more * ("yeast" in queries))


class NotOne:
    pass
'''


@pytest.fixture
def job(bm25_job: str, tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str]) -> str:
    (tmp_path / "own.py").write_text(OWN)
    values["rerank"] = {"kind": "own:Longest", "combine": "replace", "keep": 4}
    return config_file(values) and bm25_job


def results(run: RunFolder, arm: str = "run") -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[int, str]]] = {}
    for one in rows(run, "results"):
        if one["arm"] == arm:
            found.setdefault(texts[one["query_id"]], []).append((one["rank"], one["doc_id"]))
    return {query: [doc_id for _, doc_id in sorted(of)] for query, of in found.items()}


def rerank_costs(run: RunFolder) -> list[dict[str, Any]]:
    return [one for one in rows(run, "costs") if one["stage"] == "rerank" and one["component"] != "start_up"]


@pytest.mark.slow
def test_a_reranker_in_python(job: str, passages: dict[str, str]) -> None:
    fused = finished(prepared_work(job, ["rerank={kind: none}", "name=fused"], None))
    run = finished(prepared_work(job, ["rerank={kind: own:Longest, combine: replace}"], None))
    for query, doc_ids in results(fused).items():
        assert results(run)[query] == sorted(doc_ids, key=lambda one: (-len(passages[one]), one)), query
    assert {(one["component"], one["model"]) for one in rerank_costs(run)} == {("Longest", "Longest")}


@pytest.mark.slow
@pytest.mark.parametrize(("more", "words"), [(0, "KeyError: 'yeast'"), (1, "score gives scores of the shape (3,) for 2 pairs")])
def test_code_that_fails_fails_its_query_alone(job: str, more: int, words: str) -> None:
    run = finished(prepared_work(job, [f"rerank={{kind: own:Fails, more: {more}}}"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    ((query, message),) = [(texts[one["query_id"]], one["message"]) for one in rows(run, "errors") if one["stage"] == "rerank"]
    assert query == "yeast"
    assert words in message
    assert set(results(run)) == set(QUERIES) - {"zzz"}


@pytest.mark.parametrize(
    ("rerank", "words"),
    [
        ({"kind": "own:Longer"}, "no Longer; did you mean 'Longest'"),
        ({"kind": "own:NotOne"}, "own:NotOne is not a class of RerankerSettings"),
        ({"kind": "own:Longest", "faktor": 2}, "rerank.faktor: unknown key; did you mean 'factor'"),
        ({"kind": "cross_encode"}, "rerank.kind: no kind 'cross_encode'; did you mean 'cross_encoder'"),
        ({"kind": "server", "keap": 1}, "rerank.keap: unknown key; did you mean 'keep'"),
    ],
)
def test_a_reranker_that_cannot_be_used_is_refused(job: str, rerank: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [f"rerank={json.dumps(rerank)}"], None)
