"""Counts of the stages in a block, by the keys of `jobs/counts.py`: for the display, and for the manifest."""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.counts import (
    ERROR_QUERIES,
    ERRORS,
    FAILED_BY_OUTAGES,
    FLAGGED_TEXTS,
    FURTHER_TEXTS,
    LEFT_OUT_TEXTS,
    READ_TEXTS,
    SELECTED_QUERIES,
    STRATEGIES_OF_QUERIES,
)
from jobs.tables import LOST, NOTES, OUTAGES, unnested, with_first
from rewriters.reasons import GUARDED

_FIRST = 5  # ids of failed queries that the log has for a shard, stage and reason; errors/ has all


def with_counts(table: pa.Table, counts: Mapping[str, int]) -> pa.Table:
    """Returns a block with counts in its first row, for the manifest."""
    return with_first(table, "counts", [{"name": name, "count": n} for name, n in counts.items()])


class BlockErrors:
    """The errors of a block."""

    def __init__(self, table: pa.Table) -> None:
        rows, flat = unnested(table, "errors")
        columns = (flat.field(name).to_pylist() for name in ("stage", "component", "reason"))
        self._table = table
        self._errors: list[tuple[int, str, str | None, str]] = list(zip(rows.tolist(), *columns, strict=True))

    def counts(self) -> Counter[str]:
        """Returns the errors, and `failed_queries`, which is 0 if it is missing."""
        counts: Counter[str] = Counter()
        for _, stage, component, reason in self._errors:
            counts[ERRORS.key(stage, component or "", reason)] += 1
        counts["failed_queries"] = len({row for row, *_, reason in self._errors if reason not in NOTES})
        return +counts

    def first_failed(self) -> dict[str, list[str]]:
        """Returns `<stage>/<reason>` -> the ids of the first queries that failed so; notes are left out."""
        ids = self._table.column("query_id").to_pylist()
        named: dict[str, dict[str, None]] = {}
        for row, stage, _, reason in self._errors:
            if reason not in NOTES and len(first := named.setdefault(f"{stage}/{reason}", {})) < _FIRST:
                first[ids[row]] = None
        return {key: list(found) for key, found in sorted(named.items())}

    def losses(self) -> Counter[str]:
        """Returns the counts of a shard's errors, of the queries that failed, and of requests whose answers were lost."""
        counts, costs = self.counts(), unnested(self._table, "costs")[1]
        counts["failed_queries"] += 0  # also where none failed
        counts["lost_requests"] = pc.sum(costs.field("requests").filter(pc.equal(costs.field("error"), LOST))).as_py() or 0
        for _, stage, reason in {(row, stage, reason) for row, stage, _, reason in self._errors}:
            counts[ERROR_QUERIES.key(stage, reason)] += 1
        reasons: dict[int, set[str]] = {}
        for row, _, _, reason in self._errors:
            if reason not in NOTES:
                reasons.setdefault(row, set()).add(reason)
        if away := sum(of_query <= OUTAGES for of_query in reasons.values()):
            counts[FAILED_BY_OUTAGES] = away
        return counts

    def reasons(self, stage: str) -> list[str]:
        """Returns the reasons of the errors of a stage."""
        return [reason for _, at, _, reason in self._errors if at == stage]


def added_failures(given: pa.Table, table: pa.Table) -> dict[str, int]:
    """Returns the counts of errors that a stage has added to a block."""
    before = BlockErrors(given).counts() if "errors" in given.column_names else Counter()
    return dict(BlockErrors(table).counts() - before)


def one_arm_counts(table: pa.Table, tables: Mapping[str, pa.Table], errors: BlockErrors, planned: int) -> Counter[str]:
    """Returns the counts of the texts of a job of one arm; `planned`: its strategies."""
    rewrites, selections = tables["rewrites"], tables["selections"]
    of_rewriting = errors.reasons("rewrite")
    counts: Counter[str] = Counter()
    counts["planned"] = planned * table.num_rows
    texts = Counter(rewrites.column("strategy").to_pylist())
    further = texts - Counter(rewrites.group_by(["query_id", "strategy"]).aggregate([]).column("strategy").to_pylist())
    counts["further_texts"] = further.total()
    counts.update({FURTHER_TEXTS.key(strategy): n for strategy, n in further.items()})
    counts["rewrite_errors"] = sum(reason not in NOTES for reason in of_rewriting)
    counts["guarded"] = sum(reason in GUARDED for reason in of_rewriting)
    for row in rewrites.group_by(["strategy", "parsed_as"]).aggregate([([], "count_all")]).to_pylist():
        counts[READ_TEXTS.key(row["strategy"], row["parsed_as"])] += row["count_all"]
    counts["not_selected"] = 0
    for row in selections.select(["query_type", "strategies"]).to_pylist():
        query_type, chosen = row["query_type"] or "", row["strategies"]
        counts["not_selected"] += planned - len(chosen)
        counts.update(SELECTED_QUERIES.key(query_type, strategy) for strategy in chosen)
        counts[STRATEGIES_OF_QUERIES.key(query_type, len(chosen))] += 1
    rows, flags = unnested(rewrites, "guards")
    strategies = rewrites.column("strategy").combine_chunks().take(pa.array(rows))
    for (strategy, flag), n in Counter(zip(strategies.to_pylist(), flags.to_pylist(), strict=True)).items():
        counts[FLAGGED_TEXTS.key(strategy, flag)] = n
    for left_out in unnested(table, "guarded")[1].to_pylist():
        counts[LEFT_OUT_TEXTS.key(left_out["strategy"], left_out["guard"])] += left_out["texts"]
    return counts
