"""The rewrites of some queries alone: what `try` makes of each before anything is retrieved, all in one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.config.config import Config
from jobs.job.prepare import Ready, leave
from jobs.tables import STORED
from jobs.try_one.stages import LoadedConfig, Phase
from jobs.try_one.trial import NOTHING, Given
from jobs.try_one.unsearched import rewriting_alone


class RewrittenQueries(NamedTuple):
    """Tables with a column `query` before those of the tables of their names in a run; in order of the queries."""

    rewrites: pa.Table
    errors: pa.Table
    costs: pa.Table
    warnings: tuple[str, ...]


def rewritten(
    queries: Sequence[str],
    config: Config,
    config_file: str,
    given: Given = NOTHING,
    report_phase: Phase = str,
    ready: Ready = leave,
) -> RewrittenQueries:
    """Returns the rewrites of the queries; a query that stands twice has its rows twice, and is paid for once.

    Indexes are looked at only where a gate or a strategy reads what the query finds.

    Args:
        queries: their texts.
        config: what they are rewritten by.
        config_file: its name, for messages.
        given: what the log would say of each.
        report_phase: is called with the stage.
        ready: may build indexes that are missing.

    Raises:
        DmqrError: `run` would refuse what the config says of rewriting, or reject a query.
    """
    with LoadedConfig(rewriting_alone(config), config_file, config.name, given, ready) as loaded:
        ids = [loaded.query_id(query) for query in queries]
        found: dict[str, dict[str, Any]] = {}
        if queries:
            found = {row["query_id"]: row for row in loaded.rewrite(queries, report_phase).to_pylist()}
        rewrites, errors, costs = (_rows(name, queries, ids, found) for name in ("rewrites", "errors", "costs"))
        return RewrittenQueries(rewrites, errors, costs, tuple(loaded.warnings))


def _rows(name: str, queries: Sequence[str], ids: Sequence[str], found: dict[str, dict[str, Any]]) -> pa.Table:
    """Returns the nested rows of a column, flat; what was spent on a query that stands twice stands once."""
    schema = pa.schema([("query", pa.string()), *STORED[name]])
    first = set[str]()
    rows = []
    for query, query_id in zip(queries, ids, strict=True):
        if name != "costs" or query_id not in first:
            rows += [{"query": query, "query_id": query_id} | one for one in found[query_id][name]]
        first.add(query_id)
    return pa.Table.from_pylist(rows, schema)
