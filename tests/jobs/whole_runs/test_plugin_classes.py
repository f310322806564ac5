"""Rerankers and engines of the current folder: code that fails, and classes that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.plugins import page_file

FAILS = """
from retrievers.rerankers.settings import RerankerSettings


class Fails(RerankerSettings):
    more: int = 0

    def score(self, queries, passages):
        if "yeast" in queries and not self.more:
            raise KeyError("yeast")
        return [0.0] * (len(passages) + self.more * ("yeast" in queries))


class NotOne:
    pass
"""


@pytest.fixture
def job(small_job: Callable[..., str]) -> str:
    Path("own.py").write_text(FAILS)
    Path("echo.py").write_text(page_file("echo.py"))
    return small_job()


@pytest.mark.slow
@pytest.mark.parametrize(("more", "words"), [(0, "KeyError: 'yeast'"), (1, "score gives scores of the shape (3,) for 2 pairs")])
def test_code_that_fails_fails_its_query_alone(job: str, more: int, words: str) -> None:
    run = finished(prepared_work(job, [f"rerank={{kind: own:Fails, more: {more}}}"], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    ((query, message),) = [(texts[one["query_id"]], one["message"]) for one in rows(run, "errors") if one["stage"] == "rerank"]
    assert query == "yeast"
    assert words in message
    assert {texts[one["query_id"]] for one in rows(run, "results")} == set(QUERIES) - {"zzz"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("rewrite.engine={kind: 'echo:Ekho'}", "no Ekho; did you mean 'Echo'"),
        ("rewrite.engine={kind: 'echo:EchoEngine'}", "echo:EchoEngine is not a class of EngineSettings"),
        ("rewrite.engine={kind: 'echo:Echo', modell: x}", "rewrite.engine.modell: unknown key; did you mean 'model'"),
        ("rerank={kind: 'own:Fail'}", "no Fail; did you mean 'Fails'"),
        ("rerank={kind: 'own:NotOne'}", "own:NotOne is not a class of RerankerSettings"),
        ("rerank={kind: 'own:Fails', mor: 2}", "rerank.mor: unknown key; did you mean 'more'"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(job: str, setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        prepared_work(job, [setting], None)
