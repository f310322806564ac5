"""Counts of what the guards found in the texts of each arm, as a run of that arm counts them.

Near-duplicates are left out: whether a text has an earlier one depends on the other strategies of an arm, and arms share texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.chain.arms.shared_work import Answer, Reading
from jobs.chain.chosen import COUNT, NOT_CHOSEN, is_unchosen
from jobs.chain.drift import DRIFT, Drifted, counts_as_drift
from jobs.chain.guard_counts import FLAG
from jobs.chain.search_texts import Text
from rewriters.guards.guards import NEAR_DUPLICATE
from rewriters.strategy import searched_as_one


def flag_counts(
    rewrites: Sequence[Sequence[Mapping[str, Any]]],
    reading: Reading,
    answer: Answer,
    far: Drifted,
    chosen: Sequence[Text] | None = None,
) -> Counter[str]:
    """Returns `arm/<arm>/guard/<strategy>/<flag>` -> texts of a block; and `arm/<arm>/chosen/<strategy>` -> queries.

    Args:
        rewrites: Of all readings, row by row.
        reading: That of the arm.
        answer: The arm.
        far: The texts that have drifted, by the vectors of an arm that weighs lists by cosines.
        chosen: The text of each query that the arm fuses; None: it fuses all.
    """
    counts: Counter[str] = Counter()
    far = far if answer.fuse.redundancy == "cosine" else set()
    counts.update(f"arm/{answer.arm}/{COUNT}/{text.strategy}" for text in chosen or ())
    as_one = searched_as_one(reading.rewriting.pool)
    if not reading.engines:
        return counts
    for row, of_row in enumerate(rewrites):
        for one in of_row:
            if one["arm"] != reading.name or one["strategy"] not in answer.strategies:
                continue
            flags = [*(one["guards"] or ()), *([DRIFT] if counts_as_drift(one, row, far) else ())]
            flags += [NOT_CHOSEN] if chosen is not None and is_unchosen(one, chosen[row], as_one) else []
            flags = [flag for flag in flags if flag != NEAR_DUPLICATE]
            counts.update(f"arm/{answer.arm}/{FLAG}/{one['strategy']}/{flag}" for flag in flags)
    return counts
