"""What the choice of a step is worth: each fold's queries are measured by the step that the others alone choose.

The mean of the step that was best on all queries is too high, by 2/3 of a standard error where no step has a true effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jobs.measure.evaluate.intervals import Floats
from jobs.tune.folds import Numbers


def chosen_values(values: Floats, folds: Numbers, clusters: Numbers, choose: Callable[[Floats, Numbers], int]) -> Floats:
    """Returns the value of each query by the step that is chosen without its fold, shape (queries,).

    Args:
        values: Of each step and query, each of a query that had no part in what the step has learnt.
        folds: Of each query.
        clusters: Of each query.
        choose: Returns a step, from values of some queries and their clusters.
    """
    found = np.empty(len(folds))
    for fold in np.unique(folds):
        inside = folds == fold
        found[inside] = values[choose(values[:, ~inside], clusters[~inside])][inside]
    return found
