"""The queries that an arm helped and harmed most, with what it searched for beside the original."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jobs.compare.report.left_out import WHOLE
from jobs.compare.significance import TIE
from jobs.compare.standing import Standing
from jobs.report.reading import database
from jobs.run.folder import RunFolder

_REWRITES = """
SELECT query_id, strategy, position, text, arm FROM read_parquet($files)
WHERE query_id IN (SELECT unnest($ids)) ORDER BY query_id, strategy, position, arm
"""


@dataclass
class ExtremeQuery:
    """A key whose value moved. `values`: measure -> baseline's and arm's."""

    query_id: str
    query: str | None
    log_count: int
    gain: float
    values: dict[str, tuple[float, float]]
    rewrites: list[tuple[str, str]] = field(default_factory=list)
    """Name and text of each; the name has the arm where several arms have texts of their own."""


@dataclass(frozen=True)
class Extremes:
    """The queries, the greatest gain first."""

    arm: str
    queries: list[ExtremeQuery]
    gained: int
    lost: int


def extremes(run: RunFolder, found: Standing, arm: str, count: int, *, texts: bool) -> Extremes:
    """Returns the queries with the greatest gains and losses of an arm over the baseline, half of each.

    Args:
        run: of the ablation.
        found: how the arms stand.
        arm: whose gains they are.
        count: the most queries.
        texts: False leaves out query and rewrites.
    """
    frame = found.comparison.frame
    after, before = (frame.values[frame.arms.index(name)] for name in (arm, found.comparison.baseline))
    gains = after[0] - before[0]
    order = [int(key) for key in np.argsort(-gains, kind="stable")]
    gained = [key for key in order if gains[key] > TIE]
    lost = [key for key in order if gains[key] < -TIE]
    half = count // 2
    best = gained[: max(half, count - len(lost))]
    worst = lost[max(0, len(lost) - (count - len(best))) :]
    queries = [
        ExtremeQuery(
            frame.query_ids[key] or "rejected log row",
            frame.queries[key] if texts else None,
            int(frame.counts[key]),
            float(gains[key]),
            {name: (float(before[n, key]), float(after[n, key])) for n, name in enumerate(frame.measures)},
        )
        for key in [*best, *worst]
    ]
    if texts and queries:
        _fill_rewrites(run, arm, queries)
    return Extremes(arm, queries, len(gained), len(lost))


def _fill_rewrites(run: RunFolder, arm: str, queries: list[ExtremeQuery]) -> None:
    """Fills the rewrites that an arm searched: its own, else those of the config itself that it shares.

    A text is stored under the first arm that has it. Of an arm that changes how rewrites are made and has none of its own, it
    is not known whose it shares, so all are shown with their arms.
    """
    files = run.tables.get("rewrites")
    if not files:
        return
    described: dict[str, Any] = next((one for one in run.record["ablation"]["arms"] if one["name"] == arm), {})
    strategies = described.get("strategies")
    with database() as connection:
        ids = sorted({one.query_id for one in queries})
        rows = connection.execute(_REWRITES, {"files": files, "ids": ids}).fetchall()
    order = {name: place for place, name in enumerate(strategies or ())}
    changed = any(
        key.startswith("rewrite.") and key not in ("rewrite.strategies", "rewrite.select")
        for key in described.get("changes", {})
    )
    by_query: dict[str, dict[str, list[tuple[str, int, str]]]] = {}
    for query_id, strategy, position, text, of in rows:
        if strategies is None or strategy in order:
            by_query.setdefault(query_id, {}).setdefault(of, []).append((strategy, position, text))
    for one in queries:
        of_arms = by_query.get(one.query_id, {})
        shared = [] if changed else [WHOLE]
        whose = next(([name] for name in [arm, *shared] if name in of_arms), sorted(of_arms))
        for name in whose:
            texts = sorted(of_arms[name], key=lambda row: (order.get(row[0], len(order)), row[0], row[1]))
            for strategy, position, text in texts:
                several = sum(row[0] == strategy for row in texts) > 1
                words = f"{strategy} {position}" if several else strategy
                one.rewrites.append((words if len(whose) == 1 else f"{words}, arm {name}", text))
