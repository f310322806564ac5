"""Selection: which strategies of the pool rewrite a query.

Here they are chosen by the query and its values. `rewriters/classifier.py` chooses by the type of the query; with adaptive
selection the LLM chooses while it writes (`rewriters/adaptive.py`). The gate decides before whether it is rewritten at all.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster.errors import RewriterError, nearest
from rewriters.query import Query
from rewriters.strategy import Strategy

GATE_VERSION = 1  # raised when the same scores would be decided upon otherwise; part of a run's fingerprint
_BETWEEN = re.compile(r"[,;](?![^()]*\))")  # strategies; commas in brackets are between parameters


class Choice(NamedTuple):
    """The strategies that rewrite one query."""

    texts: Mapping[str, int | None]  # strategy -> how many of its texts are kept at most (None: all), in the order of the pool
    query_type: str | None = None  # by classification; else None
    reason: str | None = None  # why these, in words; None where all are taken
    answered: bool = False  # whether the LLM told the type
    note: str | None = None  # what is wrong with the query's cell in the log, so that all strategies are taken


def all_of(pool: Sequence[Strategy]) -> Choice:
    """Returns the whole pool."""
    return Choice({strategy.name: None for strategy in pool})


def by_chance(pool: Sequence[Strategy], k: int, seed: int, query: Query) -> Choice:
    """Returns k strategies, drawn with the seed and the query's id: a query has the same ones in every run."""
    drawn = set(random.Random(f"{seed} {query.query_id}").sample(sorted(strategy.name for strategy in pool), k))
    return Choice({strategy.name: None for strategy in pool if strategy.name in drawn}, None, f"{k} by chance")


def by_column(pool: Sequence[Strategy], column: str, query: Query) -> Choice:
    """Returns the strategies of the query's cell; all with a note if it names one that the pool does not have."""
    cell = (query.values.get(column) or "").strip()
    if not cell:
        return all_of(pool)
    wanted = int(cell) if cell.isdecimal() else [name.strip() for name in _BETWEEN.split(cell)]
    try:
        return Choice(chosen(wanted, pool, f"column {column!r}"), None, f"{column}: {cell}")
    except RewriterError as error:  # one wrong cell must not end a night
        return all_of(pool)._replace(note=f"{error}; all strategies are taken")


def chosen(wanted: Sequence[str] | str | int | None, pool: Sequence[Strategy], where: str) -> dict[str, int | None]:
    """Returns strategy -> how many of its texts are kept, in the order of the pool.

    `wanted` are names; or a number N: the first N texts of the pool; or `none` or null: nothing. Errors name its place
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
    names = [name for name in names if name and name != "none"]
    known = [strategy.name for strategy in pool]
    for name in names:
        if name not in known:
            of_file = [one.name for one in pool if one.base == name]
            remedy = f"add name: {name} to the parameters of {of_file[0]}" if len(of_file) == 1 else "add it"
            line = f"{where}: {name!r} is not among rewrite.strategies{nearest(name, known)}; {remedy}"
            raise RewriterError("selection", line)
    return {name: None for name in known if name in names}


class Gated(NamedTuple):
    """Verdict of the gate on a query, by what a retriever finds for the original alone."""

    sure: bool  # whether the retriever is sure of it, so that it is not rewritten
    reason: str  # why, in words


def decide(by: str, scores: Sequence[float], below: float) -> Gated:
    """Returns the gate's verdict on a query by the scores, best first, of a retriever's list of the original."""
    if not len(scores):
        return Gated(False, f"gate: {by} finds nothing")
    sure = scores[0] >= below
    reason = f"best score {scores[0]:.4g} ({'at least' if sure else 'below'} {below:.4g})"
    return Gated(sure, f"gate: {by} is {'sure' if sure else 'not sure'}: {reason}")
