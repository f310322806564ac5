"""The texts that arms choose of each query of a block, of the texts that they share (`rewrite.select: {kind: qpp}`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import Search, SharedWork
from jobs.chain.chosen import Choosing, choose, chosen_texts, chosen_values, flag_unchosen
from jobs.chain.search_texts import Text
from jobs.chain.tables import ARM_CHOSEN
from retrievers.predictors import predicted, statistics_of
from retrievers.retriever import Retriever
from rewriters.strategy import searched_as_one


class Choices:
    """The choices of the arms that make one."""

    def __init__(
        self, work: SharedWork, retrievers: Mapping[str, Retriever], texts: Sequence[Sequence[Text]], rows: int
    ) -> None:
        """Chooses; a text is predicted once for all arms with the same predictor and index.

        Args:
            work: Of all arms.
            retrievers: By key.
            texts: Of each search, row by row.
            rows: Of the block.
        """
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
            route = partial(_route, work.searches[answer.search])
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
        return chosen_texts(self._texts[self._work.answers[answer].search], self.numbers[answer])

    def flagged(self, table: pa.Table) -> pa.Table:
        """Returns a block of one arm whose `rewrites` have the flag `not_chosen` where its search leaves them out."""
        only = self._work.only
        if only is None or 0 not in self.numbers:
            return table
        reading = self._work.readings[self._work.searches[only.search].reading]
        return flag_unchosen(table, self._texts[only.search], self.numbers[0], searched_as_one(reading.rewriting.pool))

    def column(self, rows: int) -> pa.ListArray:
        """Returns the column `chosen` of a block."""
        values: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
        for at, numbers in self.numbers.items():
            answer = self._work.answers[at]
            assert answer.choosing is not None
            texts, scores = self._texts[answer.search], self._scores[answer.search, answer.choosing]
            for row, one in enumerate(chosen_values(texts, scores, numbers)):
                values[row].append({"arm": at, "number": int(numbers[row])} | one)
        return pa.array(values, pa.list_(ARM_CHOSEN))


def _route(search: Search, strategy: str) -> Collection[str]:
    """Returns the names of the retrievers that search a strategy's texts."""
    return search.routes.get(strategy, list(search.retrievers))
