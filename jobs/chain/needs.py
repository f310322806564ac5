"""Counts the work of a block that each arm needs, and that no other arm does.

Each stage notes in the column `needed` what arms need of it. An arm alone makes its work where its own first stage needs it. So
what another arm's earlier stage has made is work of the arm all the same: `WORK_ELSEWHERE`, at what it has cost there.
"""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from jobs.counts import MADE_WORK, QUANTITIES, WORK, WORK_ALONE, WORK_ELSEWHERE, arm_key
from jobs.tables import unnested


def needed_counts(table: pa.Table) -> Counter[str]:
    """Returns the work in a block that each arm needs, and what only it needs.

    An item counts once for an arm, where it needs it first.
    """
    counts: Counter[str] = Counter()
    needs: Counter[tuple[str, tuple[str, ...]]] = Counter()  # kind and arms -> items: arms share most of what they need
    made_as: dict[str, tuple[str, str]] = {}
    users: dict[str, set[str]] = {}
    order = list(QUANTITIES)
    for need in sorted(unnested(table, "needed")[1].to_pylist(), key=lambda need: order.index(need["quantity"])):
        # a failed request is made again where a later stage needs it
        key = need["key"] if need["answered"] is not False else f"{need['key']}/{need['quantity']}"
        if need["made"] and key not in made_as:
            counts[MADE_WORK.key(need["quantity"], need["component"])] += 1
        first = made_as.setdefault(key, (need["quantity"], need["component"]))
        known = users.setdefault(key, set())
        kind_key = WORK.key(*first) if need["quantity"] == first[0] else WORK_ELSEWHERE.key(need["quantity"], *first)
        needs[kind_key, tuple(arm for arm in need["arms"] if arm not in known)] += 1
        known.update(need["arms"])
    needs.update((WORK_ALONE.key(*made_as[key]), tuple(arms)) for key, arms in users.items() if len(arms) == 1)
    for (kind_key, arms), number in needs.items():
        counts.update({arm_key(arm, kind_key): number for arm in arms})
    return counts


def requests_before(table: pa.Table) -> list[dict[str, bool]]:
    """Returns the requests that earlier stages have made, row by row, by their keys, and whether each was answered."""
    rows, needs = unnested(table, "needed")
    before: list[dict[str, bool]] = [{} for _ in range(table.num_rows)]
    are_requests = pc.is_valid(needs.field("answered"))
    columns = (needs.field(name).filter(are_requests).to_pylist() for name in ("key", "answered"))
    for row, key, answered in zip(rows[are_requests.to_numpy(zero_copy_only=False)].tolist(), *columns, strict=True):
        before[row][key] = before[row].get(key, False) or answered
    return before
