"""Click models beside the plain click rate, on clicks that are drawn from a known position-based model.

    python tests/benchmarks/click_models.py [--queries 100] [--seed 1]

Every query has ten documents with an attractiveness from Beta(1, 4), all of which are shown; place n is examined with
probability 1 / n ** 0.8. The engine orders them by attractiveness plus a fixed error of each document (its standard deviation:
luck) plus one that is drawn anew for every search (0.1). Printed for each: Kendall's tau-b between estimate and truth, the mean
of all queries, for pairs with ten examined impressions or more; and the largest error of a propensity. One seed is one draw:
run several.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from jobs.clicks.interactions import Cells  # noqa: E402
from jobs.clicks.models import coec, position_based  # noqa: E402

Floats = npt.NDArray[np.float64]
DOCUMENTS, EXAMINATION, JITTER, LEAST = 10, 1 / np.arange(1, 11) ** 0.8, 0.1, 10


def drawn(seed: int, queries: int, searches: int, luck: float) -> tuple[Cells, Floats, npt.NDArray[np.int64]]:
    """Returns cells, and the truth and the query of each pair."""
    random = np.random.default_rng(seed)
    truth = random.beta(1, 4, (queries, DOCUMENTS))
    scores = truth + random.normal(0, luck, truth.shape)
    shown = np.zeros((queries, DOCUMENTS, DOCUMENTS))
    clicked = np.zeros_like(shown)
    places = np.broadcast_to(np.arange(DOCUMENTS), (searches, DOCUMENTS))
    for query in range(queries):
        order = np.argsort(-(scores[query] + random.normal(0, JITTER, (searches, DOCUMENTS))), axis=1)
        clicks = random.random(order.shape) < EXAMINATION * truth[query][order]
        np.add.at(shown[query], (order, places), 1)
        np.add.at(clicked[query], (order, places), clicks)
    asked, document, place = np.nonzero(shown)
    pairs = pa.table({"query_id": np.repeat(np.arange(queries), DOCUMENTS).astype(str),
                      "doc_id": np.tile(np.arange(DOCUMENTS), queries).astype(str)})  # fmt: skip
    cells = Cells(pairs, asked * DOCUMENTS + document, place + 1, shown[shown > 0], clicked[shown > 0])
    return cells, truth.ravel(), np.repeat(np.arange(queries), DOCUMENTS)


def tau(a: Floats, b: Floats) -> float:
    """Returns Kendall's tau-b; nan where one of both does not differ."""
    first, second = np.triu_indices(len(a), 1)
    x, y = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    ties = np.sqrt(np.count_nonzero(x) * np.count_nonzero(y))
    return float((x * y).sum() / ties) if ties else float("nan")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("luck  searches  pairs  clicks/impressions    pbm   coec  propensity error  rounds")
    for luck in (0.0, 0.1, 0.2, 0.5):
        for searches in (50, 200):
            cells, truth, query = drawn(options.seed, options.queries, searches, luck)
            model, other = position_based(cells), coec(cells)
            rate = np.bincount(cells.pair, cells.clicked) / np.bincount(cells.pair, cells.shown)
            use = model.examined >= LEAST
            of = [np.flatnonzero((query == one) & use) for one in np.unique(query)]
            agree = [
                np.nanmean([tau(found[one], truth[one]) for one in of]) for found in (rate, model.relevance, other.relevance)
            ]
            error = np.nanmax(np.abs(model.propensity - EXAMINATION))
            print(f"{luck:4} {searches:9} {use.mean():6.0%} {agree[0]:19.3f} {agree[1]:6.3f} {agree[2]:6.3f} {error:17.3f}"
                  f" {model.rounds:7}")  # fmt: skip


if __name__ == "__main__":
    main()
