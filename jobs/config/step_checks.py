"""Checks of the steps that LLMs do after retrieval against the rest of a config."""

from __future__ import annotations

from rewriters.engines.settings import EngineSettings
from rewriters.steps.settings import AnswerSettings, JudgeSettings


def check_steps(
    answer: AnswerSettings | None, judge: JudgeSettings | None, common: EngineSettings | None, results: int, reranked_by: str
) -> None:
    """Checks that each step has an engine, and that there are as many results as it is shown.

    Args:
        answer: Whether and how queries are answered.
        judge: Whether and how results are judged.
        common: `rewrite.engine`.
        results: The most results of a query.
        reranked_by: `rerank.kind`.

    Raises:
        ValueError: One has none, or is shown more.
    """
    for where, one in (("answer", answer), ("judge", judge)):
        if one is not None and one.engine is None and common is None:
            raise ValueError(f"{where}.engine is missing, and there is no rewrite.engine; name one")
    shown = {} if answer is None else {"answer.documents": answer.documents}
    if judge is not None and judge.relevance is not None:
        shown["judge.relevance.documents"] = judge.relevance.documents
    for where, documents in shown.items():
        if documents > results:
            more = "fuse.keep" if reranked_by == "none" else "rerank.keep and fuse.keep"
            raise ValueError(f"{where}: {documents} of {results} results; take fewer, or raise {more}")
