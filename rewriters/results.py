"""The result of rewriting one query: rewrites, failures, and the choice of strategies."""

from dataclasses import dataclass
from typing import NamedTuple

from rewriters.selection import Choice


@dataclass(frozen=True)
class RewriteResult:
    """One rewrite of one query."""

    strategy: str
    position: int  # from 1, within the strategy
    text: str  # what is searched, on one line
    weight: float  # of its ranked lists in fusion
    search_as: str  # "query" or "passage"
    model: str  # as the engine names it
    prompt_hash: str  # of the prompt template, 16 hex digits
    parsed_as: str  # the reader: json, labelled, numbered, lines, marked, salvage; or original, which stands in
    selected_reason: str | None = None  # why the strategy was selected for this query; None without selection
    position_weight: float = 1.0  # multiplies the weight
    guards: tuple[str, ...] = ()  # what the guards found and did, a word each (`guards/guards.py`); sorted


@dataclass(frozen=True)
class RewriteFailure:
    """A strategy without a rewrite for one query, or a note on one with fewer texts than the answer had."""

    strategy: str
    reason: str  # one of `reasons.py`, or a reason of the engine
    message: str
    raw: str | None  # the whole completion; None if there was none
    attempts: int  # how often the request was sent


class Guarded(NamedTuple):
    """The number of texts of a query that a guard left out."""

    strategy: str
    guard: str
    texts: int


class Rewritten(NamedTuple):
    """The rewrites and errors of one query."""

    rewrites: list[RewriteResult]  # in the order of the pool, then by position
    failures: list[RewriteFailure]  # one for each chosen strategy without a rewrite, and notes
    choice: Choice  # the strategies that were chosen, by the LLM where the selection is adaptive
    guarded: tuple[Guarded, ...] = ()  # what guards left out
