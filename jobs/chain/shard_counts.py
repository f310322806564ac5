"""The counts of one shard, as in its manifest: a job's balances and closing table are sums of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from jobs.chain.chosen import COUNT
from jobs.chain.guard_counts import guard_counts
from jobs.chain.selection_counts import further_texts, not_selected, selection_counts
from jobs.tables import LOST, NOTES
from rewriters.lengths import longer_cores
from rewriters.reasons import GUARDED


def one_arm_counts(table: pa.Table, tables: Mapping[str, pa.Table], planned: int) -> Counter[str]:
    """Returns the counts of the texts of a job of one arm.

    Args:
        table: the block.
        tables: its stored tables.
        planned: number of planned strategies.
    """
    errors = tables["errors"].select(["query_id", "stage", "component", "reason"]).to_pylist()
    failures = [error for error in errors if error["reason"] not in NOTES]
    counts: Counter[str] = Counter()
    counts["planned"] = planned * table.num_rows
    further = further_texts(tables["rewrites"])
    counts["further_texts"] = sum(further.values())
    counts["not_selected"] = not_selected(tables, planned)
    counts.update({f"further_texts/{strategy}": n for strategy, n in further.items()})
    counts.update(selection_counts(tables))
    counts["rewrite_errors"] = sum(error["stage"] == "rewrite" for error in failures)
    counts["guarded"] = sum(error["stage"] == "rewrite" and error["reason"] in GUARDED for error in errors)
    counts["longer_cores"] = longer_cores(*(tables["rewrites"].column(n).to_pylist() for n in ("query_id", "strategy", "text")))
    for row in tables["rewrites"].group_by(["strategy", "parsed_as"]).aggregate([([], "count_all")]).to_pylist():
        counts[f"rung/{row['strategy']}/{row['parsed_as']}"] += row["count_all"]
    counts.update(guard_counts(table, tables["rewrites"]))
    chosen = table.column("chosen").combine_chunks().flatten()
    counts.update(f"{COUNT}/{strategy}" for strategy in chosen.field("strategy").to_pylist())
    return counts


def loss_counts(tables: Mapping[str, pa.Table]) -> Counter[str]:
    """Returns the counts of a shard's errors, of the queries that failed, and of requests whose answers were lost.

    Args:
        tables: with the stored tables `errors` and `costs` of the shard.
    """
    errors = tables["errors"].select(["query_id", "stage", "component", "reason"]).to_pylist()
    counts: Counter[str] = Counter()
    counts["failed_queries"] = len({error["query_id"] for error in errors if error["reason"] not in NOTES})
    counts["lost_requests"] = sum(
        cost["requests"] for cost in tables["costs"].select(["error", "requests"]).to_pylist() if cost["error"] == LOST
    )
    for error in errors:
        counts[f"error/{error['stage']}/{error['component'] or ''}/{error['reason']}"] += 1
    for _, stage, reason in {(error["query_id"], error["stage"], error["reason"]) for error in errors}:
        counts[f"error_queries/{stage}/{reason}"] += 1  # one answer may fail several strategies
    return counts
