"""The comparison of an ablation's arms with their baseline: means, differences, tests, slices, and what is to be said of them.

Families of tests, each measure on its own: the arms with a question of their own (those that are always there, `ablate.arms`
and the subsets) against the baseline, adjusted by Holm's method; and the grid, which is explored, by false discovery rates.
Samples (noise), oracle arms (bounds that the judgements chose) and further names of an arm test nothing and are in no family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster.errors import ConfigError, nearest
from jobs.config.settings import EvaluateSettings
from jobs.log.judgements import Judgements
from jobs.measure.arrays import Floats
from jobs.measure.compare.comparison_notes import comparison_notes
from jobs.measure.compare.difference import GRID, QUESTIONS, Comparison, Difference
from jobs.measure.compare.slices import Slice, slices_of
from jobs.measure.frame import JUDGED_LISTS, Frame, arms_of, measure
from jobs.measure.judged.noise import with_noise
from jobs.measure.judged.relevance import judged_relevance
from jobs.measure.significance import (
    TIE,
    cluster_sums,
    effects,
    equivalence_p,
    false_discovery_rates,
    holm,
    needed_keys,
    paired_test,
    randomised_p,
)
from jobs.measure.unknown import unknown_documents
from jobs.runs.folder import RunFolder

__all__ = ["Comparison", "Difference", "Slice", "compare", "differences"]


def compare(run: RunFolder, judgements: Judgements, settings: EvaluateSettings) -> Comparison:
    """Returns the comparison of an ablation's arms.

    Raises:
        ConfigError: a measure or the baseline does not exist, or files of the ablation cannot be read.
    """
    names = [arm["name"] for arm in arms_of(run)]
    baseline = baseline_of(run, settings)
    if baseline not in names:
        raise ConfigError("config-value", f"evaluate.baseline: {baseline!r} is no arm{nearest(baseline, names)}")
    frame = with_noise(run, measure(run, judgements, settings.measures))
    frame = replace(frame, unknown=unknown_documents(run, judgements))
    return compare_frame(run, frame, settings, baseline)


def compare_judged_lists(run: RunFolder, settings: EvaluateSettings) -> Comparison | None:
    """Returns the comparison of the arms by an LLM's grades of their results, which stands beside one by people's judgements.

    None where no LLM judges results.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    judgements = judged_relevance(run)
    if judgements is None:
        return None
    measures = judgements.measures(settings.measures)
    one = compare(run, judgements, settings.model_copy(update={"measures": measures}))
    return replace(one, frame=replace(one.frame, kind=JUDGED_LISTS))


def baseline_of(run: RunFolder, settings: EvaluateSettings) -> str:
    """Returns the arm that the others are compared with, by the name that it has among the arms."""
    also = {arm["name"]: arm["also"] for arm in arms_of(run) if arm.get("also")}
    return next((arm for arm, others in also.items() if settings.baseline in others), settings.baseline)


