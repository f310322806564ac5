"""The gates that are shares: queries that failed, traffic that is covered, traffic whose first document changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.config.publish import PublishGates
from jobs.publish.export import ExportRecord
from jobs.publish.gates.gate import GateResult
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database
from jobs.terminal.formats import percent

_CHANGED = """
WITH firsts AS ({firsts})
SELECT count(*), coalesce(sum(log_count), 0), coalesce(sum(log_count) FILTER (firsts.doc_id IS DISTINCT FROM old.docs[1]), 0)
FROM (SELECT query_id, log_count FROM rows_of($queries)) AS queries
JOIN rows_of($old) AS old ON old.key = queries.query_id LEFT JOIN firsts ON firsts.query_id = queries.query_id
"""
_FIRSTS = "SELECT query_id, doc_id FROM rows_of($results) WHERE rank = 1"
_NO_FIRSTS = "SELECT '' AS query_id, '' AS doc_id WHERE false"


def error_rate(run: RunFolder, gates: PublishGates) -> GateResult:
    """Returns what the share of queries with a failure says."""
    queries, failed = run.counts.get("queries", 0), run.counts.get("failed_queries", 0)
    share = failed / queries if queries else 0.0
    said = f"{percent(share)} of the queries failed ({failed:,} of {queries:,})"
    return _held("error_rate", share, gates.error_rate, said, most=True)


def coverage(run: RunFolder, record: ExportRecord, gates: PublishGates) -> GateResult:
    """Returns what the share of the log's traffic says whose query has a row with rewrites or hits.

    Rejected rows of the log are traffic without a row: as often as they were asked, where the plan knows it, else once each.
    """
    counts, planned = record.counts, run.plan.counts
    traffic = counts["traffic"] + planned.get("rejected_traffic", planned.get("rejected", 0))
    share = counts["served_traffic"] / traffic if traffic else 0.0
    said = (
        f"{percent(share)} of the log's traffic has a row with rewrites or hits ({counts['served_traffic']:,} of {traffic:,})"
    )
    return _held("coverage", share, gates.coverage, said, most=False)


def changed_first(run: RunFolder, gates: PublishGates, before: str | None, served: Path | None) -> GateResult:
    """Returns what the share of the traffic says whose first document is another than in the promoted version.

    Args:
        run: Of the version.
        gates: The bounds.
        before: The promoted version; None: nothing is promoted.
        served: A local file of what it serves (`jobs.publish.target.SERVED`); None: it is gone, or was exported without rows.
    """
    name, bound = "changed_first", gates.changed_first
    if before is None:
        return GateResult(name, True, None, "nothing is promoted that it could be compared with")
    if served is None:
        return GateResult(name, True, None, f"{before} is gone, or was exported without rows that it could be compared with")
    files: dict[str, Any] = {"old": str(served), "queries": run.tables.get("queries")}
    if not files["queries"]:
        return GateResult(name, True, None, "the run has no queries that could be compared")
    if results := run.tables.get("results"):
        files["results"] = results
    with database() as connection:
        found = connection.execute(_CHANGED.format(firsts=_FIRSTS if results else _NO_FIRSTS), files).fetchone()
    shared, traffic, changed = (int(value) for value in found or (0, 0, 0))
    if not traffic:
        return GateResult(name, True, None, f"no query is in {before}, too")
    said = f"{percent(changed / traffic)} of the traffic of {shared:,} queries has another first document than in {before}"
    return _held(name, changed / traffic, bound, said, most=True)


def _held(name: str, share: float, bound: float | None, said: str, *, most: bool) -> GateResult:
    if bound is None:
        return GateResult(name, True, share, f"{said}, no bound")
    passed = share <= bound if most else share >= bound
    return GateResult(name, passed, share, f"{said}, at {'most' if most else 'least'} {percent(bound)}")
