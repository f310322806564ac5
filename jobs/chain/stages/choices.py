"""The texts that arms choose of each query of a block, of the texts that they share (`jobs/chain/chosen.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.chosen import Choosing
from jobs.chain.drift import with_flag
from jobs.chain.search_texts import Text
from jobs.chain.tables import ARM_CHOSEN
from jobs.tables import NOT_CHOSEN
from retrievers.fusion import takes_part
from retrievers.predictors import predicted, statistics_of
from retrievers.retriever import Retriever
from retrievers.settings import FuseSettings
from rewriters.strategy import searched_as_one


class Choices:
    """The choices of the arms that make one."""

    def __init__(
        self, work: SharedWork, retrievers: Mapping[str, Retriever], texts: Sequence[Sequence[Text]], rows: int
    ) -> None:
        """Chooses; a text is predicted once for all arms with the same predictor and index."""
        self._work, self._texts = work, texts
        self.numbers: dict[int, np.ndarray] = {}
        """Index of an answer -> the number of the text of each row that it chooses, shape (rows,)."""
        known = self._scores = dict[tuple[int, Choosing], np.ndarray]()
        for at, answer in enumerate(work.answers):
            if answer.choosing is None:
                continue
            of, key = texts[answer.search], (answer.search, answer.choosing)
            if key not in known:
                statistics = statistics_of(retrievers[answer.choosing.retriever])
                known[key] = predicted([text.search for text in of], answer.choosing.predictor, statistics)
            route = work.searches[answer.search].route
            self.numbers[at] = choose(of, known[key], rows, answer.fuse, route, answer.strategies)

    def needed(self, search: int) -> list[Text]:
        """Returns the texts of a search that some arm fuses, and the originals."""
        answers = [(at, one) for at, one in enumerate(self._work.answers) if one.search == search]
        every = frozenset[str]().union(*(one.strategies for at, one in answers if at not in self.numbers))
        chosen = [self.numbers[at] for at, _ in answers if at in self.numbers]
        return [
            text
            for text in self._texts[search]
            if text.number == 0 or text.strategy in every or any(text.number == one[text.row] for one in chosen)
        ]

    def texts(self, answer: int) -> list[Text] | None:
        """Returns the text of each row that an answer chooses; None: it chooses none."""
        if answer not in self.numbers:
            return None
        numbers = self.numbers[answer]
        return [text for text in self._texts[self._work.answers[answer].search] if text.number == numbers[text.row]]

    def flagged(self, table: pa.Table) -> pa.Table:
        """Returns a block of one arm whose `rewrites` have the flag `not_chosen` where its search leaves them out."""
        only, chosen = self._work.only, self.texts(0)
        if only is None or chosen is None:
            return table
        as_one = searched_as_one(self._work.readings[self._work.searches[only.search].reading].rewriting.pool)
        return with_flag(table, NOT_CHOSEN, lambda row, one: is_unchosen(one, chosen[row], as_one))

    def column(self, rows: int) -> pa.ListArray:
        """Returns the column `chosen` of a block; a prediction without a known term is null."""
        values: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
        for at in self.numbers:
            answer = self._work.answers[at]
            assert answer.choosing is not None
            for text in self.texts(at) or ():
                one = {"arm": at, "number": text.number, "strategy": text.strategy, "position": text.position, "predicted": []}
                values[text.row].append(one)
            scores = self._scores[answer.search, answer.choosing].tolist()
            for text, score in zip(self._texts[answer.search], scores, strict=True):
                one = {"strategy": text.strategy, "position": text.position, "score": score if np.isfinite(score) else None}
                values[text.row][-1]["predicted"].append(one)
        return pa.array(values, pa.list_(ARM_CHOSEN))


def choose(
    texts: Sequence[Text],
    scores: np.ndarray,
    rows: int,
    fuse: FuseSettings,
    route: Callable[[str], Collection[str]],
    strategies: Collection[str] | None = None,
) -> np.ndarray:
    """Returns the number of the text of each row that is chosen, shape (rows,), int64.

    It is the one with the highest score, of equal ones the first: the original, then by the order of strategies. Texts without
    a list of weight above 0 do not compete; where none does, the original is chosen, and stands in as always.

    Args:
        texts: Of a block, row by row, the original of each row first.
        scores: Predictions, shape (texts,).
        rows: Of the block.
        fuse: The config's `fuse`.
        route: Returns the names of the retrievers that search a strategy's texts.
        strategies: Those that compete beside the original; None: all.
    """
    numbers, highest = np.zeros(rows, dtype=np.int64), dict[int, float]()
    for text, score in zip(texts, scores.tolist(), strict=True):
        if text.number and strategies is not None and text.strategy not in strategies:
            continue
        weights = text.weight, text.position_weight
        competes = any(takes_part(fuse, text.strategy, name, *weights) for name in route(text.strategy))
        if competes and (text.row not in highest or score > highest[text.row]):
            numbers[text.row], highest[text.row] = text.number, score
    return numbers


def is_unchosen(rewrite: Mapping[str, Any], chosen: Text, as_one: Collection[str]) -> bool:
    """Returns whether a row of rewrites/ is no part of the text that was chosen.

    Those of `as_one` make one search.
    """
    other = rewrite["position"] != chosen.position and rewrite["strategy"] not in as_one
    return bool(rewrite["strategy"] != chosen.strategy or other)
