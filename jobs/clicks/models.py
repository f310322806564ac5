"""Click models: how attractive a document is for a query, once the place at which it was shown is taken out.

Both say it in multiples of the average: 1 is a document that is clicked as often as documents shown there are.

`position_based` (Chuklin, Markov, de Rijke, Click Models for Web Search, 2015, 3.2): a click is an examined place and an
attractive document, P(click) = examination(place) x attractiveness(query, document). Examinations are estimated within pairs:
of the clicks that a pair got in all, place r is expected to have the share n_r e_r / sum(n_s e_s), whatever the pair's
attractiveness, and the examinations e make clicks by place equal to these expectations (the conditional likelihood of Hausman,
Hall and Griliches, Econometrica 1984; intervention harvesting, Agarwal et al., WSDM 2019, is of the same kind). Attractiveness
is then clicks over examined impressions. Expectation maximisation, the book's estimator, has a parameter for every pair, which
biases it where pairs are shown seldom, as most of a log are: with drawn clicks, 1,000 queries
of ten searches each, its largest error of an examination was 0.09 to 0.29, this one's 0.03 to 0.05, in a seventh of the rounds.

`coec` (clicks over expected clicks; Zhang and Jones, Comparing click logs and editorial labels for training query rewriting,
2007; OpenSearch's search-relevance takes it): clicks divided by those that documents shown at these places get on average. It
needs no document at two places, but takes what stands first for as good as what stands last: where the ranking is good, it
calls first documents worse than they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cluster.errors import LogError
from jobs.clicks.interactions import Cells

ClickModel = Literal["pbm", "coec"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]

ROUNDS, CLOSE = 2000, 1e-6  # at most so many, until no examination moves by more
PRIOR = 1.0  # examined impressions of an average document that each pair is given, so that few impressions say little


@dataclass(frozen=True)
class ClickEstimate:
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


def estimate(cells: Cells, model: ClickModel) -> ClickEstimate:
    """Returns what a click model says of cells with a click.

    Raises:
        LogError: `pbm` cannot tell examination from attractiveness.
    """
    return position_based(cells) if model == "pbm" else coec(cells)


def position_based(cells: Cells) -> ClickEstimate:
    """Returns the position-based model of cells.

    Places are comparable if a chain of pairs leads from one to the other, each shown and clicked at both or at others of the
    chain; the propensities of all others are nan. The first comparable place has propensity 1, since only the product with
    attractiveness can be seen.

    Raises:
        LogError: no pair that was clicked was shown at two places.
    """
    pairs, places = len(cells.pairs), int(cells.rank.max())
    clicks_of = np.bincount(cells.pair, cells.clicked, pairs)
    informative = clicks_of[cells.pair] > 0
    pair, at = cells.pair[informative], cells.rank[informative] - 1
    shown, clicked = cells.shown[informative], cells.clicked[informative]
    clicks_at = np.bincount(at, clicked, places)
    comparable = _comparable(pair, at, shown, clicks_at > 0)
    if comparable.sum() < 2:
        words = "no document of a query was clicked and shown at two places, so place cannot be told from relevance"
        raise LogError("log-clicks", f"--model pbm: {words}; take --model coec, or more days of the log")
    inside = comparable[at]
    pair, at, shown, clicked = pair[inside], at[inside], shown[inside], clicked[inside]
    clicks_of, clicks_at = np.bincount(pair, clicked, pairs), np.bincount(at, clicked, places)
    first = int(np.argmax(comparable))
    examination, rounds, step = np.where(comparable, 1.0, 0.0), 0, np.inf
    while rounds < ROUNDS and step >= CLOSE:
        rounds += 1
        examined = np.bincount(pair, shown * examination[at], pairs)[pair]
        expected = np.bincount(at, clicks_of[pair] * shown / examined, places)
        moved = np.divide(clicks_at, expected, out=np.zeros(places), where=comparable & (expected > 0))
        moved = moved / moved[first]
        step = float(np.max(np.abs(moved - examination)))
        examination = moved
    propensity = np.where(comparable, examination, np.nan)
    return _by_propensity("pbm", cells, propensity, rounds, step < CLOSE)


def _by_propensity(model: ClickModel, cells: Cells, propensity: Floats, rounds: int, converged: bool) -> ClickEstimate:
    """Returns clicks over examined impressions, at the places whose propensity is known."""
    pairs, known = len(cells.pairs), ~np.isnan(propensity)[cells.rank - 1]
    examined = np.bincount(cells.pair, cells.shown * np.nan_to_num(propensity)[cells.rank - 1], pairs).astype(np.float64)
    clicks = np.bincount(cells.pair, cells.clicked * known, pairs)
    average = clicks.sum() / examined.sum()
    there = examined > 0
    attraction = np.divide(clicks + PRIOR * average, examined + PRIOR, out=np.full(pairs, np.nan), where=there)
    return ClickEstimate(model, attraction / average, examined, propensity, rounds, converged)


def coec(cells: Cells) -> ClickEstimate:
    """Returns clicks over expected clicks: the propensity of a place is its click rate; one without a click has none."""
    at = cells.rank - 1
    shown_at, clicks_at = np.bincount(at, cells.shown), np.bincount(at, cells.clicked)
    rate = np.divide(clicks_at, shown_at, out=np.full(len(shown_at), np.nan), where=clicks_at > 0)
    return _by_propensity("coec", cells, rate / rate[np.argmax(clicks_at > 0)], 1, True)


def _comparable(pair: Ints, at: Ints, shown: Floats, clicked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Returns which places, (places,), can be compared: those of the connected part that was shown most.

    Args:
        pair: (cells,) number of the pair.
        at: (cells,) place, from 0.
        shown: (cells,) impressions.
        clicked: (places,) whether any of the cells has a click there.
    """
    use = clicked[at]
    pair, at, shown = pair[use], at[use], shown[use]
    part = np.arange(len(clicked))  # the least place that is known to be connected with each
    while True:
        of_pair = np.full(int(pair.max(initial=0)) + 1, len(clicked))
        np.minimum.at(of_pair, pair, part[at])
        joined = part.copy()
        np.minimum.at(joined, at, of_pair[pair])
        if np.array_equal(joined, part):
            break
        part = joined
    of_part = np.bincount(part[at], shown, len(clicked))
    found: npt.NDArray[np.bool_] = (part == np.argmax(of_part)) & clicked
    return found
