"""Sample queries: their rewrites, requests and answers, the original alone as it is measured, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from jobs.chain.steps.asked_about import asked_about
from jobs.measure.judged_rows import of_original
from jobs.measure.original import fuse_original
from jobs.measure.query_context import contexts_of
from jobs.pages.render import DOCUMENT_CHARACTERS
from jobs.pages.report.failures import Failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.judged_queries import Judged
from jobs.pages.report.lists import comparable
from jobs.pages.report.sample_choice import choose
from jobs.pages.report.sampled_requests import SampledRequest, by_document, sampled_requests
from jobs.pages.report.sampled_steps import fill_steps
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files
from jobs.runs.tally import Committed
from jobs.tables import NOTES, ORIGINAL
from jobs.try_one.trial import TextId, text_names

TOP = 10
MOST_MISSED = 5


@dataclass(frozen=True)
class Hit:
    """A document with its rank in the original's list or among the results."""

    rank: int
    doc_id: str
    score: float | None = None
    fused_score: float | None = None
    sources: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Name of the text, as in `Sample.rewrites` -> retriever and rank in each list that has the document."""
    new: bool = False
    """Whether no list of the original has the document within the depth of fusion."""


@dataclass
class Sample:
    """One query. Texts are present even if the page leaves them out."""

    query_id: str
    query: str
    log_count: int
    rewrites: list[dict[str, Any]] = field(default_factory=list)
    """With the `name` of each: its strategy, with the position where that has several texts."""
    selection: dict[str, Any] | None = None
    """Query type, strategies and reason; None in a run that does not select."""
    requests: list[SampledRequest] = field(default_factory=list)
    alone: list[Hit] = field(default_factory=list)
    """The first documents of the original alone, its lists fused as `evaluate` measures them; without kept lists empty."""
    lists: dict[str, list[Hit]] = field(default_factory=dict)
    """Without kept lists: retriever -> the results that the original's list has among its first."""
    hits: list[Hit] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    """As in rounds/, in order."""
    graded: list[dict[str, Any]] = field(default_factory=list)
    """As in grades/, by rank."""
    correction: dict[str, Any] | None = None
    """As in corrections/, with the `pages` of the web; None: results are not graded."""
    answer: dict[str, Any] | None = None
    """As in answers/; None: no LLM answered."""
    judged: list[dict[str, Any]] = field(default_factory=list)
    """The judge's first grades, as in judgements/, with the `name` of what is judged: a document, or what of the answer."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    grades: Mapping[str, int] = field(default_factory=dict)
    """doc_id -> grade, of the judged documents."""
    least: int = 1
    """The lowest grade of a relevant one."""
    context: str | None = None
    """Its earlier turns."""
    values: tuple[float, float | None] | None = None
    """The leading measure of the results and of the original alone; None: the query is not judged."""

    @property
    def gain(self) -> float | None:
        """Returns results - original alone; None where it was not measured."""
        return None if self.values is None or self.values[1] is None else self.values[0] - self.values[1]

    @property
    def failures(self) -> list[tuple[str, str, str, list[str]]]:
        """Returns stage, reason, message and strategies of each failure; one answer may fail several strategies."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for row in self.errors:
            found.setdefault((row["stage"], row["reason"], row["message"] or ""), []).append(row["component"])
        return [(*key, list(filter(None, components))) for key, components in found.items()]

    @property
    def missed(self) -> list[tuple[str, int]]:
        """Returns the relevant documents that are not among the shown results, with their grades, the highest first."""
        shown = {hit.doc_id for hit in self.hits}
        found = [(doc_id, grade) for doc_id, grade in self.grades.items() if grade >= self.least and doc_id not in shown]
        return sorted(found, key=lambda one: (-one[1], one[0]))[:MOST_MISSED]


