"""Confidence intervals of a mean over log rows: a percentile bootstrap that draws whole queries, not rows.

Rows of one query have the same lists, so they are not independent; a query is drawn with all its rows (a cluster
bootstrap), and the mean of a draw is the sum over its rows divided by their number. The method is that of Efron and
Tibshirani, An Introduction to the Bootstrap (1993), chapter 13, on paired differences as Smucker, Allan and Carterette,
A Comparison of Statistical Significance Tests for Information Retrieval Evaluation (CIKM 2007), do it for systems.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 20_070  # arbitrary; fixed, so that repeated evaluations agree
CELLS = 1 << 19  # draws held at a time, some 15 MB; one draw of 100,000 queries at a time took 5 times the CPU, in BLAS

Floats = npt.NDArray[np.float64]


def mean_interval(sums: Floats, sizes: npt.NDArray[np.int64]) -> Floats | None:
    """Returns the confidence interval of the mean at `LEVEL`.

    Args:
        sums: (queries, measures), the sum of a query's values over its rows.
        sizes: (queries,), number of rows of a query, 1 or more.

    Returns:
        (measures, 2): lower and upper end; None for fewer than two queries, whose variance is unknown.
    """
    queries = len(sizes)
    if queries < 2:
        return None
    columns = np.column_stack([sums, sizes]).astype(np.float64)
    generator = np.random.default_rng(SEED)
    rows = max(1, CELLS // queries)
    means = np.empty((RESAMPLES, sums.shape[1]))
    for begin in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - begin)
        drawn = generator.integers(queries, size=(count, queries))
        drawn += np.arange(count)[:, None] * queries
        times = np.bincount(drawn.ravel(), minlength=count * queries).reshape(count, queries)
        totals = times.astype(np.float64) @ columns
        means[begin : begin + count] = totals[:, :-1] / totals[:, -1:]
    tail = (1 - LEVEL) / 2
    ends: Floats = np.quantile(means, [tail, 1 - tail], axis=0).T
    return ends
