"""The result of rewriting one query: rewrites, failures, and the choice of strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rewriters.selection import Choice


@dataclass(frozen=True)
class RewriteResult:
    """One rewrite of one query.

    Attributes:
        strategy: Name of the strategy.
        position: From 1, within the strategy.
        text: What is searched, on one line.
        weight: Of its ranked lists in fusion.
        search_as: "query" or "passage".
        model: As the engine names it.
        prompt_hash: Of the prompt template, 16 hex digits.
        parsed_as: The reader that found it: json, labelled, numbered, lines, salvage; code: that has made it; original, which
            stands in.
        selected_reason: Why the strategy was selected for this query; None without selection.
        position_weight: Multiplies the weight.
        guards: What the guards found and did, a word each (`guards/guards.py`); sorted.
    """

    strategy: str
    position: int
    text: str
    weight: float
    search_as: str
    model: str
    prompt_hash: str
    parsed_as: str
    selected_reason: str | None = None
    position_weight: float = 1.0
    guards: tuple[str, ...] = ()


@dataclass(frozen=True)
class RewriteFailure:
    """A strategy without a rewrite for one query, or a note on one with fewer texts than the answer had.

    Attributes:
        strategy: Name of the strategy.
        reason: One of `reasons.py`, or a reason of the engine.
        message: The reason as a sentence.
        raw: The whole completion; None if there was none.
        attempts: How often the request was sent.
    """

    strategy: str
    reason: str
    message: str
    raw: str | None
    attempts: int


class Guarded(NamedTuple):
    """The texts of a query that a guard left out.

    Attributes:
        strategy: Whose texts.
        guard: The guard's reason.
        texts: How many.
        unsearched: How many searches they would have had, with each retriever: none where another text equals one letter by
            letter, and one of a strategy with `as_one`, if it keeps none.
    """

    strategy: str
    guard: str
    texts: int = 0
    unsearched: int = 0


class Rewritten(NamedTuple):
    """All that came of one query.

    Attributes:
        rewrites: In the order of the pool, then by position.
        failures: One for each chosen strategy without a rewrite, and notes.
        choice: The strategies that were chosen, by the LLM where the selection is adaptive.
        guarded: What guards left out.
    """

    rewrites: list[RewriteResult]
    failures: list[RewriteFailure]
    choice: Choice
    guarded: tuple[Guarded, ...] = ()
