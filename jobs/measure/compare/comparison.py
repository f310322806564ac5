"""The comparison of an ablation's arms with their baseline: means, differences, tests, slices, and what is to be said of them.

Each arm is compared with one other, its baseline: all with one, or families of arms with baselines of their own. Families of
tests, each measure on its own: the arms with a question of their own (those that are always there, `ablate.arms` and the
subsets) against their baselines, adjusted by Holm's method; and the grid, which is explored, by false discovery rates. Where
every two arms are compared (`pairs.py`), the corrections are over all pairs.
Samples (noise), oracle arms (bounds that the judgements chose) and further names of an arm test nothing and are in no family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jobs.config.settings import EvaluateSettings
from jobs.job.baselines import arm_baselines, check_pairs
from jobs.log.judgements import Judgements
from jobs.measure.arrays import Floats
from jobs.measure.compare.comparison_notes import comparison_notes
from jobs.measure.compare.corrections import GRID, QUESTIONS, SAMPLES, adjusted, seen_from
from jobs.measure.compare.difference import Comparison, Difference
from jobs.measure.compare.pairs import ArmPair, pair_finder, pairs_of
from jobs.measure.compare.slices import Slice, slices_of
from jobs.measure.frame import JUDGED_LISTS, Frame, arms_of, measure
from jobs.measure.judged.noise import with_noise
from jobs.measure.judged.relevance import judged_relevance
from jobs.measure.significance import (
    TIE,
    cluster_sums,
    effects,
    needed_keys,
    randomised_p,
)
from jobs.measure.unknown import unknown_documents
from jobs.runs.folder import RunFolder

__all__ = ["Comparison", "Difference", "Slice", "compare", "differences"]


def compare(run: RunFolder, judgements: Judgements, settings: EvaluateSettings) -> Comparison:
    """Returns the comparison of an ablation's arms.

    Raises:
        ConfigError: a measure or a baseline does not exist, or files of the ablation cannot be read.
    """
    baselines = baselines_of(run, settings)
    frame = with_noise(run, judgements, measure(run, judgements, settings.measures, stay={*baselines.values()}))
    frame = replace(frame, unknown=unknown_documents(run, judgements))
    return compare_frame(run, frame, settings, baselines)


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
    found = compare(run, judgements, settings.model_copy(update={"measures": measures}))
    return replace(found, frame=replace(found.frame, kind=JUDGED_LISTS))


def baselines_of(run: RunFolder, settings: EvaluateSettings) -> dict[str, str]:
    """Returns arm -> the arm that it is compared with, by the names that they have among the arms.

    Raises:
        ConfigError: a baseline is no arm.
    """
    arms = arms_of(run)
    return arm_baselines(
        settings, [arm["name"] for arm in arms], {other: arm["name"] for arm in arms for other in arm.get("also") or ()}
    )


def compare_frame(
    run: RunFolder, frame: Frame, settings: EvaluateSettings, baselines: Mapping[str, str], notes: Sequence[str] = ()
) -> Comparison:
    """Returns the comparison of the arms of a frame, by any measures.

    Args:
        run: the ablation.
        frame: of some of its arms.
        settings: the smallest difference that matters, the slices, and whether every two arms are compared.
        baselines: arm of the frame -> one of them.
        notes: what else is to be said, before all.

    Raises:
        ConfigError: files of the ablation cannot be read.
    """
    baselines = {arm: baselines[arm] for arm in frame.arms}
    arms = [arm for arm in arms_of(run) if arm["name"] in frame.arms]
    also = {arm["name"]: arm["also"] for arm in arms if arm.get("also")}
    families = {arm["name"]: arm["family"] for arm in arms}
    oracles = frozenset(arm["name"] for arm in arms if arm.get("members"))
    parts = {arm["name"]: arm["reads_part_of"] for arm in arms if arm.get("reads_part_of")}
    same_as = {arm["name"]: arm["same_as"] for arm in arms if arm.get("same_as")}
    baseline = max((arm for arm in frame.arms if baselines[arm] == arm), key=list(baselines.values()).count)
    one = Comparison(
        frame, baseline, settings.min_effect, families, oracles, (), (), (), parts, same_as, also, baselines
    )  # fmt: skip
    if not frame.keys:
        return replace(one, notes=(*notes, *comparison_notes(one)))
    untested = oracles | one.untested
    slices, said = slices_of(run, frame, settings.slices, baselines, untested)
    pairs: list[ArmPair] = []
    if settings.pairs:
        compared = [arm for arm in frame.arms if arm not in {*oracles, *same_as} and families[arm] != SAMPLES]
        check_pairs(settings, len(compared))
        pairs = pairs_of(frame, compared, families, settings.min_effect)
    found = differences(frame, baselines, settings.min_effect, families, untested)
    found = over_pairs(found, pairs, same_as) if pairs else found
    one = replace(one, differences=tuple(found), slices=tuple(slices), pairs=tuple(pairs))
    return replace(one, notes=(*notes, *comparison_notes(one), *said))


def over_pairs(found: Sequence[Difference], pairs: Sequence[ArmPair], same_as: Mapping[str, str]) -> list[Difference]:
    """Returns differences whose corrections are those of their pairs, so that one comparison has one p."""
    pair_of = pair_finder(pairs, same_as)

    def corrected(one: Difference) -> Difference:
        pair = pair_of(one.arm, one.baseline, one.measure)
        if pair is None or (one.p_holm is None and one.q is None):
            return one
        return replace(one, p_holm=pair.p_holm, q=pair.q, detectable=pair.detectable)

    return [corrected(one) for one in found]


def differences(
    frame: Frame, baselines: Mapping[str, str], min_effect: float, families: Mapping[str, str], untested: frozenset[str]
) -> list[Difference]:
    """Returns the differences to the baselines, by arm and measure.

    Args:
        frame: with at least one key.
        baselines: arm -> the arm that it is compared with, itself: with none.
        min_effect: the smallest difference that matters.
        families: arm -> family.
        untested: arms outside the families: oracles, and further names of an arm.
    """
    by_measure = [_of_measure(frame, place, baselines, min_effect, families, untested) for place in range(len(frame.measures))]
    return [by_measure[measure][arm] for arm in range(len(frame.arms)) for measure in range(len(frame.measures))]


def _of_measure(
    frame: Frame, place: int, baselines: Mapping[str, str], min_effect: float, families: Mapping[str, str],
    untested: frozenset[str],
) -> list[Difference]:  # fmt: skip
    number, keys = {arm: n for n, arm in enumerate(frame.arms)}, len(frame.keys)
    base = [number[baselines[arm]] for arm in frame.arms]
    values, condensed = frame.values[:, place], frame.condensed[:, place]
    series, compared = values - values[base], list(enumerate(base))
    test, by_traffic = (frame.difference_test(compared, place, weights=weights) for weights in (None, frame.weights))
    known = bool((test.freedom > 0).all())
    randomised = randomised_p(cluster_sums(series, frame.clusters)) if known else test.p
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = needed_keys(np.nan_to_num(test.mean / (test.error * math.sqrt(keys)), posinf=np.inf))
    tested = [n for n, arm in enumerate(frame.arms) if known and baselines[arm] != arm and arm not in untested]
    in_question, in_grid = ([n for n in tested if families[frame.arms[n]] in wanted] for wanted in (QUESTIONS, (GRID,)))
    p_holm, q = adjusted(test.p, in_question, in_grid)
    seen = seen_from([test], p_holm, q)
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
        "p_equivalent": frame.equivalence_p(test, place, min_effect),
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
            detectable=seen.get(n),
            baseline=baselines[arm],
            within_noise=n != base[n] and abs(plain["difference"][n]) < noise,
        )
        for n, arm in enumerate(frame.arms)
    ]
