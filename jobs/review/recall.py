"""How many documents queries find, by traffic: the original alone, and what is served after rewriting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from jobs.measure.evaluate.traffic import THIRDS
from jobs.measure.list_portions import lists_known
from jobs.runs.folder import RunFolder

ALL = "all"
ZERO, LOW, ENOUGH = "zero", "low", "enough"
_CLASSES = """
SELECT log_count, {before} AS before, {after} AS after, count(*), sum(log_count) FROM (
    SELECT log_count, coalesce(b.found, 0) AS found_before, coalesce(a.found, 0) AS found_after FROM queries
    LEFT JOIN (SELECT query_id, count(DISTINCT doc_id) AS found FROM lists{scored} GROUP BY query_id) AS b USING (query_id)
    LEFT JOIN (SELECT query_id, count(*) AS found FROM results{good} GROUP BY query_id) AS a USING (query_id)
) GROUP BY ALL
"""


@dataclass(frozen=True)
class RecallRow:
    """The queries of a third of the traffic, or of all of it, in number and in how often they were asked.

    `before` and `after` have `zero` (queries that find nothing), `low` (fewer documents than `Recall.low`) and `enough`, each
    with queries and asked; `before` is None where the lists of the original alone are not known. `helped`: that found nothing
    before, and something after; `lost`: the other way round.
    """

    name: str
    queries: int
    asked: int
    before: dict[str, tuple[int, int]] | None
    after: dict[str, tuple[int, int]]
    helped: tuple[int, int] | None
    lost: tuple[int, int] | None


@dataclass
class Recall:
    """Sums over portions.

    Attributes:
        low: Fewer documents are few.
        least: The reranker's score that a document must have to count; None: every document counts.
        known: Whether the lists of the original alone are known.
    """

    low: int
    least: float | None
    known: bool
    sums: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    """(how often a query was asked, class before, class after) -> queries."""

    @classmethod
    def of(cls, run: RunFolder, low: int, least: float | None) -> Recall:
        """Returns empty sums for a run; no more documents are wanted than it keeps."""
        return cls(min(low, run.config.results), least, lists_known(run))

    def add(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Adds the queries of a portion (`jobs/review/portions.py`)."""
        scored = good = ""
        if self.least is not None:
            scored = " SEMI JOIN (FROM scores WHERE score >= $least) USING (query_id, doc_id)"
            good = " WHERE rerank_score >= $least"
        classes = f"CASE WHEN {{0}} = 0 THEN '{ZERO}' WHEN {{0}} < {self.low} THEN '{LOW}' ELSE '{ENOUGH}' END"
        names = (classes.format(f"found_{when}") for when in ("before", "after"))
        query = _CLASSES.format(**dict(zip(("before", "after"), names, strict=True)), scored=scored, good=good)
        given = {} if self.least is None else {"least": self.least}
        for asked, before, after, queries, _ in connection.execute(query, given).fetchall():
            self.sums[asked, before, after] += queries

    def rows(self, thirds: Mapping[int, str]) -> list[RecallRow]:
        """Returns a row per third of the log's traffic, where it has thirds, and one of all of it."""
        rows = [self._row(name, {one for one, third in thirds.items() if third == name}) for name in THIRDS]
        return [row for row in rows if row.queries] + [self._row(ALL, None)]

    def _row(self, name: str, asked: set[int] | None) -> RecallRow:
        mine = {key: n for key, n in self.sums.items() if asked is None or key[0] in asked}

        def share(before: str | None = None, after: str | None = None) -> tuple[int, int]:
            of = [
                (count, n)
                for (count, *classes), n in mine.items()
                if all(wanted in (None, one) for wanted, one in zip((before, after), classes, strict=True))
            ]
            return sum(n for _, n in of), sum(count * n for count, n in of)

        kinds = (ZERO, LOW, ENOUGH)
        helped = [share(ZERO, after) for after in (LOW, ENOUGH)]
        lost = [share(before, ZERO) for before in (LOW, ENOUGH)]
        return RecallRow(
            name,
            *share(),
            {kind: share(before=kind) for kind in kinds} if self.known else None,
            {kind: share(after=kind) for kind in kinds},
            _sum(helped) if self.known else None,
            _sum(lost) if self.known else None,
        )


def _sum(shares: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(queries for queries, _ in shares), sum(asked for _, asked in shares)


def recall_values(row: RecallRow) -> dict[str, Any]:
    """Returns a row as JSON-able values."""

    def share(of: tuple[int, int] | None) -> dict[str, int] | None:
        return None if of is None else {"queries": of[0], "asked": of[1]}

    sides = {
        when: None if of is None else {kind: share(one) for kind, one in of.items()}
        for when, of in (("before", row.before), ("after", row.after))
    }
    whole = {"traffic": row.name, "queries": row.queries, "asked": row.asked}
    return whole | sides | {"helped": share(row.helped), "lost": share(row.lost)}
