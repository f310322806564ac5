"""Counts of what the guards found in the texts of each arm, as a run of that arm counts them.

Near-duplicates are left out: whether a text has an earlier one depends on the other strategies of an arm, and arms share texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.chain.ablate.shared_work import Answer, Reading
from jobs.chain.drift import DRIFT, Drifted, counts_as_drift
from jobs.chain.guard_counts import FLAG
from rewriters.guards.guards import NEAR_DUPLICATE


def flag_counts(
    rewrites: Sequence[Sequence[Mapping[str, Any]]], reading: Reading, answer: Answer, far: Drifted
) -> Counter[str]:
    """Returns `arm/<arm>/guard/<strategy>/<flag>` -> number of texts of a block.

    Args:
        rewrites: Of all readings, row by row.
        reading: That of the arm.
        answer: The arm.
        far: The texts that have drifted, by the vectors of an arm that weighs lists by cosines.
    """
    counts: Counter[str] = Counter()
    far = far if answer.fuse.redundancy == "cosine" else set()
    if not reading.engines:
        return counts
    for row, of_row in enumerate(rewrites):
        for one in of_row:
            if one["arm"] != reading.name or one["strategy"] not in answer.strategies:
                continue
            flags = [*(one["guards"] or ()), *([DRIFT] if counts_as_drift(one, row, far) else ())]
            flags = [flag for flag in flags if flag != NEAR_DUPLICATE]
            counts.update(f"arm/{answer.arm}/{FLAG}/{one['strategy']}/{flag}" for flag in flags)
    return counts
