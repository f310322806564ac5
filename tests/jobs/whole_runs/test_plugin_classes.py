"""Whole jobs in this process with an engine and a reranker that are modules of the current folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.plugins import forget

ENGINE = """
from pathlib import Path
from time import perf_counter
from typing import Annotated, ClassVar

from cluster.settings import NOT_IDENTITY
from rewriters.engines import Completion
from rewriters.engines.settings import EngineSettings


class Echo(EngineSettings):
    opener: ClassVar[str] = ":EchoEngine"
    model: str = "echo-1"
    calls: Annotated[str, NOT_IDENTITY] = "calls.txt"


class EchoEngine:
    kind = "echo"

    def __init__(self, settings):
        self._settings = settings

    def check(self):
        pass

    def start(self):
        return {}

    def complete(self, requests, gate=None):
        for request in requests:
            began = perf_counter()
            with Path(self._settings.calls).open("a") as file:
                file.write(request.query + "\\n")
            text = f"{request.query} by {self._settings.model}"
            seconds = perf_counter() - began
            yield request, Completion(text, "stop", self._settings.model, prompt_tokens=3, completion_tokens=2, seconds=seconds)

    def identity(self):
        return {"kind": self.kind, "model": self._settings.model}

    def close(self):
        pass
"""


RERANKERS = '''
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
def engine(small_job: Callable[..., str]) -> str:
    Path("echo.py").write_text(ENGINE)
    return small_job(rewrite={"engine": {"kind": "echo:Echo"}, "strategies": ["rewrite"]})


@pytest.fixture
def reranker(small_job: Callable[..., str]) -> str:
    Path("own.py").write_text(RERANKERS)
    return small_job(rerank={"kind": "own:Longest", "combine": "replace", "keep": 4})


def called() -> Counter[str]:
    file = Path("calls.txt")
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


@pytest.mark.slow
def test_it_answers_and_its_answers_are_kept_by_its_code(engine: str, tmp_path: Path) -> None:
    run = finished(prepared_work(engine, ["name=first"], None))
    assert called() == Counter(QUERIES)
    assert {one["text"].rpartition(" by ")[2] for one in rows(run, "rewrites")} == {"echo-1"}
    costs = [one for one in rows(run, "costs") if one["component"] == "rewrite"]
    assert {(one["engine"], one["model"]) for one in costs} == {("echo", "echo-1")}
    assert [sum(one[name] for one in costs) for name in ("requests", "prompt_tokens", "completion_tokens")] == [6, 18, 12]
    finished(prepared_work(engine, ["name=second"], None))
    assert called() == Counter(QUERIES)
    finished(prepared_work(engine, ["name=model", "rewrite.engine.model=echo-2"], None))
    assert called() == Counter(2 * QUERIES)
    (tmp_path / "echo.py").write_text(ENGINE.replace("prompt_tokens=3", "prompt_tokens=4"))
    forget("echo")
    other = finished(prepared_work(engine, ["name=first"], None))
    assert called() == Counter(3 * QUERIES)
    assert other.record["run_id"] != run.record["run_id"]


def test_a_strategy_has_an_engine_of_its_own(engine: str) -> None:
    entry = {"rewrite": {"engine": {"kind": "echo:Echo", "model": "mine"}, "name": "own"}}
    run = finished(prepared_work(engine, [f"rewrite.strategies={json.dumps(['rewrite', entry])}"], None))
    assert {(one["strategy"], one["model"]) for one in rows(run, "rewrites")} == {("rewrite", "echo-1"), ("own", "mine")}


def results(run: RunFolder) -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[int, str]]] = {}
    for one in rows(run, "results"):
        found.setdefault(texts[one["query_id"]], []).append((one["rank"], one["doc_id"]))
    return {query: [doc_id for _, doc_id in sorted(of)] for query, of in found.items()}


@pytest.mark.slow
def test_a_reranker_in_python(reranker: str, passages: dict[str, str]) -> None:
    fused = finished(prepared_work(reranker, ["rerank={kind: none}", "name=fused"], None))
    run = finished(prepared_work(reranker, ["rerank={kind: own:Longest, combine: replace}"], None))
    for query, doc_ids in results(fused).items():
        assert results(run)[query] == sorted(doc_ids, key=lambda one: (-len(passages[one]), one)), query
    costs = [one for one in rows(run, "costs") if one["stage"] == "rerank" and one["component"] != "start_up"]
    assert {(one["component"], one["model"]) for one in costs} == {("Longest", "Longest")}


@pytest.mark.slow
@pytest.mark.parametrize(("more", "words"), [(0, "KeyError: 'yeast'"), (1, "score gives scores of the shape (3,) for 2 pairs")])
def test_code_that_fails_fails_its_query_alone(reranker: str, more: int, words: str) -> None:
    run = finished(prepared_work(reranker, [f"rerank={{kind: own:Fails, more: {more}}}"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    ((query, message),) = [(texts[one["query_id"]], one["message"]) for one in rows(run, "errors") if one["stage"] == "rerank"]
    assert query == "yeast"
    assert words in message
    assert set(results(run)) == set(QUERIES) - {"zzz"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rewrite.engine={kind: 'echo:Ekho'}", "no Ekho; did you mean 'Echo'"),
        ("rewrite.engine={kind: 'echo:EchoEngine'}", "echo:EchoEngine is not a class of EngineSettings"),
        ("rewrite.engine={kind: 'echo:Echo', modell: x}", "rewrite.engine.modell: unknown key; did you mean 'model'"),
        ("rerank={kind: 'own:Longer'}", "no Longer; did you mean 'Longest'"),
        ("rerank={kind: 'own:NotOne'}", "own:NotOne is not a class of RerankerSettings"),
        ("rerank={kind: 'own:Longest', faktor: 2}", "rerank.faktor: unknown key; did you mean 'factor'"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(engine: str, reranker: str, setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(reranker, [setting], None)
