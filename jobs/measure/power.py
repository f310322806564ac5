"""The smallest effect that a comparison can show, from its own variance: what a test that found nothing would have missed."""

from __future__ import annotations

import numpy as np

from jobs.measure.arrays import Floats
from jobs.measure.significance import ALPHA, POWER

_STEPS = 60  # of the bisection: 2**-60 of its range


def detectable(error: Floats, freedom: Floats, tests: int = 1) -> list[float | None]:
    """Returns the smallest true mean differences that two-sided t-tests find with a power of `POWER`.

    By the noncentral t distribution with the errors and degrees of freedom at hand (for independent keys the power of the
    paired t-test as in Cohen 1988). The level is `ALPHA` over the number of tests: the strictest step of Holm's and of the
    Benjamini-Hochberg method, so that such a difference is found with this power whatever the other tests say.

    Args:
        error: (series,), standard errors of the means; NaN: not known.
        freedom: (series,), degrees of freedom.
        tests: that are corrected together.

    Returns:
        The differences; None where the error is not known, or is zero, so that there is no variance to tell by.
    """
    from scipy import stats

    known = np.isfinite(error) & (error > 0) & (freedom > 0)
    found: list[float | None] = [None] * len(error)
    if not known.any():
        return found
    free = freedom[known]
    critical = stats.t.isf(ALPHA / max(1, tests) / 2, free)

    def power(shift: Floats) -> Floats:
        # the other tail is NaN in scipy where it is smaller than a float
        far: Floats = np.nan_to_num(stats.nct.cdf(-critical, free, shift))
        return np.asarray(stats.nct.sf(critical, free, shift) + far)

    low, high = np.zeros_like(free), critical + 1.0
    while (short := power(high) < POWER).any():
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = power(middle) >= POWER
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    for place, size in zip(np.flatnonzero(known), (high * error[known]).tolist(), strict=True):
        found[int(place)] = size
    return found