@dataclass(frozen=True)
class Samples:
    """The samples, the greatest gain first, then the most asked."""

    queries: list[Sample]
    documents: dict[str, str]
    """doc_id -> the beginning of its text."""
    without: str | None
    """Why there are no texts, in one line."""

    @property
    def measured(self) -> bool:
        """Returns whether the gain of a sample is known."""
        return any(one.gain is not None for one in self.queries)


def samples(
    figures: Figures, failed: Failures, count: int, *, texts: bool, judged: Judged | None = None, every: bool = False
) -> Samples:
    """Returns at most `count` sample queries, some that failed; with `texts` those of documents, prompts and answers, too.

    With `every` all requests of each, those of each document; else one of each kind.
    """
    run = figures.run
    chosen = choose(run, failed.failed_ids, judged, count)
    found = {row[0]: Sample(*row) for rows in chosen.values() for row in rows}
    if not found:
        return Samples([], {}, None)
    by_number = {manifest.shard: manifest for manifest in run.manifests}
    with database() as connection:
        rows = _Rows(connection, run, [by_number[number] for number in chosen], list(found))
        _fill(figures, rows, found)
        _fill_alone(run, rows, found)
    for query_id, requests in sampled_requests(run, list(chosen), list(found), texts=texts, every=every).items():
        found[query_id].requests = requests
    for query_id, context in contexts_of(run, found).items():
        found[query_id].context = context
    if judged is not None:
        for sample in found.values():
            sample.grades, sample.values = judged.grades.get(sample.query_id, {}), judged.values.get(sample.query_id)
            sample.least = judged.least
    documents, without = _documents(run, found.values()) if texts else ({}, None)
    for sample in found.values():
        ranked = [hit.doc_id for hit in sample.hits]
        known = {doc_id: documents[doc_id] for doc_id in ranked if doc_id in documents}
        about = asked_about(run.config, known, sample.query, (sample.correction or {}).get("question"))
        sample.requests = by_document(sample.requests, about, ranked)
        sample.judged.sort(key=lambda row: (row["doc_id"] is None, ranked.index(row["name"]) if row["name"] in ranked else TOP))
    shown = {doc_id: text[: DOCUMENT_CHARACTERS + 1] for doc_id, text in documents.items()}
    return Samples(sorted(found.values(), key=_place), shown, without)


def _place(sample: Sample) -> tuple[bool, float, int, str]:
    gain = sample.gain
    return gain is None, -(gain or 0.0), -sample.log_count, sample.query_id


@dataclass(frozen=True)
class _Rows:
    """The tables' rows of the samples."""

    connection: duckdb.DuckDBPyConnection
    run: RunFolder
    manifests: list[Committed]
    query_ids: list[str]

    def table(self, name: str, columns: str, condition: str, order: str) -> pa.Table | None:
        """Returns the rows, or None for a table without any."""
        names = files(self.run, name, self.manifests)
        if not names:
            return None
        query = (
            f"SELECT {columns} FROM rows_of($names) WHERE query_id IN (SELECT unnest($ids)) AND {condition} ORDER BY {order}"
        )
        return self.connection.sql(query, params={"names": names, "ids": self.query_ids}).to_arrow_table()

    def __call__(self, name: str, columns: str, condition: str = "true", order: str = "query_id") -> list[dict[str, Any]]:
        """Returns the rows as dicts."""
        table = self.table(name, columns, condition, order)
        return [] if table is None else table.to_pylist()


