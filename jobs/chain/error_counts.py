"""Counts of errors per stage and block, with the keys of the manifests, for the display before the commit; who failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.tables import NOTES
from rewriters.reasons import FELL_BACK

_FIRST = 5  # ids of failed queries that the log has for a shard, stage and reason; errors/ has all


def failure_counts(table: pa.Table, stage: str) -> dict[str, int]:
    """Returns the number of errors of a stage in a block by `error/<stage>/<component>/<reason>`, and `failed_queries`.

    `failed_queries` leaves out queries that failed in an earlier stage, so that the sum over the stages counts a query once.
    """
    lists = table.column("errors").combine_chunks()
    flat = lists.flatten()
    if not len(flat):
        return {}
    names = ("stage", "component", "reason")
    rows = pc.list_parent_indices(lists).to_pylist()
    counts: Counter[str] = Counter()
    first: dict[int, str] = {}  # row -> the stage of its first failure
    for row, at, component, reason in zip(rows, *(flat.field(name).to_pylist() for name in names), strict=True):
        if reason not in NOTES:
            first.setdefault(row, at)
        if at == stage:
            counts[f"error/{at}/{component or ''}/{reason}"] += 1
    if failed := sum(at == stage for at in first.values()):
        counts["failed_queries"] = failed
    return dict(counts)


def added_failures(given: pa.Table, table: pa.Table, stage: str) -> dict[str, int]:
    """Returns the `failure_counts` of what was added to a block; an earlier stage may have the same name in its errors.

    Args:
        given: the input block of the stage.
        table: its output block.
        stage: its name in errors.
    """
    before = failure_counts(given, stage) if "errors" in given.column_names else {}
    return dict(Counter(failure_counts(table, stage)) - Counter(before))


def first_failed(table: pa.Table) -> dict[str, list[str]]:
    """Returns `<stage>/<reason>` -> the ids of the first queries of a block that failed so; notes are left out."""
    lists = table.column("errors").combine_chunks()
    flat = lists.flatten()
    ids = table.column("query_id").combine_chunks().take(pc.list_parent_indices(lists))
    named: dict[str, dict[str, None]] = {}
    for query_id, stage, reason in zip(
        *(one.to_pylist() for one in (ids, flat.field("stage"), flat.field("reason"))), strict=True
    ):
        if reason not in NOTES and len(found := named.setdefault(f"{stage}/{reason}", {})) < _FIRST:
            found[query_id] = None
    return {key: list(found) for key, found in sorted(named.items())}


def by_reason(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of failures by reason, the most frequent first; notes are left out."""
    reasons: Counter[str] = Counter()
    for key, n in counts.items():
        reason = key.rsplit("/", 1)[-1]
        if key.startswith("error/") and reason not in NOTES:
            reasons[reason] += n
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def fallbacks(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns strategy -> the number of queries for which the original stands in for an answer that cannot be used."""
    start, end = "error/rewrite/", f"/{FELL_BACK}"
    return {key[len(start) : -len(end)]: n for key, n in sorted(counts.items()) if key.startswith(start) and key.endswith(end)}


def many_fallbacks(counts: Mapping[str, int], limit: float) -> dict[str, str]:
    """Returns strategy -> a sentence where the original stands in for more than `limits.error_rate` of the queries."""
    asked = counts.get("queries", 0)
    return {
        strategy: f"for {n:,} of {asked:,} queries the answer of {strategy} cannot be used and the original is searched in its "
        f"place{': more than half of them' if 2 * n > asked else ''}; errors/ has why (fell_back)"
        for strategy, n in fallbacks(counts).items()
        if n > limit * asked
    }
