"""How long queries took and requests to LLMs were in flight: by request and model, and by the type of the query.

Of a long run only as many shards are read as hold about `MOST_QUERIES` queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from jobs.pages.report.figures import Figures
from jobs.runs.reading import database, files, spread
from jobs.tables import ELAPSED

MOST_QUERIES = 50_000
_LATENCIES = "FROM rows_by_name($costs)"
_PERCENTILES = "count(*), quantile_cont(latency, [0.5, 0.95, 0.99])"
_TIMED = "stage = 'rewrite' AND latency IS NOT NULL"


@dataclass(frozen=True)
class Latency:
    """The seconds in flight of a group of requests."""

    name: str
    requests: int
    percentiles: list[float]
    """The median, the 95th and the 99th."""


@dataclass(frozen=True)
class Latencies:
    """Seconds in flight of the requests of `queries` of `of` committed queries."""

    elapsed: Latency | None
    """Of whole queries, from the first stage to the last; None: an earlier version did not measure it."""
    by_request: list[Latency]
    by_type: list[Latency]
    """Empty where queries have no type."""
    unknown: int
    """Requests that are not timed."""
    queries: int
    of: int


def latencies(figures: Figures) -> Latencies | None:
    """Returns the seconds of whole queries, and those in flight of the requests; None where none is timed."""
    run = figures.run
    chosen = run.manifests
    if figures.queries > MOST_QUERIES:
        chosen = spread(chosen, max(1, MOST_QUERIES // max(manifest.counts["queries"] for manifest in chosen)))
    costs, selections = files(run, "costs", chosen), files(run, "selections", chosen)
    if not costs:
        return None
    with database() as connection:
        by_request = _groups(
            connection,
            f"SELECT component || coalesce(' (' || model || ')', '') AS name, {_PERCENTILES} {_LATENCIES} "
            f"WHERE {_TIMED} GROUP BY name ORDER BY name",
            costs=costs,
        )
        whole = f"SELECT stage, {_PERCENTILES} {_LATENCIES} WHERE stage = '{ELAPSED}' GROUP BY stage"
        elapsed = next(iter(_groups(connection, whole, costs=costs)), None)
        if not by_request and elapsed is None:
            return None
        query = f"SELECT count(*) {_LATENCIES} WHERE stage = 'rewrite' AND requests > 0 AND latency IS NULL"
        unknown = connection.execute(query, {"costs": costs}).fetchall()[0][0]
        by_type: list[Latency] = []
        if selections and any(figures.selected_by_type):
            by_type = _groups(
                connection,
                f"SELECT query_type AS name, {_PERCENTILES} {_LATENCIES} "
                "JOIN (SELECT query_id, query_type FROM rows_of($selections)) USING (query_id) "
                f"WHERE {_TIMED} AND query_type IS NOT NULL GROUP BY name ORDER BY name",
                costs=costs,
                selections=selections,
            )
    return Latencies(elapsed, by_request, by_type, unknown, sum(one.counts["queries"] for one in chosen), figures.queries)


def _groups(connection: duckdb.DuckDBPyConnection, query: str, **values: list[str]) -> list[Latency]:
    return [Latency(*row) for row in connection.execute(query, values).fetchall()]
