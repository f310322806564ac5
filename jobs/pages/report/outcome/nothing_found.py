"""The queries for which no list had a hit, those asked most often first."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.counts import ErrorCount
from jobs.measure.query_context import contexts_of
from jobs.pages.report.figures import Figures
from jobs.runs.reading import database, files

_NO_HITS = ErrorCount("fuse", "", "no_hits").key
MOST = 5000  # queries of the page; a row takes some 100 bytes


@dataclass(frozen=True)
class NothingFound:
    """The queries without a hit, and their share of the committed traffic."""

    queries: int
    asked: int
    traffic: int
    """How often all committed queries were asked."""
    listed: list[tuple[str, str, int]]
    """query_id, query, how often it was asked; `MOST` at most."""
    contexts: dict[str, str | None]
    """query_id -> its earlier turns."""

    @property
    def with_turns(self) -> bool:
        """Returns whether some of the listed queries have earlier turns."""
        return any(self.contexts.values())


def nothing_found(figures: Figures) -> NothingFound | None:
    """Returns the queries that find nothing; None where there are none."""
    run = figures.run
    names = files(run, "errors", [one for one in run.manifests if _NO_HITS in one.counts])
    if not names:
        return None
    with database() as connection:
        source = (
            "FROM rows_of($queries) SEMI JOIN "
            "(SELECT DISTINCT query_id FROM rows_of($errors) WHERE stage = 'fuse' AND reason = 'no_hits') USING (query_id)"
        )
        given = {"queries": run.tables["queries"], "errors": names}
        sums = connection.execute(f"SELECT count(*), coalesce(sum(log_count), 0) {source}", given).fetchone()
        every = connection.execute("SELECT coalesce(sum(log_count), 0) FROM rows_of(?)", [run.tables["queries"]]).fetchone()
        assert sums is not None
        assert every is not None
        query = f"SELECT query_id, query, log_count {source} ORDER BY log_count DESC, query_id LIMIT {MOST}"
        listed = connection.execute(query, given).fetchall()
    contexts = contexts_of(run, [query_id for query_id, _, _ in listed])
    return NothingFound(int(sums[0]), int(sums[1]), int(every[0]), listed, contexts)
