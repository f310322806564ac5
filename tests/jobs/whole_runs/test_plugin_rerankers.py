"""Whole jobs in this process with rerankers that are files beside the config: one behind a web service, one in Python."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError, RetrieverError
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, job_in_process, prepared_work, rows
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.fake_models import OVERLOADED, Said
from tests.support.retrievers.judging_service import JudgingService

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


def share(query: str, texts: Sequence[str]) -> list[float]:
    """The share of a text's letters that are the query's last one."""
    return [round(text.count(query[-1]) / max(1, len(text)), 5) for text in texts]


@pytest.fixture
def service() -> Iterator[JudgingService]:
    with JudgingService("openai", "judge-1", score=share) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], service: JudgingService,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values, bm25, config_file)
    shutil.copy(ROOT / "configs" / "plugins" / "hosted.py", tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    values["rerank"] = {"kind": "hosted.py:Hosted", "model": "judge-1", "base_url": service.address, "combine": "replace"}
    values["rerank"] |= {"attempts": 2, "keep": 4}
    return config_file(values) and path


def results(run: RunFolder, arm: str = "run") -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[int, str]]] = {}
    for one in rows(run, "results"):
        if one["arm"] == arm:
            found.setdefault(texts[one["query_id"]], []).append((one["rank"], one["doc_id"]))
    return {query: [doc_id for _, doc_id in sorted(of)] for query, of in found.items()}


def rerank_costs(run: RunFolder) -> list[dict[str, Any]]:
    return [one for one in rows(run, "costs") if one["stage"] == "rerank" and one["component"] != "start_up"]


def test_a_hosted_reranker_orders_by_what_its_service_says(job: str, service: JudgingService, passages: dict[str, str]) -> None:
    fused = finished(prepared_work(job, ["rerank={kind: none}", "name=fused"], None))
    run = finished(prepared_work(job, ["rerank.batch=2"], None))
    for query, doc_ids in results(fused).items():
        scores = dict(zip(doc_ids, share(query, [passages[one] for one in doc_ids]), strict=True))
        assert results(run)[query] == sorted(doc_ids, key=lambda one: (-scores[one], one))[:4], query
    assert {len(candidates) for _, candidates in service.judged} == {1, 2}
    pairs = Counter((query, text) for query, texts in service.judged for text in texts)
    assert set(pairs.values()) == {1}
    costs = rerank_costs(run)
    assert {(one["component"], one["model"]) for one in costs} == {("Hosted", "judge-1")}
    assert sum(one["pairs"] for one in costs) == len(pairs) == len(rows(run, "scores"))
    assert sum(one["requests"] for one in costs) == len(service.judged)


@pytest.mark.slow
def test_scores_are_known_by_code_and_settings(job: str, service: JudgingService, tmp_path: Path) -> None:
    finished(prepared_work(job, ["name=first"], None))
    asked = len(service.judged)
    second = finished(prepared_work(job, ["name=second", "rerank.keep=2", "rerank.batch=1", "rerank.combine=blend"], None))
    assert len(service.judged) == asked
    costs = rerank_costs(second)
    assert sum(one["reused"] for one in costs) == len(rows(second, "scores"))
    finished(prepared_work(job, ["name=fast", "rerank.detail=fast"], None))
    assert len(service.judged) == 2 * asked
    (tmp_path / "hosted.py").write_text((tmp_path / "hosted.py").read_text() + "\n# another version\n")
    finished(prepared_work(job, ["name=first"], None))
    assert len(service.judged) == 3 * asked


@pytest.mark.slow
def test_a_service_that_is_busy_is_asked_again_and_one_that_is_away_ends_the_run(job: str, service: JudgingService) -> None:
    calm = finished(prepared_work(job, ["name=calm", "store=null"], None))
    before = len(service.judged)
    service.fail("yeast", OVERLOADED, 1 + 2)  # it has been asked once
    service.fail("spring tide", Said(500), 1 + 1)
    busy = finished(prepared_work(job, ["name=busy", "store=null"], None))
    assert results(busy) == results(calm)
    assert len(service.judged) == 2 * before + 3
    assert sum(one["requests"] for one in rerank_costs(busy)) == before + 3
    service.always = OVERLOADED
    with pytest.raises(RetrieverError, match="judge-1"):
        finished(prepared_work(job, ["name=away", "store=null", "rerank.patience_minutes=0.005"], None))


def test_an_answer_of_another_form_fails_its_query_alone(job: str, service: JudgingService) -> None:
    service.fail("yeast", Said(content=b'{"scores": [1]}'))
    run = finished(prepared_work(job, [], None))
    (error,) = [one for one in rows(run, "errors") if one["stage"] == "rerank"]
    assert "it has another form: KeyError: 'judged'" in error["message"]
    assert set(results(run)) == set(QUERIES) - {"zzz"}  # as fused


@pytest.mark.slow
def test_a_reranker_in_python(job: str, passages: dict[str, str]) -> None:
    fused = finished(prepared_work(job, ["rerank={kind: none}", "name=fused"], None))
    run = finished(prepared_work(job, ["rerank={kind: own.py:Longest, combine: replace}"], None))
    for query, doc_ids in results(fused).items():
        assert results(run)[query] == sorted(doc_ids, key=lambda one: (-len(passages[one]), one)), query
    assert {(one["component"], one["model"]) for one in rerank_costs(run)} == {("Longest", "Longest")}


@pytest.mark.slow
def test_arms_with_and_without(job: str, service: JudgingService) -> None:
    arms: dict[str, Any] = {
        "fused": {"rerank.kind": "none"}, "longest": {"rerank": {"kind": "own.py:Longest", "combine": "replace"}},
        "shortest": {"rerank": {"kind": "own.py:Longest", "combine": "replace", "factor": -1}},
        "fast": {"rerank.detail": "fast"}, "blend": {"rerank.combine": "blend"},
    }  # fmt: skip
    ablation = finished(prepared_work(job, [], {"arms": arms}))
    asked = len(service.judged)
    for arm, changes in arms.items():
        settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        alone = finished(prepared_work(job, [*settings, "name=alone"], None))
        found = results(ablation, arm)
        assert {query: of[: len(found[query])] for query, of in results(alone).items()} == found, arm
    assert len(service.judged) == asked
    assert results(ablation, "longest") != results(ablation, "shortest")


@pytest.mark.slow
@pytest.mark.parametrize(("more", "words"), [(0, "KeyError: 'yeast'"), (1, "score gives scores of the shape (3,) for 2 pairs")])
def test_code_that_fails_fails_its_query_alone(job: str, more: int, words: str) -> None:
    run = finished(prepared_work(job, [f"rerank={{kind: own.py:Fails, more: {more}}}"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    ((query, message),) = [(texts[one["query_id"]], one["message"]) for one in rows(run, "errors") if one["stage"] == "rerank"]
    assert query == "yeast"
    assert words in message
    assert set(results(run)) == set(QUERIES) - {"zzz"}


@pytest.mark.parametrize(
    ("rerank", "words"),
    [
        ({"kind": "hosted.py:Hostel", "model": "m", "base_url": "http://127.0.0.1:1"}, "no Hostel; did you mean 'Hosted'"),
        ({"kind": "own.py:NotOne"}, "the class NotOne is not a class of RerankerSettings"),
        ({"kind": "own.py:Longest", "faktor": 2}, "rerank.faktor: unknown key; did you mean 'factor'"),
        ({"kind": "own.py:Longest", "budget": {"pairs": 2}}, "budget.pairs is 2, fewer than the results"),
        ({"kind": "hosted.py:Hosted", "model": "m"}, "rerank.base_url: is missing"),
        ({"kind": "cross_encode"}, "rerank.kind: no kind 'cross_encode'; did you mean 'cross_encoder'"),
        ({"kind": "server", "keap": 1}, "rerank.keap: unknown key; did you mean 'keep'"),
    ],
)
def test_a_reranker_that_cannot_be_used_is_refused(job: str, rerank: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [f"rerank={json.dumps(rerank)}"], None)
