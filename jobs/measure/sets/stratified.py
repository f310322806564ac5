"""Tests of the mean over several data sets: pure functions of arrays, many series at a time.

**On these sets** (`stratified_test`): what is tested is the figure that tables show, the mean over sets of the mean difference
on each. The sets are strata: their queries are drawn independently of each other, so that the variance of the mean over S sets
is the sum of the sets' variances over S^2, with Satterthwaite's degrees of freedom. Of two sets it is Welch's t-test of one's
differences against the other's with the sign turned; of one set the paired t-test. `stratified_sums` gives the randomisation
test its weights. It holds for any number of sets, and says nothing of sets that were not measured.

**On sets like these** (`signed_rank_p`): a set is one draw, and Wilcoxon's signed-rank test asks whether differences are above
zero on most sets (Demsar, JMLR 2006). With fewer than six sets its least p is above .05 whatever the figures are (2 / 2^5 =
.0625), and the variance between sets, which a mixed model with sets as a random effect would need, rests on as few draws. So
there is no such test of fewer sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.measure.arrays import Floats, Numbers
from jobs.measure.significance import LEVEL, TIE, PairedTest, cluster_sums, randomised_p

LEAST_SETS = 6
"""Fewer sets cannot have a two-sided signed-rank test with a p below .05."""


@dataclass(frozen=True)
class StratifiedTest:
    """Means over sets of several series, their intervals and the t-test against zero; NaN where a set has no variance.

    As in `PairedTest`: with fewer than two clusters in a set, or where all clusters of a set differ by the same, but not by 0.
    """

    mean: Floats
    """(series,): over sets, each with the same weight."""
    error: Floats
    """(series,): standard error of that mean."""
    low: Floats
    """(series,): lower end of the interval at `LEVEL`."""
    high: Floats
    p: Floats
    """(series,): two-sided; 1 where no key of any set differs."""
    freedom: Floats
    """(series,): Satterthwaite's degrees of freedom."""


def stratified_test(parts: Sequence[PairedTest]) -> StratifiedTest:
    """Returns the test of the mean over sets.

    Args:
        parts: of each set the test of the same series.
    """
    from scipy import stats

    count = len(parts)
    mean = np.mean([one.mean for one in parts], axis=0)
    variances = np.square([one.error for one in parts]) / count**2
    each = np.array([one.freedom for one in parts])
    with np.errstate(divide="ignore", invalid="ignore"):
        total = variances.sum(axis=0)
        freedom = np.where(total > 0, total**2 / (variances**2 / each).sum(axis=0), each.sum(axis=0))
        error = np.sqrt(total)
        t = np.where((error <= TIE) & (np.abs(mean) <= TIE), 0.0, mean / error)
    freedom[np.isnan(total)] = np.nan
    reach = stats.t.ppf((1 + LEVEL) / 2, freedom) * error
    return StratifiedTest(mean, error, mean - reach, mean + reach, 2 * stats.t.sf(np.abs(t), freedom), freedom)


def stratified_equivalence_p(test: StratifiedTest, margin: float) -> Floats:
    """Returns (series,): the greater p of two one-sided t-tests, that the mean over sets is above -margin and below margin."""
    from scipy import stats

    with np.errstate(divide="ignore", invalid="ignore"):
        above = stats.t.sf((test.mean + margin) / test.error, test.freedom)
        below = stats.t.cdf((test.mean - margin) / test.error, test.freedom)
    greater: Floats = np.maximum(above, below)
    return greater


def stratified_sums(parts: Sequence[tuple[Floats, Numbers]]) -> Floats:
    """Returns (series, clusters of all sets): what each cluster adds to the mean over sets, for the randomisation test.

    Args:
        parts: of each set (series, keys) differences and (keys,) numbers of clusters.
    """
    return np.concatenate(
        [cluster_sums(series, clusters) / (series.shape[1] * len(parts)) for series, clusters in parts], axis=1
    )


def heterogeneity_p(parts: Sequence[PairedTest]) -> Floats:
    """Returns (series,): Cochran's Q test that the difference is the same on all sets (Biometrics 1954).

    NaN of one set, and where a set has no variance: then its weight would be without bound.
    """
    from scipy import stats

    means, errors = np.array([one.mean for one in parts]), np.array([one.error for one in parts])
    unknown = np.isnan(errors).any(axis=0) | (errors <= TIE).any(axis=0)
    if len(parts) < 2:
        return np.full(means.shape[1], np.nan)
    weights = 1 / np.square(np.where(errors > TIE, errors, 1.0))
    centre = (weights * means).sum(axis=0) / weights.sum(axis=0)
    q = (weights * (means - centre) ** 2).sum(axis=0)
    found: Floats = np.where(unknown, np.nan, stats.chi2.sf(q, len(parts) - 1))
    return found


def signed_rank_p(differences: Floats) -> Floats:
    """Returns (series,): two-sided p of Wilcoxon's signed-rank test over sets, exact to 13 sets; NaN of fewer than six.

    Sets without a difference are dropped before ranks are given, as Wilcoxon does, and ties share the mean of their ranks; the
    distribution is that of the signs of these ranks.

    Args:
        differences: (series, sets).
    """
    from scipy import stats

    found = np.full(len(differences), np.nan)
    for place, row in enumerate(differences):
        kept = row[np.abs(row) > TIE]
        if len(kept) >= LEAST_SETS:
            found[place] = randomised_p((np.sign(kept) * stats.rankdata(np.abs(kept)))[None])[0]
    return found


def mean_ranks(means: Floats) -> Floats:
    """Returns (arms,): the mean over sets of each arm's rank, 1 is best; equal means share a rank (Demsar, JMLR 2006).

    Args:
        means: (arms, sets).
    """
    from scipy import stats

    ranks: Floats = stats.rankdata(-np.round(means, 9), axis=0).mean(axis=1)
    return ranks
