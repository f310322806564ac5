"""The mean difference of two settings over queries, with interval and test, and which settings are as good as the best.

The test is that of ablations (`jobs.measure.compare.significance.paired_test`): near-duplicate queries are drawn together,
and where each cluster is one query it is scipy's `ttest_rel`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jobs.measure.compare.significance import paired_test
from jobs.measure.evaluate.intervals import LEVEL, Floats


class Gap(NamedTuple):
    """A mean difference: its standard error, the ends of its 95 % interval, and p of the paired t-test."""

    mean: float
    error: float
    low: float
    high: float
    p: float

    @property
    def won(self) -> bool:
        """Returns whether the difference is above 0 by more than chance."""
        return self.low > 0


def gap(differences: Floats, clusters: npt.NDArray[np.int64]) -> Gap:
    """Returns the mean of the differences with its error, interval and p; NaN with fewer than two clusters.

    Args:
        differences: Of each query, shape (queries,).
        clusters: Of each query, from 0, shape (queries,).
    """
    used = np.unique(clusters, return_inverse=True)[1]
    if np.ptp(differences) <= 1e-12 and np.ptp(used):  # every query moved alike, above all by nothing: rounding has no p
        mean = float(differences.mean())
        unknown = math.nan  # a variance of 0 in a sample says that the measure is coarse, not that there is none
        return Gap(0.0, 0.0, 0.0, 0.0, 1.0) if abs(mean) <= 1e-12 else Gap(mean, unknown, unknown, unknown, unknown)
    test = paired_test(differences[None], used)
    return Gap(*(float(value[0]) for value in (test.mean, test.error, test.low, test.high, test.p)))


def gap_of_the_best(differences: Floats, clusters: npt.NDArray[np.int64], of: int) -> Gap:
    """Returns `gap` of an option that was chosen as the best of several by these values: interval and p by Bonferroni's method.

    Where each fold's queries are measured by the option that the others chose, the mean has no bias, but the test found a
    difference in 6 of 100 simulated cases without one, as without a correction: folds share choices.

    Args:
        differences: Of each query, shape (queries,).
        clusters: Of each query, from 0, shape (queries,).
        of: Number of options.
    """
    from scipy import stats

    found, used = gap(differences, clusters), np.unique(clusters, return_inverse=True)[1]
    if not found.error > 0:
        return found
    reach = found.error * float(stats.t.ppf(1 - (1 - LEVEL) / 2 / of, paired_test(differences[None], used).freedom))
    return Gap(found.mean, found.error, found.mean - reach, found.mean + reach, min(1.0, of * found.p))


def as_good_as_the_best(values: Floats, clusters: npt.NDArray[np.int64], errors: float = 1.0) -> int:
    """Returns the first option that is within a standard error of the best: the simplest, where the simplest come first.

    The one-standard-error rule of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984; the error is
    that of the difference to the best, since all options are measured on the same queries.

    Args:
        values: Of each option and query, shape (options, queries).
        clusters: Of each query, from 0, shape (queries,).
        errors: How many standard errors.
    """
    best = values[int(np.argmax(values.mean(axis=1)))]
    for place, option in enumerate(values):
        lost = gap(best - option, clusters)
        # Where a single query differs, the difference is one error, whatever rounding makes of it: that is not within.
        if lost.mean < errors * lost.error * (1 - 1e-9) or lost.mean <= 1e-12:
            return place
    raise AssertionError("the best is as good as itself")
