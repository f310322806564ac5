"""What the lists of each text are worth: of judged documents, else of the reranker's scores.

The lists of one text, by all retrievers, are fused as those of the original alone are, and the first 10 documents count,
each with the discount of its rank, 1 / log2(1 + rank), as in nDCG. By judgements the value is nDCG; by scores it is the
discounted mean of the reranker's, where a document that was not scored counts as the worst of its query, a missing one, too.
A text that was searched and found nothing, or nothing above the floors of scores, has an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

import duckdb
import pyarrow as pa

from cluster.errors import ConfigError
from jobs.job.judged_ids import qualified_judgements
from jobs.log.judgements import Judgements, Key, check_here, read_qrels
from jobs.measure import judged_rows
from jobs.measure.judged.relevance import judged_relevance
from jobs.measure.list_portions import lists_known
from jobs.measure.original import fuse_original
from jobs.publish.choice import as_one_of, strategies_of
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL

DEPTH = 10
_SEARCHED = f"""
FROM (
  SELECT query_id, strategy, position FROM rewrites WHERE list_contains($routed, strategy)
  QUALIFY NOT list_contains($as_one, strategy) OR position = min(position) OVER (PARTITION BY query_id, strategy)
  UNION ALL SELECT query_id, '{ORIGINAL}', 1 FROM measured
) SEMI JOIN measured USING (query_id) SEMI JOIN runs USING (query_id)
ANTI JOIN (FROM errors WHERE stage = 'retrieve') AS failed USING (query_id)
"""
"""The texts that were searched, of queries of which any text found something and no search failed."""
_DISCOUNT = [1 / log2(1 + rank) for rank in range(1, DEPTH + 1)]

TextPlace = tuple[str, str, int]
"""query_id, strategy and position; the original has the strategy `original` and the position 1."""


def measured_by(run: RunFolder, qrels: str | None, key: Key | None) -> Judgements | None:
    """Returns the judgements that gains are measured by: given ones, those of the config or the judge; None: by scores.

    Raises:
        ConfigError: They cannot be read, the run kept no lists of single texts, or nothing can be measured.
    """
    if not lists_known(run):
        why = "searched all texts of a query as one (together)" if run.config.joining else "kept no lists (retrieve.keep_runs)"
        raise ConfigError(
            "publish-run", f"{run.storage.root}: {why}, so no list says what a rewrite is worth; run it otherwise"
        )
    evaluate = run.config.evaluate
    if (path := qrels or evaluate.qrels) is not None:
        where = "--qrels" if qrels else "evaluate.qrels"
        check_here(None if qrels else path, "gains", "--qrels")
        named = read_qrels(path, where, key or evaluate.key)
        return qualified_judgements(named, run.config, run.record["indexes"])
    if (judged := judged_relevance(run)) is not None:
        return judged
    if run.config.rerank.kind == "none":
        what = f"{run.storage.root}: has neither judgements nor a reranker, so gains are not known"
        raise ConfigError("publish-run", f"{what}; give --qrels FILE")
    return None


class Gains:
    """The values of texts, portion by portion."""

    def __init__(self, run: RunFolder, judgements: Judgements | None) -> None:
        """Takes a run and its judgements; None: values are by the reranker's scores."""
        self._run, self._judgements = run, judgements
        self._grades = None if judgements is None else _grades(run, judgements)

    def __call__(self, connection: duckdb.DuckDBPyConnection) -> dict[TextPlace, float]:
        """Returns the values of the texts of a portion whose query can be measured (`jobs/publish/training/texts.py`)."""
        worth, least = (self._grades, {}) if self._grades is not None else _scores(connection)
        lists = _lists(connection, self._run, pa.array(sorted(worth), pa.string()))
        found: dict[TextPlace, float] = {}
        for place, doc_ids in lists.items():
            of = worth[place[0]]
            if self._grades is None:
                values = [of.get(doc_id, least[place[0]]) for doc_id in doc_ids[:DEPTH]]
                values += [least[place[0]]] * (DEPTH - len(values))
                found[place] = round(_discounted(values) / sum(_DISCOUNT), 6)
            else:
                best = _discounted(sorted(of.values(), reverse=True)[:DEPTH])
                found[place] = round(_discounted([of.get(doc_id, 0) for doc_id in doc_ids[:DEPTH]]) / best, 6)
        return found


def _discounted(values: Sequence[float]) -> float:
    return sum(value * discount for value, discount in zip(values, _DISCOUNT, strict=False))


def _grades(run: RunFolder, judgements: Judgements) -> dict[str, dict[str, float]]:
    """Returns query_id -> document -> grade, the highest of its keys, of queries that have a relevant document."""
    found: dict[str, dict[str, float]] = {}
    with judged_rows.database(run) as connection:
        for query_id, keys in judged_rows.counted_keys(connection, run, judgements).of_query.items():
            of: dict[str, float] = {}
            for key in keys:
                for doc_id, grade in judgements.grades[key].items():
                    of[doc_id] = max(of.get(doc_id, 0.0), float(grade if grade >= judgements.least else 0))
            if any(of.values()):
                found[query_id] = of
    return found


def _scores(connection: duckdb.DuckDBPyConnection) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Returns query_id -> document -> score, and query_id -> the lowest one, of a portion."""
    found: dict[str, dict[str, float]] = {}
    for query_id, doc_id, score in connection.execute("SELECT query_id, doc_id, score FROM scores").fetchall():
        found.setdefault(query_id, {})[doc_id] = score
    return found, {query_id: min(of.values()) for query_id, of in found.items()}


def _lists(connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: pa.Array) -> Mapping[TextPlace, list[str]]:
    """Returns the documents of each text of some queries that was searched, its lists fused, best first."""
    connection.register("measured", pa.table({"query_id": query_ids}))
    strategies, route = strategies_of(run), run.config.retrieve.route
    given = {"as_one": [*as_one_of(run)], "routed": [name for name in strategies if route(name)]}
    found: dict[TextPlace, list[str]] = {place: [] for place in connection.execute(_SEARCHED, given).fetchall()}
    rows = connection.sql(
        "SELECT query_id || chr(10) || strategy || chr(10) || position AS query_id, position, retriever, doc_id, score"
        f" FROM runs SEMI JOIN measured USING (query_id) WHERE {judged_rows.above_cuts(run)} ORDER BY query_id, retriever, rank"
    ).to_arrow_table()
    if not rows.num_rows:
        return found
    fused: dict[str, Any] = dict(fuse_original(rows, run.config.fuse, run.config.retrieve.collection_of))
    for name, doc_ids in fused.items():
        query_id, strategy, position = name.split("\n")
        found[query_id, strategy, int(position)] = doc_ids
    return found
