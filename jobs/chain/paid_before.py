"""The requests of earlier stages for the queries of a block: they are their cost, and no later stage pays for them again.

An arm alone pays where its own first stage asks. So what an earlier stage of other arms has paid for is work of an arm without
that stage all the same, as it is in a run of it: counted as `WorkElsewhere`, at what it has cost there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from jobs.chain.completions import CompletionRecord
from jobs.chain.engines import asked_key
from jobs.chain.journal import Key
from jobs.chain.tables import ASKED
from jobs.chain.users import need_counts
from jobs.counts import MadeWork, WorkAlone, WorkElsewhere, arm_key

ASKED_COLUMNS = ("asked_in_rounds", "asked")
"""Those of blocks with requests that later stages do not pay for, in the order of the stages."""
Needed = Mapping[str, Mapping[Key, Collection[str]]]
"""Component, as `component@model` -> requests -> the arms that need their answers."""


@dataclass(frozen=True)
class PaidRequest:
    """A request that an earlier stage has had answered.

    Attributes:
        quantity: Of the work that it was there.
        component: Under which it was paid for, as `component@model`.
        arms: That needed it in any earlier stage.
    """

    quantity: str
    component: str
    arms: frozenset[str]


class PaidBefore:
    """The requests of a block that earlier stages have made."""

    def __init__(self, table: pa.Table) -> None:
        self._rows: list[dict[str, bool]] = [{} for _ in range(table.num_rows)]
        self._known: dict[str, PaidRequest] = {}
        for column in (name for name in ASKED_COLUMNS if name in table.column_names):
            for row, of_row in enumerate(table.column(column).to_pylist()):
                for asked in of_row:
                    key, arms, answered = asked["key"], frozenset(asked["arms"]), asked["component"] is not None
                    self._rows[row][key] = self._rows[row].get(key, False) or answered
                    if answered:
                        known = self._known.setdefault(key, PaidRequest(asked["quantity"], asked["component"], arms))
                        self._known[key] = replace(known, arms=known.arms | arms)

    def of_row(self, row: int) -> Mapping[str, bool]:
        """Returns the requests of a query, as `asked_key` has them, and whether each was answered."""
        return self._rows[row]

    def counts(self, quantity: str, needed: Needed, is_reused: Callable[[Key], bool]) -> Counter[str]:
        """Returns the work of each arm in a stage: what it needs there, and what of that earlier stages have made for others.

        Args:
            quantity: Of the stage's work.
            needed: In the stage.
            is_reused: Returns whether an answer was taken from the store.
        """
        new: dict[str, dict[Key, Collection[str]]] = {}
        counts: Counter[str] = Counter()
        for component, requests in needed.items():
            for key, arms in requests.items():
                known = self._known.get(asked_key(key))
                if known is None:
                    new.setdefault(component, {})[key] = arms
                    continue
                others = set(arms) - known.arms
                counts.update(arm_key(arm, WorkElsewhere(quantity, known.quantity, known.component).key) for arm in others)
                if others and len(known.arms) == 1:  # it is no longer what that arm alone needs
                    (arm,) = known.arms
                    counts[arm_key(arm, WorkAlone(known.quantity, known.component).key)] -= 1
        for component, requests in new.items():
            counts[MadeWork(quantity, component).key] += sum(not is_reused(key) for key in requests)
        counts.update(need_counts(quantity, new))
        return counts


def paid_requests(query_ids: Sequence[str], quantity: str, needed: Needed, records: Mapping[Key, CompletionRecord]) -> pa.Array:
    """Returns the column of requests that a stage has made, for those after it; failed ones have no component.

    Args:
        query_ids: Of the block.
        quantity: Of the stage's work.
        needed: In the stage.
        records: Requests -> their answers.
    """
    row_of = {query_id: row for row, query_id in enumerate(query_ids)}
    paid: list[list[dict[str, Any]]] = [[] for _ in query_ids]
    for component, requests in needed.items():
        for key, arms in requests.items():
            paid_as = component if records[key].completion.error_reason is None else None
            asked = {"key": asked_key(key), "quantity": quantity, "component": paid_as, "arms": sorted(arms)}
            paid[row_of[key.query_id]].append(asked)
    return pa.array(paid, pa.list_(ASKED))
