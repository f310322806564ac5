"""What the guards found and did, and how far pseudo-answers repeat passages or gold answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.errors import ConfigError
from jobs.counts import ErrorQueries
from jobs.measure.answers import AnswerShare, answer_share
from jobs.pages.report.figures import Figures
from jobs.runs.documents import texts_of
from jobs.runs.reading import database, files, spread
from jobs.runs.sums import GuardCounts, found_by_guards, searches_saved
from rewriters.guards.leakage import copies
from rewriters.reasons import FLAGS, GUARDED, MASKED

MOST_COMPARED = 200  # passages; each with TOP documents
SHARDS = 5
TOP = 10
_MEANINGS = FLAGS | GUARDED


@dataclass(frozen=True)
class Copied:
    """How many pseudo-answers copy one of the first TOP results of their query; `without`: why it is not known."""

    copied: int = 0
    compared: int = 0
    without: str | None = None


@dataclass(frozen=True)
class GuardFigures:
    """The figures of the section."""

    found: list[GuardCounts]
    meanings: dict[str, str]
    """Of the flags and reasons in `found`, what each says of a text."""
    searches_saved: int
    masked_queries: int
    passages: int
    """Number of texts that are passages."""
    copied: Copied = field(default_factory=Copied)
    answers: AnswerShare | None = None
    """None: the config names no gold answers."""
    without_answers: str | None = None
    """Why the gold answers could not be read."""


def guards(figures: Figures) -> GuardFigures:
    """Returns the figures of the committed shards; copies are looked for in a sample."""
    run, counts = figures.run, figures.counts
    passages = _passages(figures)
    answers, problem = None, None
    if run.config.evaluate.answers is not None and passages:
        try:
            answers = answer_share(run, run.config.evaluate.answers, run.config.evaluate.key)
        except ConfigError as error:
            problem = str(error)
    found = found_by_guards(counts)
    return GuardFigures(
        found,
        {name: meaning for name, meaning in _MEANINGS.items() if name in {one.name for one in found}},
        searches_saved(counts, run.config),
        counts[ErrorQueries("rewrite", MASKED).key],
        len(passages),
        _copied(figures, passages),
        answers,
        problem,
    )


def _passages(figures: Figures) -> dict[tuple[str, str, int], str]:
    """Returns (query_id, strategy, position) -> text of some pseudo-answers, from shards that are evenly spread."""
    names = files(figures.run, "rewrites", spread(figures.run.manifests, SHARDS))
    if not names:
        return {}
    query = """
        SELECT query_id, strategy, position, text FROM rows_of(?)
        WHERE search_as = 'passage' OR list_contains(?, strategy)
        ORDER BY sha256(query_id), strategy, position LIMIT ?
    """
    with database() as connection:
        rows = connection.execute(query, [names, figures.run.passage_strategies, MOST_COMPARED]).fetchall()
    return {(query_id, strategy, position): text for query_id, strategy, position, text in rows}


def _copied(figures: Figures, passages: dict[tuple[str, str, int], str]) -> Copied:
    names = files(figures.run, "results", spread(figures.run.manifests, SHARDS))
    if not passages or not names:
        return Copied()
    query = "SELECT query_id, doc_id FROM rows_of(?) WHERE rank <= ? AND query_id IN (SELECT unnest(?))"
    results: dict[str, list[str]] = {}
    with database() as connection:
        wanted = sorted({query_id for query_id, _, _ in passages})
        for query_id, doc_id in connection.execute(query, [names, TOP, wanted]).fetchall():
            results.setdefault(query_id, []).append(doc_id)
    texts, without = texts_of(figures.run, sorted({one for found in results.values() for one in found}))
    if without is not None:
        return Copied(without=without)
    copied = sum(
        any(copies(text, texts[doc_id]) for doc_id in results.get(query_id, ())) for (query_id, _, _), text in passages.items()
    )
    return Copied(copied, len(passages))
