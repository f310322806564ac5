"""Arms that were answered several times, each time with a seed of its own: their means, and tests that count the seeds.

An arm's value of a key is the mean over its seeds, and the series of its differences is tested over keys (`significance.py`).
An LLM samples each query's answer by itself, so what one seed adds to one key is independent of what it adds to another. It is
a part of the variance between keys, which the mean over S seeds makes S times smaller, and the paired test counts it.

It does not count what a seed does to all keys alike: one that is good or bad as a whole, as where a server batches otherwise.
Keys and seeds are crossed random factors there, as subjects and words in Clark (The language-as-fixed-effect fallacy, 1973),
and the mean has a second variance. With d_s the mean difference of seed s over all keys, it is the variance of the d_s over S,
less what keys add to it: the mean of the squared (cluster-robust) errors of the series (seed s - mean over seeds), over S - 1.
It is not below zero. The error of the mean is the root of both variances together, with Satterthwaite's degrees of freedom
(1946). Where seeds differ by chance alone the second variance is mostly zero or small, and the test is the paired one or a
little more careful. A single seed tells nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from jobs.measure.arrays import Floats, Numbers
from jobs.measure.significance import TIE, PairedTest, paired_test, with_intervals
from jobs.runs.folder import RunFolder


class Seeded(NamedTuple):
    """The answers of an arm: their names among the stored arms, the arm's own first, and the values of each."""

    arms: tuple[str, ...]
    values: Floats
    """(seeds, measures, keys)."""


def repeats_of(run: RunFolder) -> dict[str, list[str]]:
    """Returns arm -> the stored arms that are its answers, itself first, of the arms that have several.

    An answer that is another arm's, since both are one system, is that arm's.
    """
    arms: Sequence[Mapping[str, Any]] = run.record.get("ablation", {}).get("arms", ())
    stored = {name: arm["name"] for arm in arms for name in (arm["name"], *(arm.get("also") or ()))}
    found: dict[str, list[str]] = {}
    for arm in arms:
        name, own = arm["name"], [arm["name"]]
        while (again := stored.get(f"{name} #{len(own) + 1}")) is not None and arm.get("seeds", 1) > len(own):
            own.append(again)
        if len(own) > 1:
            found[name] = own
    return found


def averaged(names: Sequence[str], repeats: Mapping[str, Sequence[str]], values: Floats) -> dict[str, Seeded]:
    """Makes the values of arms the means over their seeds; returns those of each seed.

    Args:
        names: of the arms in `values`.
        repeats: of `repeats_of`.
        values: (arms, measures, keys); changed in place.
    """
    place = {name: n for n, name in enumerate(names)}
    found = {
        arm: Seeded(tuple(own), values[[place[one] for one in own]])
        for arm, own in repeats.items()
        if all(one in place for one in own)
    }
    for arm, seeded in found.items():
        values[place[arm]] = seeded.values.mean(axis=0)
    return found


def with_seeds(
    test: PairedTest,
    differing: Mapping[int, Sequence[Floats]],
    clusters: Numbers,
    weights: Floats | None = None,
) -> PairedTest:
    """Returns a test of mean differences whose errors count what seeds do to all keys alike.

    Args:
        test: of the means over seeds.
        differing: place of a series -> (seeds, keys) of each arm, or of both by seed, whose seeds vary on their own.
        clusters: (keys,), numbers of clusters.
        weights: (keys,), with a sum of 1; None: all keys count alike.
    """
    error, freedom = test.error.copy(), test.freedom.copy()
    for place, parts in differing.items():
        if not freedom[place] or np.isnan(error[place]):
            continue
        between, within = error[place] ** 2, error[place] ** 4 / freedom[place]
        for values in parts:
            seeds = len(values)
            apart = paired_test(values - values.mean(axis=0), clusters, weights)
            of_means = float(np.var(apart.mean, ddof=1)) / seeds
            of_keys = float((np.nan_to_num(apart.error) ** 2).mean()) / (seeds - 1)
            if of_means - of_keys > TIE**2:
                between += of_means - of_keys
                within += of_means**2 / (seeds - 1) + of_keys**2 / ((seeds - 1) * freedom[place])
        error[place], freedom[place] = np.sqrt(between), between**2 / within if within else freedom[place]
    return with_intervals(replace(test, error=error, freedom=freedom))
