"""The rewrites of queries that a run, or an arm of an ablation, has searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import duckdb

from jobs.runs.folder import RunFolder


class SearchedRewrite(NamedTuple):
    """A row of rewrites/."""

    query_id: str
    strategy: str
    position: int
    text: str
    model: str | None
    weight: float


def searched_rewrites(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, query_ids: Sequence[str], arm: str
) -> list[SearchedRewrite]:
    """Returns the rewrites of queries, by query, strategy and position; of an arm those that it searches."""
    files = run.tables.get("rewrites")
    if not files:
        return []
    described = next((one for one in run.record.get("ablation", {}).get("arms", ()) if one["name"] == arm), None)
    given = dict[str, Any](files=files, ids=list(query_ids))
    of_arm = ""
    if described:
        of_arm = " AND arm = $arm AND strategy IN (SELECT unnest($strategies))"
        given |= {"arm": described.get("rewrites_of") or arm, "strategies": list(described.get("strategies", ()))}
    rows = connection.execute(
        f"SELECT {', '.join(SearchedRewrite._fields)} FROM rows_by_name($files)"
        f" WHERE query_id IN (SELECT unnest($ids)){of_arm} ORDER BY query_id, strategy, position",
        given,
    ).fetchall()
    return [SearchedRewrite(*row) for row in rows]