def _fill(figures: Figures, rows: _Rows, found: Mapping[str, Sample]) -> None:
    """Fills rewrites, errors and results."""
    run = figures.run
    place = {name: number for number, name in enumerate([ORIGINAL, *figures.strategies])}
    for row in rows("rewrites", "query_id, strategy, position, text, parsed_as", order="query_id, position"):
        found[row["query_id"]].rewrites.append(row)
    for row in rows("errors", "query_id, stage, component, reason, message"):
        found[row["query_id"]].errors.append(row)
    fill_steps(rows, found)
    for row in rows("selections", "query_id, query_type, strategies, reason"):
        not_selected = [name for name in figures.strategies if name not in row["strategies"]]
        found[row["query_id"]].selection = row | {"not_selected": not_selected}
    names: dict[str, dict[TextId, str]] = {}
    for one in found.values():
        of = names[one.query_id] = text_names((row["strategy"], row["position"]) for row in one.rewrites)
        for row in one.rewrites:
            row["name"] = of[row["strategy"], row["position"]]
    known = {(row["query_id"], row["doc_id"]) for row in rows("runs", "query_id, doc_id", of_original(run))}
    known_original = comparable(run)  # not if fusion left the original out and no list was kept
    results = "query_id, rank, doc_id, score, fused_score, sources"
    for row in rows("results", results, f"rank <= {TOP}", "query_id, rank"):
        sources = _sources(row, place, names[row["query_id"]])
        new = known_original and ORIGINAL not in sources and (row["query_id"], row["doc_id"]) not in known
        hit = Hit(row["rank"], row["doc_id"], row["score"], row["fused_score"], sources, new)
        found[row["query_id"]].hits.append(hit)
    for sample in found.values():
        sample.rewrites.sort(key=lambda row: (place.get(row["strategy"], len(place)), row["strategy"], row["position"]))
        sample.errors.sort(key=lambda row: (row["reason"] in NOTES, place.get(row["component"], len(place)), row["reason"]))


def _fill_alone(run: RunFolder, rows: _Rows, found: Mapping[str, Sample]) -> None:
    """Fills the original's documents: fused as measured, or, if lists were not kept, what the sources of results tell.

    There are none where it was searched as one with its rewrites.
    """
    if run.config.joining:
        return None
    if not run.config.retrieve.keep_runs:
        return _fill_lists(rows("results", "query_id, doc_id, sources", order="query_id, rank"), found)
    columns = "query_id, position, retriever, doc_id, score, rank"
    table = rows.table("runs", columns, of_original(run), "query_id, retriever, rank")
    if table is None or not table.num_rows:
        return None
    ranks: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row in table.to_pylist():
        ranks.setdefault((row["query_id"], row["doc_id"]), []).append((row["retriever"], row["rank"]))
    alone = fuse_original(table.drop_columns(["rank"]), run.config.fuse, run.config.retrieve.collection_of)
    for query_id, doc_ids in alone.items():
        found[query_id].alone = [
            Hit(rank, doc_id, sources={ORIGINAL: ranks[query_id, doc_id]})
            for rank, doc_id in enumerate(doc_ids[: min(TOP, run.config.results)], start=1)
        ]
    return None


def _fill_lists(rows: list[dict[str, Any]], found: Mapping[str, Sample]) -> None:
    for row in rows:
        for source in row["sources"] or []:
            if source["strategy"] == ORIGINAL and source["rank"] <= TOP:
                hit = Hit(source["rank"], row["doc_id"], source["score"])
                found[row["query_id"]].lists.setdefault(source["retriever"], []).append(hit)
    for sample in found.values():
        sample.lists = {name: sorted(hits, key=lambda hit: hit.rank) for name, hits in sorted(sample.lists.items())}


def _sources(row: dict[str, Any], place: Mapping[str, int], names: Mapping[TextId, str]) -> dict[str, list[tuple[str, int]]]:
    sources: dict[str, list[tuple[str, int]]] = {}
    for source in sorted(row["sources"] or [], key=lambda one: place.get(one["strategy"], len(place))):
        name = names.get((source["strategy"], source["position"]), source["strategy"])
        sources.setdefault(name, []).append((source["retriever"], source["rank"]))
    return sources


def _documents(run: RunFolder, found: Iterable[Sample]) -> tuple[dict[str, str], str | None]:
    """Returns doc_id -> its text, and the reason if the texts cannot be read: the index is gone or replaced."""
    # not of the missed documents: those that are judged may be of another corpus
    wanted = sorted({hit.doc_id for one in found for hits in (one.hits, one.alone, *one.lists.values()) for hit in hits})
    return texts_of(run, wanted, addresses=True)
