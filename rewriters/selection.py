"""Selection: which strategies of the pool rewrite a query.

A selector chooses from what is known before any rewrite: the query, its values, or the answer to a question of its own
(`rewriters/classifier.py`). Adaptive selection is no selector: there the LLM chooses while it writes (`rewriters/adaptive.py`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from cluster.errors import RewriterError, nearest
from rewriters.query import Query
from rewriters.strategy import Strategy

NONE = "none"
_BETWEEN = re.compile(r"[,;](?![^()]*\))")  # strategies; commas in brackets are between parameters


class Choice(NamedTuple):
    """The strategies that rewrite one query.

    Attributes:
        texts: Strategy -> how many of its texts are kept at most (None: all), in the order of the pool.
        query_type: By classification; else None.
        reason: Why these, in words; None where all are taken.
        answered: Whether the LLM told the type.
        note: What is wrong with the query's cell in the log, so that all strategies are taken.
    """

    texts: Mapping[str, int | None]
    query_type: str | None = None
    reason: str | None = None
    answered: bool = False
    note: str | None = None


class Selector(Protocol):
    """Chooses strategies for a query."""

    def choose(self, query: Query) -> Choice:
        """Returns the choice."""
        ...


class All(NamedTuple):
    """Every strategy of the pool."""

    pool: Sequence[Strategy]

    def choose(self, query: Query) -> Choice:
        """Returns the whole pool."""
        return Choice({strategy.name: None for strategy in self.pool})


class RandomK:
    """k strategies by chance; a query has the same ones in every run."""

    def __init__(self, pool: Sequence[Strategy], k: int, seed: int) -> None:
        """Keeps the names.

        Raises:
            RewriterError: The pool has fewer than k.
        """
        if k > len(pool):
            raise RewriterError("config-value", f"rewrite.select.k is {k}, and there are {len(pool)} strategies; lower it")
        self._names, self._k, self._seed = sorted(strategy.name for strategy in pool), k, seed
        self._order = [strategy.name for strategy in pool]

    def choose(self, query: Query) -> Choice:
        """Returns k strategies, drawn with the seed and the query's id."""
        drawn = set(random.Random(f"{self._seed} {query.query_id}").sample(self._names, self._k))
        return Choice({name: None for name in self._order if name in drawn}, None, f"{self._k} by chance")


class Column(NamedTuple):
    """Chooses by a column of the log."""

    pool: Sequence[Strategy]
    column: str

    def choose(self, query: Query) -> Choice:
        """Returns the strategies of the query's cell; all with a note if it names one that the pool does not have."""
        cell, whole = (query.values.get(self.column) or "").strip(), All(self.pool).choose(query)
        if not cell:
            return whole
        wanted = int(cell) if cell.isdecimal() else [one.strip() for one in _BETWEEN.split(cell)]
        try:
            texts = chosen(wanted, self.pool, f"column {self.column!r}")
        except RewriterError as error:  # one wrong cell must not end a night
            return whole._replace(note=f"{error}; all strategies are taken")
        return Choice(texts, None, f"{self.column}: {cell}")


def chosen(wanted: Sequence[str] | str | int | None, pool: Sequence[Strategy], where: str) -> dict[str, int | None]:
    """Returns strategy -> how many of its texts are kept, in the order of the pool.

    `wanted` are names; or a number: the first texts of the pool, so many; or `none` or null: nothing. Errors name its place
    `where`.

    Raises:
        RewriterError: A name is not in the pool.
    """
    if isinstance(wanted, int):
        texts: dict[str, int | None] = {}
        left = wanted
        for strategy in pool:
            if left > 0:
                texts[strategy.name] = None if strategy.n <= left else left
                left -= strategy.n
        return texts
    names = [wanted] if isinstance(wanted, str) else list(wanted or ())
    names = [name for name in names if name and name != NONE]
    known = [strategy.name for strategy in pool]
    for name in names:
        if name not in known:
            of_file = [one.name for one in pool if one.recorded_as == name]
            remedy = f"add name: {name} to the parameters of {of_file[0]}" if len(of_file) == 1 else "add it"
            raise RewriterError(
                "selection", f"{where}: {name!r} is not among rewrite.strategies{nearest(name, known)}; {remedy}"
            )
    return {name: None for name in known if name in names}
