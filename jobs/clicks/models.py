"""Click models: how attractive a document is for a query, once the place at which it was shown is taken out.

Both say it in multiples of the average: 1 is a document that is clicked as often as documents shown there are.

- `position_based` (Chuklin, Markov, de Rijke, Click Models for Web Search, 2015, 3.2 and 4.3): a click is an examined place
  and an attractive document, P(click) = examination(place) x attractiveness(query, document), by expectation maximisation.
  It tells examination from attractiveness by documents that were shown to the same query at several places.
- `coec` (clicks over expected clicks; Zhang and Jones, Comparing click logs and editorial labels for training query
  rewriting, 2007; OpenSearch's search-relevance takes it): clicks divided by those that documents shown at these places get
  on average. It needs no document at two places, but takes what stands first for as good as what stands last: where the
  ranking is good, it calls first documents worse than they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cluster.errors import LogError
from jobs.clicks.interactions import Cells

ClickModel = Literal["pbm", "coec"]
Floats = npt.NDArray[np.float64]

ROUNDS, CLOSE = 2000, 1e-6  # of expectation maximisation: at most so many, until no examination moves by more
PRIOR = 1.0  # impressions of an average document that each pair is given, so that few impressions say little


@dataclass(frozen=True)
class Estimate:
    """What a click model says of the pairs and places."""

    model: ClickModel
    relevance: Floats
    """(pairs,) attractiveness as a multiple of the average; nan where no place of the pair can be compared."""
    examined: Floats
    """(pairs,) impressions, each weighted by the propensity of its place."""
    propensity: Floats
    """(places,) how often a place is examined, relative to the first that can be compared; nan where it cannot be."""
    rounds: int
    converged: bool


def estimate(cells: Cells, model: ClickModel) -> Estimate:
    """Returns what a click model says of cells.

    Raises:
        LogError: `pbm` cannot tell examination from attractiveness.
    """
    return position_based(cells) if model == "pbm" else coec(cells)


def position_based(cells: Cells) -> Estimate:
    """Returns the position-based model of cells, by expectation maximisation.

    Places are comparable if a chain of pairs leads from one to the other, each shown at both; the propensities of all others
    are nan. The first comparable place has propensity 1, since only the product with attractiveness can be seen.

    Raises:
        LogError: no pair was shown at two places.
    """
    comparable = _comparable(cells)
    if comparable.sum() < 2:
        words = "no document of a query was shown at two places, so place cannot be told from relevance"
        raise LogError("log-clicks", f"--model pbm: {words}; take --model coec, or more days of the log")
    use = comparable[cells.rank - 1]
    pair, rank = cells.pair[use], cells.rank[use] - 1
    shown, clicked = cells.shown[use], cells.clicked[use]
    places, pairs = len(comparable), len(cells.pairs)
    first = int(np.argmax(comparable))
    shown_of_pair, shown_at = np.bincount(pair, shown, pairs), np.bincount(rank, shown, places)
    clicks_of_pair, clicks_at = np.bincount(pair, clicked, pairs), np.bincount(rank, clicked, places)
    missed = shown - clicked
    examination = np.ones(places)
    mean = clicked.sum() / shown.sum()
    attraction = np.where(shown_of_pair > 0, (clicks_of_pair + PRIOR * mean) / (shown_of_pair + PRIOR), np.nan)
    examination[comparable] = np.maximum(clicks_at[comparable] / np.maximum(shown_at[comparable], 1), 1e-6)
    examination = examination / examination[first]
    examination = np.minimum(examination, 1 - 1e-6)
    examination[first] = 1.0
    for rounds in range(1, ROUNDS + 1):  # noqa: B007
        both = examination[rank], attraction[pair]
        unclicked = missed / np.maximum(1 - both[0] * both[1], 1e-12)
        # what was not clicked was attractive and not seen, or seen and not attractive
        attractive = clicks_of_pair + np.bincount(pair, unclicked * both[1] * (1 - both[0]), pairs)
        seen = clicks_at + np.bincount(rank, unclicked * both[0] * (1 - both[1]), places)
        mean = float(np.nansum(shown_of_pair * attraction) / shown.sum())
        attraction = np.where(shown_of_pair > 0, (attractive + PRIOR * mean) / (shown_of_pair + PRIOR), np.nan)
        moved = examination.copy()
        moved[comparable] = seen[comparable] / shown_at[comparable]
        moved[first] = 1.0
        step = float(np.max(np.abs(moved - examination)))
        examination = moved
        if step < CLOSE:
            break
    mean = float(np.nansum(shown_of_pair * attraction) / shown.sum())
    propensity = np.where(comparable, examination, np.nan)
    examined = np.bincount(pair, shown * examination[rank], pairs).astype(np.float64)
    return Estimate("pbm", attraction / mean, examined, propensity, rounds, step < CLOSE)


def coec(cells: Cells) -> Estimate:
    """Returns clicks over expected clicks; a place without a click cannot be compared."""
    rank, pairs = cells.rank - 1, len(cells.pairs)
    shown_at, clicks_at = np.bincount(rank, cells.shown), np.bincount(rank, cells.clicked)
    rate = np.divide(clicks_at, shown_at, out=np.zeros(len(shown_at)), where=shown_at > 0)
    expected = np.bincount(cells.pair, cells.shown * rate[rank], pairs)
    clicks = np.bincount(cells.pair, cells.clicked, pairs)
    average = PRIOR * cells.clicked.sum() / cells.shown.sum()
    relevance = np.divide(clicks + average, expected + average, out=np.full(pairs, np.nan), where=expected > 0)
    propensity = np.divide(rate, rate[np.argmax(rate > 0)], out=np.full(len(rate), np.nan), where=rate > 0)
    examined = np.bincount(cells.pair, cells.shown * np.nan_to_num(propensity)[rank], pairs).astype(np.float64)
    return Estimate("coec", relevance, examined, propensity, 1, True)


def _comparable(cells: Cells) -> npt.NDArray[np.bool_]:
    """Returns which places, (places,), can be compared: those of the connected part that was shown most; all have clicks."""
    places, pairs = int(cells.rank.max()), len(cells.pairs)
    clicks = np.bincount(cells.rank - 1, cells.clicked, places)
    use = clicks[cells.rank - 1] > 0
    pair, at = cells.pair[use], cells.rank[use] - 1
    part = np.arange(places)  # the least place that is known to be connected with each
    while True:
        of_pair = np.full(pairs, places)
        np.minimum.at(of_pair, pair, part[at])
        joined = part.copy()
        np.minimum.at(joined, at, of_pair[pair])
        if np.array_equal(joined, part):
            break
        part = joined
    shown = np.bincount(part[at], cells.shown[use], places)
    found: npt.NDArray[np.bool_] = (part == np.argmax(shown)) & (clicks > 0)
    return found