def compare_frame(
    run: RunFolder, frame: Frame, settings: EvaluateSettings, baseline: str, notes: Sequence[str] = ()
) -> Comparison:
    """Returns the comparison of the arms of a frame, by any measures.

    Args:
        run: the ablation.
        frame: of some of its arms.
        settings: the smallest difference that matters, and the slices.
        baseline: one of the arms.
        notes: what else is to be said, before all.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    arms = [arm for arm in arms_of(run) if arm["name"] in frame.arms]
    also = {arm["name"]: arm["also"] for arm in arms if arm.get("also")}
    slices, said = slices_of(run, frame, settings.slices, baseline) if frame.keys else ([], [])
    families = {arm["name"]: arm["family"] for arm in arms}
    oracles = frozenset(arm["name"] for arm in arms if arm.get("members"))
    parts = {arm["name"]: arm["reads_part_of"] for arm in arms if arm.get("reads_part_of")}
    same_as = {arm["name"]: arm["same_as"] for arm in arms if arm.get("same_as")}
    one = Comparison(
        frame, baseline, settings.min_effect, families, oracles, (), tuple(slices), (), parts, same_as, also
    )  # fmt: skip
    untested = oracles | one.untested
    found = differences(frame, baseline, settings.min_effect, families, untested) if frame.keys else []
    one = replace(one, differences=tuple(found))
    return replace(one, notes=(*notes, *comparison_notes(one), *said))


def differences(
    frame: Frame, baseline: str, min_effect: float, families: Mapping[str, str], untested: frozenset[str]
) -> list[Difference]:
    """Returns the differences to the baseline, by arm and measure.

    Args:
        frame: with at least one key.
        baseline: an arm of it.
        min_effect: the smallest difference that matters.
        families: arm -> family.
        untested: arms outside the families: oracles, and further names of an arm.
    """
    by_measure = [_of_measure(frame, place, baseline, min_effect, families, untested) for place in range(len(frame.measures))]
    return [by_measure[measure][arm] for arm in range(len(frame.arms)) for measure in range(len(frame.measures))]


def _of_measure(
    frame: Frame, place: int, baseline: str, min_effect: float, families: Mapping[str, str], untested: frozenset[str]
) -> list[Difference]:
    base, keys = frame.arms.index(baseline), len(frame.keys)
    values, condensed = frame.values[:, place], frame.condensed[:, place]
    series = values - values[base]
    test, by_traffic = paired_test(series, frame.clusters), paired_test(series, frame.clusters, frame.weights)
    known = test.freedom > 0
    randomised = randomised_p(cluster_sums(series, frame.clusters)) if known else test.p
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = needed_keys(np.nan_to_num(test.mean / (test.error * math.sqrt(keys)), posinf=np.inf))
    in_question, in_grid = (
        [n for n in _members(frame, baseline, wanted, families, untested) if known] for wanted in (QUESTIONS, (GRID,))
    )
    p_holm, q = _adjusted(test.p, in_question, holm), _adjusted(test.p, in_grid, false_discovery_rates)
    means, condensed_means, weighted = values.mean(axis=1), condensed.mean(axis=1), values @ frame.weights
    wins, losses = (series > TIE).sum(axis=1), (series < -TIE).sum(axis=1)
    columns: dict[str, Sequence[Any] | Floats] = {
        "mean": means,
        "weighted_mean": weighted,
        "condensed_mean": condensed_means,
        "difference": test.mean,
        "low": test.low,
        "high": test.high,
        "weighted_difference": weighted - weighted[base],
        "weighted_low": by_traffic.low,
        "weighted_high": by_traffic.high,
        "weighted_p": by_traffic.p,
        "condensed_difference": condensed_means - condensed_means[base],
        "effect": effects(series),
        "p": test.p,
        "p_randomised": randomised,
        "p_equivalent": equivalence_p(test, min_effect),
        "wins": wins,
        "ties": keys - wins - losses,
        "losses": losses,
    }
    noise = frame.noise[place] if frame.noise else 0.0
    plain = {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    return [
        Difference(
            arm,
            frame.measures[place],
            **{name: column[n] for name, column in plain.items()},
            p_holm=p_holm.get(n),
            q=q.get(n),
            needed=needed[n],
            looked=frame.looked(n, place),
            uneven=frame.uneven(n, base, place),
            within_noise=n != base and abs(plain["difference"][n]) < noise,
        )
        for n, arm in enumerate(frame.arms)
    ]


def _members(
    frame: Frame, baseline: str, wanted: Sequence[str], families: Mapping[str, str], untested: frozenset[str]
) -> list[int]:
    """Returns the places of the arms of some families that are tested."""
    left_out = {baseline, *untested}
    return [n for n, arm in enumerate(frame.arms) if families[arm] in wanted and arm not in left_out]


def _adjusted(p: Floats, chosen: Sequence[int], method: Callable[[Floats], Floats]) -> dict[int, float]:
    """Returns the corrected p of the places that have one: where all keys differ by the same, there is no test."""
    corrected = zip(chosen, method(p[list(chosen)]).tolist(), strict=True)
    return {place: one for place, one in corrected if not np.isnan(one)}
