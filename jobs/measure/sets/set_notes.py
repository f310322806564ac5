"""What is to be said of a comparison over sets: what was left out, what was tested, and what that does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobs.measure.compare.comparison_notes import (
    baseline_notes,
    cut_notes,
    named_notes,
    seed_notes,
    seen_notes,
    unjudged_notes,
    zero_notes_of,
)
from jobs.measure.compare.corrections import GRID, QUESTIONS
from jobs.measure.compare.difference import Comparison
from jobs.measure.notes import counts_in_words, judge_notes
from jobs.measure.sets.stratified import LEAST_SETS
from jobs.measure.significance import ALPHA
from jobs.terminal.formats import and_more

if TYPE_CHECKING:
    from jobs.measure.sets.over_sets import OverSets, SetsComparison


def over_sets_notes(found: SetsComparison, sets: Mapping[str, Comparison], without: Sequence[str]) -> list[str]:
    """Returns the notes, a sentence each.

    Args:
        found: of the measured sets.
        sets: those with a comparison, whether something was measured or not.
        without: those that have none, as without judgements.
    """
    notes = [f"warning: {name} is not measured, and is in no mean: {one.warning}" for name, one in sets.items()
             if name not in found.sets]  # fmt: skip
    why = "nothing judges it in this way, or its comparison failed: its own page says which"
    notes += [f"warning: {name} is not measured, and is in no mean: {why}" for name in without]
    if not found.sets:
        return notes
    every = list(dict.fromkeys(arm for one in found.sets.values() for arm in one.frame.arms))
    if apart := [arm for arm in every if arm not in found.arms]:
        notes.append(f"not in the table, since some sets have no arm of that name: {and_more(apart)}")
    measures = list(dict.fromkeys(name for one in found.sets.values() for name in one.frame.measures))
    if apart := [name for name in measures if name not in found.measures]:
        notes.append(f"not in the table, since some sets are not measured by it: {and_more(apart)}")
    keys = [f"{name} {len(one.frame.keys):,}{_left_out(one)}" for name, one in found.sets.items()]
    notes.append(f"judged keys: {', '.join(keys)}; each set has the same weight in a mean")
    return notes + _of_sets(found) + baseline_notes(found) + _tested(found)


def _left_out(one: Comparison) -> str:
    words = counts_in_words((one.frame.missing, "not in the log"), (one.frame.not_committed, "of queries not committed yet"))
    return f" ({words})" if words else ""


def _of_sets(found: SetsComparison) -> list[str]:
    """Returns what is to be said of the sets' own figures, once where all sets have the same."""
    by_words: dict[str, list[str]] = {}
    for name, one in found.sets.items():
        unknown = [] if one.frame.unknown is None else [one.frame.unknown.note]
        of_frame = [*judge_notes(one.frame.judge), *unknown, *zero_notes_of(one.frame)]
        for words in (*of_frame, *cut_notes(one), *one.substituted, *named_notes(one), *seed_notes(one), *unjudged_notes(one)):
            by_words.setdefault(words, []).append(name)
    return [words if len(names) == len(found.sets) else f"{words} ({', '.join(names)})" for words, names in by_words.items()]


def _tested(found: SetsComparison) -> list[str]:
    count = len(found.sets)
    tests = [one for one in found.over.values() if one.corrected is not None]
    notes = [
        f"over sets: difference to {found.against} of the means over sets, its 95 % interval and p by a t-test with the sets "
        "as strata: of these sets, not of sets that were not measured"
    ]
    apart = sum((one.p < ALPHA) != (one.p_randomised < ALPHA) for one in tests)
    if single := [name for name, one in found.sets.items() if one.frame.drawn < 2]:
        each = "whose queries are near-duplicates of each other" if len(single) == 1 else "each of near-duplicates"
        notes.append(f"no test over sets: {and_more(single)}, {each}, tells no variance")
    elif alike := sorted({one.arm for one in found.over.values() if _asked(found, one) and math.isnan(one.p)}):
        notes.append(f"no test over sets, since on a set every cluster differs by the same: {and_more(alike)}")
    notes.append(f"checked by randomisation within sets: {apart:,} of {len(tests):,} tests come out differently at {ALPHA}")
    own, paired, corrected = "each measure a family of its own", found.pairs, found.pairs or found.over.values()
    if any(one.p_holm is not None for one in corrected):
        of_arms = f"all pairs of arms of {', '.join(QUESTIONS)}" if paired else f"the arms of {', '.join(QUESTIONS)}"
        notes.append(f"p is Holm's over {of_arms}, {own}")
    if any(one.q is not None for one in corrected):
        of_grid = f"all pairs with an arm of the {GRID}" if paired else f"the arms of the {GRID}"
        notes.append(f"q is Benjamini and Hochberg's over {of_grid}, {own}")
    first = [one for one in found.over.values() if one.measure == found.first]
    notes += seen_notes(found.first, {one.arm: one.detectable for one in first if one.detectable is not None})
    if 1 < count < LEAST_SETS:
        notes.append(
            f"no test over sets as draws: of {count:,} its p is {2 / 2**count:.2g} at least; it takes {LEAST_SETS} sets or more"
        )
    moved = sorted({one.arm for one in tests if not math.isnan(one.p_heterogeneity) and one.p_heterogeneity < ALPHA})
    if moved:
        notes.append(
            f"differs between sets by more than chance (Cochran's Q, p < {ALPHA}, uncorrected): {and_more(moved)}; their mean "
            "over sets hides that"
        )
    return notes


def _asked(found: SetsComparison, one: OverSets) -> bool:
    """Returns whether a difference is one that is to be tested."""
    return one.arm != one.baseline and one.arm not in found.oracles and one.arm not in found.untested
