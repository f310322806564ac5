"""Notes on a comparison: what its figures include, leave out and assume."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from jobs.measure.compare.corrections import GRID, QUESTIONS, SAMPLES
from jobs.measure.compare.difference import PART, Comparison
from jobs.measure.frame import Frame
from jobs.measure.notes import (
    interval_notes,
    interval_words,
    judge_notes,
    judged_note,
    zero_notes,
)
from jobs.measure.significance import ALPHA, DRAWS, POWER
from jobs.terminal.formats import and_more, figure


def comparison_notes(comparison: Comparison) -> list[str]:
    """Returns the notes on a comparison with its differences, a sentence each; the one reason where nothing is measured."""
    if comparison.warning is not None:
        return [f"warning: {comparison.warning}"]
    return [
        *judge_notes(comparison.frame.judge),
        *comparison.frame.left_out,
        *_zeros(comparison.frame),
        *named_notes(comparison),
        *baseline_notes(comparison),
        *_counted(comparison),
        *_tested(comparison),
        *unjudged_notes(comparison),
        *_bounds(comparison),
    ]


def named_notes(comparison: Comparison) -> list[str]:
    """Returns which arms read a part of a joint answer, and which are one system under several names."""
    of: dict[tuple[str, ...], list[str]] = {}
    for arm, strategies in comparison.parts.items():
        of.setdefault(tuple(strategies), []).append(arm)
    notes = [
        f"{PART} {and_more(arms)}: texts are parts of the answers to the joint request for {', '.join(strategies)}; a "
        "run of the arm alone would ask for its own strategies only"
        for strategies, arms in of.items()
    ]
    notes += [
        f"{arm} is {other} under another name: the same system, not tested again" for arm, other in comparison.same_as.items()
    ]
    also = comparison.also.items()
    return notes + [f"{arm} is also {and_more(others)}: one system, one row" for arm, others in also]


def baseline_notes(comparison: Comparison) -> list[str]:
    """Returns which arms are compared with which baseline, where there are several."""
    of = comparison.of_baselines
    if len(of) < 2:
        return []
    return [f"compared with {base}: {and_more(arms)}" for base, arms in of.items() if arms]


def _zeros(frame: Frame) -> list[str]:
    """Returns which measures tell nothing."""
    zeros = [name for place, name in enumerate(frame.measures) if not frame.values[:, place].any()]
    return [f"{', '.join(zeros)}: 0 for every query in every arm, which says nothing of their differences"] if zeros else []


def _counted(comparison: Comparison) -> list[str]:
    frame = comparison.frame
    left_out = (frame.missing, "not in the log"), (frame.not_committed, "of queries not committed yet")
    notes = [judged_note(frame.key, len(frame.keys), frame.distinct, *left_out, clusters=frame.drawn, gold=frame.gold)]
    return notes + ([] if frame.unknown is None else [frame.unknown.note]) + zero_notes_of(frame)


def zero_notes_of(frame: Frame) -> list[str]:
    """Returns which keys count as zero, and of which arms."""
    most = int(frame.failed.argmax())
    what = "an answer" if frame.answers else "results"
    by_arm = f"to {frame.failed[most]:,} without {what}, by arm (most: {frame.arms[most]})"
    failed = [f"{frame.failed.min():,} {by_arm}"] if frame.failed.any() else []
    return zero_notes((frame.rejected, "rejected"), more=failed)


def _tested(comparison: Comparison) -> list[str]:
    frame, found = comparison.frame, comparison.differences
    left_out = comparison.oracles | comparison.untested
    tested = [one for one in found if one.arm not in left_out and one.arm != one.baseline]
    alike = [f"{one.arm} by {one.measure}" for one in tested if math.isnan(one.p)]
    notes = interval_notes(f"to {comparison.against}; {interval_words()} and p", frame.drawn, len(frame.keys), alike)
    if frame.drawn < 2:
        return notes
    tested = [one for one in tested if not math.isnan(one.p)]
    apart = sum((one.p < ALPHA) != (one.p_randomised < ALPHA) for one in tested)
    exact = 2**frame.drawn <= DRAWS
    notes.append(
        f"checked by randomisation ({'all' if exact else f'{DRAWS:,}'} sign flips): {apart:,} of {len(tested):,} tests "
        f"come out differently at {ALPHA}"
    )
    corrected = comparison.pairs or found
    by_holm, by_rate = (
        sum(getattr(one, name) is not None for one in corrected) // len(frame.measures) for name in ("p_holm", "q")
    )
    own = "each measure a family of its own"
    if by_holm:
        what = f"pairs of arms ({', '.join(QUESTIONS)})" if comparison.pairs else f"arms ({', '.join(QUESTIONS)})"
        notes.append(f"p is Holm's, for {by_holm:,} {what}, {own}")
    if by_rate:
        what = f"pairs with an arm of the {GRID}" if comparison.pairs else f"arms of the {GRID}"
        notes.append(f"q is Benjamini and Hochberg's, for {by_rate:,} {what}, {own}")
    notes += detectable_notes(comparison)
    notes.append(f"equivalent: within {comparison.min_effect:g} of it by two one-sided t-tests at {ALPHA}, unadjusted")
    return notes


def detectable_notes(comparison: Comparison) -> list[str]:
    """Returns from which to which smallest difference the arms' tests by the first measure can show."""
    first = comparison.frame.measures[0]
    own = [one for one in comparison.differences if one.measure == first]
    return seen_notes(first, {one.arm: one.detectable for one in own if one.detectable is not None})


def seen_notes(measure: str, sizes: Mapping[str, float]) -> list[str]:
    """Returns from which to which smallest difference in a measure tests can show; `sizes`: arm -> that of its test."""
    if not sizes:
        return []
    least, most = (pick(sizes, key=lambda arm: sizes[arm]) for pick in (min, max))
    span = f"{figure(sizes[least])} ({least})" + (f" to {figure(sizes[most])} ({most})" if len(sizes) > 1 else "")
    power = f"a power of {100 * POWER:.0f} % at {ALPHA:g} over the number of comparisons"
    return [f"smallest difference in {measure} that these queries show, with {power}: {span}"]


def unjudged_notes(comparison: Comparison) -> list[str]:
    """Returns how much of the arms' first results nobody judged."""
    frame = comparison.frame
    known = [n for n in range(len(frame.arms)) if not math.isnan(frame.unjudged[n])]
    if not known:
        return []
    least, most = (known[int(pick(frame.unjudged[known]))] for pick in (np.argmin, np.argmax))
    shares = f"{100 * frame.unjudged[least]:.1f} % ({frame.arms[least]})"
    if frame.unjudged[most] > frame.unjudged[least]:
        shares += f" to {100 * frame.unjudged[most]:.1f} % ({frame.arms[most]})"
    return [f"not judged, so not relevant: {shares} of the first {frame.depth:,} results; condensed means leave them out"]


def _bounds(comparison: Comparison) -> list[str]:
    frame, notes = comparison.frame, []
    if comparison.oracles:
        by = "gold answers" if frame.gold else "judgements"
        notes.append(f"oracle arms choose by the {by}: bounds of what choosing can bring, not systems, and not tested")
    samples = [n for n, arm in enumerate(frame.arms) if comparison.families[arm] == SAMPLES or arm == "full"]
    if any(comparison.families[frame.arms[n]] == SAMPLES for n in samples):
        means = frame.values[samples, 0].mean(axis=1)
        notes.append(
            f"noise floor: {frame.measures[0]} of full and {len(samples) - 1} more sample(s) of it lies between "
            f"{figure(float(means.min()))} and {figure(float(means.max()))}"
        )
    return notes
