"""Notes on a comparison: what its figures include, leave out and assume."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jobs.measure.compare.clusters import SIMILARITY
from jobs.measure.compare.difference import GRID, PART, QUESTIONS, SAMPLES, Comparison, Difference
from jobs.measure.compare.significance import ALPHA, DRAWS
from jobs.measure.evaluate.evaluate import FEW_QUERIES
from jobs.measure.evaluate.intervals import LEVEL
from jobs.measure.evaluate.looked import MARK
from jobs.terminal.formats import figure


def comparison_notes(comparison: Comparison) -> list[str]:
    """Returns the notes on a comparison with its differences, a sentence each; the one reason where nothing is measured."""
    if comparison.warning is not None:
        return [f"warning: {comparison.warning}"]
    return [
        *looked_notes(comparison),
        *named_notes(comparison),
        *_counted(comparison),
        *_tested(comparison),
        *_judged(comparison),
        *_bounds(comparison),
    ]


def looked_notes(comparison: Comparison) -> list[str]:
    """Returns how deep the measures looked whose lists were cut, the arms with the same cut together."""
    frame = comparison.frame
    of: dict[tuple[str, str], list[Difference]] = {}
    for one in comparison.differences:
        if one.looked is not None:
            of.setdefault((one.measure, str(one.looked)), []).append(one)
    notes = []
    for (measure, words), found in of.items():
        arms = "every arm" if len(found) == len(frame.arms) else and_more([one.arm for one in found])
        most = max(one.looked.keys for one in found if one.looked is not None)
        keys = "" if most == len(frame.keys) else f" for {most:,} of {len(frame.keys):,} judged"
        notes.append(f"{MARK} {measure} {words}{keys}: {arms}; what stands behind was cut off")
    apart = list(dict.fromkeys(one.measure for one in comparison.differences if one.uneven))
    if apart:
        words = f"lists of the arm and of {comparison.baseline} end at different depths, so it is of the cuts, too"
        notes.append(f"{MARK} at a difference by {' or '.join(apart)}: {words}")
    return notes


def named_notes(comparison: Comparison) -> list[str]:
    """Returns which arms read a part of a joint answer, and which are one system under several names."""
    of: dict[tuple[str, ...], list[str]] = {}
    for arm, strategies in comparison.parts.items():
        of.setdefault(tuple(strategies), []).append(arm)
    notes = [
        f"{PART} {and_more(arms)}: texts are parts of the answers to the joint request for {', '.join(strategies)}; a run of "
        "the arm alone would ask for its own strategies only"
        for strategies, arms in of.items()
    ]
    notes += [
        f"{arm} is {other} under another name: the same system, not tested again" for arm, other in comparison.same_as.items()
    ]
    return notes + [f"{arm} is also {and_more(others)}: one system, one row" for arm, others in comparison.also.items()]


def and_more(names: Sequence[str], most: int = 4) -> str:
    """Returns the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _counted(comparison: Comparison) -> list[str]:
    frame = comparison.frame
    queries = len({query_id for query_id in frame.query_ids if query_id}) + frame.rejected
    left_out = ((frame.missing, "not in the log"), (frame.not_committed, "of queries not committed yet"))
    left = ", ".join(f"{count:,} {where}" for count, where in left_out if count)
    rows = f"{len(frame.keys):,} log rows of " if frame.key == "log_id" else ""
    clusters = f" in {frame.drawn:,} clusters of near-duplicates (words {100 * SIMILARITY:.0f} % alike)"
    notes = [
        f"judged: {rows}{queries:,} distinct queries{clusters if frame.drawn < queries else ''}"
        + (f"; left out: {left}" if left else "")
    ]
    if frame.unknown is not None:
        notes.append(frame.unknown.note)
    zero = [f"{frame.rejected:,} rejected"] if frame.rejected else []
    if frame.failed.any():
        most = int(frame.failed.argmax())
        few = int(frame.failed.min())
        zero.append(f"{few:,} to {frame.failed[most]:,} without results, by arm (most: {frame.arms[most]})")
    return notes + ([f"counted as zero: {', '.join(zero)}"] if zero else [])


def _tested(comparison: Comparison) -> list[str]:
    frame, found = comparison.frame, comparison.differences
    if frame.drawn < 2:
        return ["no interval and no test: it takes two distinct queries"]
    few = "; of so few clusters a rough one" if frame.drawn < FEW_QUERIES else ""
    notes = [
        f"difference: to {comparison.baseline}; {100 * LEVEL:.0f} % interval and p: paired t-test"
        + (f" over clusters{few}" if frame.drawn < len(frame.keys) else few)
    ]
    left_out = {comparison.baseline, *comparison.oracles, *comparison.untested}
    tested = [one for one in found if one.arm not in left_out]
    untested = [one for one in tested if math.isnan(one.p)]
    if untested:
        named = and_more([f"{one.arm} by {one.measure}" for one in untested])
        notes.append(f"no test: every cluster differs by the same, which tells no variance: {named}")
    tested = [one for one in tested if not math.isnan(one.p)]
    apart = sum((one.p < ALPHA) != (one.p_randomised < ALPHA) for one in tested)
    exact = 2**frame.drawn <= DRAWS
    notes.append(
        f"checked by randomisation ({'all' if exact else f'{DRAWS:,}'} sign flips): {apart:,} of {len(tested):,} tests "
        f"come out differently at {ALPHA}"
    )
    sizes = {
        "p_holm": sum(one.p_holm is not None for one in found) // len(frame.measures),
        "q": sum(one.q is not None for one in found) // len(frame.measures),
    }
    if sizes["p_holm"]:
        notes.append(f"p is Holm's, for {sizes['p_holm']:,} arms ({', '.join(QUESTIONS)}), each measure a family of its own")
    if sizes["q"]:
        notes.append(f"q is Benjamini and Hochberg's, for {sizes['q']:,} arms of the {GRID}, each measure a family of its own")
    notes.append(f"equivalent: within {comparison.min_effect:g} of it by two one-sided t-tests at {ALPHA}, unadjusted")
    return notes


def _judged(comparison: Comparison) -> list[str]:
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
        notes.append("oracle arms choose by the judgements: bounds of what choosing can bring, not systems, and not tested")
    samples = [n for n, arm in enumerate(frame.arms) if comparison.families[arm] == SAMPLES or arm == "full"]
    if any(comparison.families[frame.arms[n]] == SAMPLES for n in samples):
        means = frame.values[samples, 0].mean(axis=1)
        notes.append(
            f"noise floor: {frame.measures[0]} of full and {len(samples) - 1} more sample(s) of it lies between "
            f"{figure(float(means.min()))} and {figure(float(means.max()))}"
        )
    return notes
