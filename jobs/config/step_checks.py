"""Checks of the gate, and of the steps that LLMs do after retrieval, against the rest of a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.errors import nearest

if TYPE_CHECKING:
    from jobs.config.config import Config


def check_gate(config: Config) -> None:
    """Checks that the gate goes by a score that there is."""
    if config.rewrite.gate is None:
        return
    check_original(config, "rewrite.gate.by", config.rewrite.gate.by, "")


def check_original(config: Config, where: str, by: str, more: str) -> None:
    """Checks that a retriever has scores, of the original alone; `more`: what may be named beside retrievers."""
    if by not in config.retrieve.retrievers:
        raise ValueError(f"{where}: no retriever {by!r}{nearest(by, config.retrieve.retrievers)}")
    if not config.retrieve.retrievers[by].indexed(by):
        raise ValueError(f"{where}: {by} searches no index, and its scores say little; name another retriever{more}")
    if by in config.joining or by not in config.retrieve.route("original"):
        raise ValueError(f"{where}: {by} has no list of the original alone; name another retriever{more}")


def check_steps(config: Config) -> None:
    """Checks that each step has an engine and results to read, and that rounds go by a score that there is."""
    engines = {key: one.engine for key, one in config.steps.items()}
    engines |= {} if config.judge is None else {"judge": config.judge.engine}
    for where, engine in engines.items():
        if engine is None and config.rewrite.engine is None:
            raise ValueError(f"{where}.engine is missing, and there is no rewrite.engine; name one")
    if config.judge is not None and config.answer is None and config.judge.kinds.keys() - {"relevance"}:
        raise ValueError("judge: accuracy and criteria are of answers, and the config has no answer; set answer: {}")
    _check_correction(config)
    for where, documents in config.shown.items():
        if documents > config.results:
            more = "fuse.keep" if config.rerank.kind == "none" else "rerank.keep and fuse.keep"
            raise ValueError(f"{where}: {documents} of {config.results} results; take fewer, or raise {more}")
    for key, step in (("iterate", config.iterate), ("answer", config.answer)):
        labels = None if step is None else step.labels
        if labels is not None and labels.by == "rerank" and config.rerank.kind == "none":
            raise ValueError(f"{key}.labels.by: rerank has no score, since rerank.kind is none; label by score, or by rank")
    if config.iterate is None:
        return
    by, retrievers = config.iterate.by, config.retrieve.retrievers
    if by == "rerank" and config.rerank.kind == "none":
        raise ValueError("iterate.by: rerank has no score, since rerank.kind is none; name a retriever")
    if by != "rerank" and by not in retrievers:
        raise ValueError(f"iterate.by: no retriever {by!r}{nearest(by, [*retrievers, 'rerank'])}")
    if not (searched := config.retrieve.route("iterate")):
        raise ValueError("retrieve.routes.iterate is empty, so that refined queries would find nothing; name a retriever")
    if by in retrievers:
        check_original(config, "iterate.by", by, ", or rerank")
        if config.iterate.rounds > 1 and by not in searched:
            raise ValueError(
                f"iterate.by: {by} does not search refined queries (retrieve.routes.iterate), so that a second round would "
                "never be spared; add it there, or set iterate.rounds to 1"
            )


def _check_correction(config: Config) -> None:
    """Checks that what is graded is answered from, and that grades by the reranker have one."""
    grade, web, answer = config.grade, config.web, config.answer
    if grade is None:
        if web is not None:
            raise ValueError("web: the web is asked where graded results do not suffice, and nothing is graded; set grade: {}")
        return
    if answer is None:
        raise ValueError("grade: what is kept is answered from, and the config has no answer; set answer: {}")
    if grade.by == "rerank" and config.rerank.kind == "none":
        raise ValueError("grade.by: rerank has no score, since rerank.kind is none; grade by llm")
    most = grade.documents + (web.documents if web is not None else 0)
    if answer.documents < most:
        hits = f" and {web.documents} hits of the web" if web is not None else ""
        raise ValueError(
            f"answer.documents: {answer.documents} would leave out some of {grade.documents} graded results{hits}; set {most}"
        )
