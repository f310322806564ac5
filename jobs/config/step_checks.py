"""Checks of the gate, and of the steps that LLMs do after retrieval, against the rest of a config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.errors import nearest

if TYPE_CHECKING:
    from jobs.config.config import Config


def step_faults(config: Config) -> Iterator[str]:
    """Yields the faults of the gate and the steps: each needs an engine, results to read, or a score to go by."""
    rewrite, retrieve, grade, web, answer = config.rewrite, config.retrieve, config.grade, config.web, config.answer
    judge, iterate, has_reranker = config.judge, config.iterate, config.rerank.kind != "none"
    if rewrite.gate is not None:
        yield from _original_faults(config, "rewrite.gate.by", rewrite.gate.by)
    engines = {key: step.engine for key, step in config.steps.items()} | ({} if judge is None else {"judge": judge.engine})
    for where, engine in engines.items():
        if engine is None and rewrite.engine is None:
            yield f"{where}.engine is missing, and there is no rewrite.engine; name one"
    if judge is not None and answer is None and judge.kinds.keys() - {"relevance"}:
        yield "judge: accuracy and criteria need an `answer` section; add `answer: {}`"
    if web is not None and grade is None:
        yield "web: needs a `grade` section, whose grades decide when the web is searched; add `grade: {}`"
    if grade is not None and answer is None:
        yield "grade: needs an `answer` section; add `answer: {}`"
    if grade is not None and grade.by == "rerank" and not has_reranker:
        yield "grade.by: `rerank` needs a reranker, and rerank.kind is none; set grade.by: llm"
    if grade is not None and answer is not None:
        most = grade.documents + (web.documents if web is not None else 0)
        if answer.documents < most:
            hits = f" and {web.documents} hits of the web" if web is not None else ""
            left_out = f"{answer.documents} would leave out some of {grade.documents} graded results{hits}"
            yield f"answer.documents: {left_out}; set {most}"
    for where, documents in config.shown.items():
        if documents > config.results:
            more = "rerank.keep and fuse.keep" if has_reranker else "fuse.keep"
            yield f"{where}: {documents} of {config.results} results, as fewer are kept; lower it, or raise {more}"
    for key, step in (("iterate", iterate), ("answer", answer)):
        if step is not None and step.labels is not None and step.labels.by == "rerank" and not has_reranker:
            yield f"{key}.labels.by: `rerank` needs a reranker, and rerank.kind is none; use `score` or `rank`"
    if iterate is None:
        return
    if iterate.by == "rerank" and not has_reranker:
        yield "iterate.by: `rerank` needs a reranker, and rerank.kind is none; name a retriever"
    if iterate.by != "rerank" and iterate.by not in retrieve.retrievers:
        yield f"iterate.by: no retriever {iterate.by!r}{nearest(iterate.by, [*retrieve.retrievers, 'rerank'])}"
    if not retrieve.route("iterate"):
        yield "retrieve.routes.iterate is empty, so that refined queries would find nothing; name a retriever"
    if iterate.by in retrieve.retrievers:
        yield from _original_faults(config, "iterate.by", iterate.by, ", or rerank")
        if iterate.rounds > 1 and iterate.by not in retrieve.route("iterate"):
            yield (
                f"iterate.by: {iterate.by} does not search refined queries (retrieve.routes.iterate), so that a second round "
                "would never be spared; add it there, or set iterate.rounds to 1"
            )


def _original_faults(config: Config, where: str, by: str, more: str = "") -> Iterator[str]:
    """Yields the reason why a retriever has no scores of the original alone; `more`: names beside retrievers."""
    retrievers = config.retrieve.retrievers
    if by not in retrievers:
        yield f"{where}: no retriever {by!r}{nearest(by, retrievers)}"
    elif not retrievers[by].indexed(by):
        yield f"{where}: {by} searches no index, and its scores say little; name another retriever{more}"
    elif by in config.joining or by not in config.retrieve.route("original"):
        yield f"{where}: {by} has no list of the original alone; name another retriever{more}"
