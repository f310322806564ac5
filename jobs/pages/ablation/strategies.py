"""What each strategy brought: the drawn funnel of what it alone found, and its figures with and without judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.measure.compare.funnel import Funnel, StrategyFunnel
    from jobs.measure.compare.worth import Worth

WIDTH, STEP, BAR = 276.0, 38.0, 18.0  # of a drawing, of a step, of its bar
_NAMES, _COUNTS = 112.0, 72.0  # room for the words at the left and the figures at the right


@dataclass(frozen=True)
class FunnelStep:
    """A step: what is left of the documents that only this strategy found. `band` leads to the next, as an SVG path."""

    words: str
    count: int
    share: float | None
    """Of the step before; None of the first."""
    x: float
    y: float
    width: float
    band: str


@dataclass(frozen=True)
class StrategyRow:
    """A strategy: its drawing, and its figures. Either may be missing."""

    strategy: str
    steps: list[FunnelStep]
    funnel: StrategyFunnel | None
    worth: Worth | None


@dataclass(frozen=True)
class Strategies:
    """All strategies, drawn to one scale."""

    rows: list[StrategyRow]
    funnel: Funnel | None
    clicks: bool
    """Whether the log has clicks."""
    gain: bool
    """Whether the worth by a reranker is known."""
    reranked: bool
    """Whether the funnel has the step of a reranker."""
    width: float = WIDTH
    figures: float = WIDTH - _COUNTS + 6
    """Where the figures of the steps stand."""
    height: float = 0.0
    bar: float = BAR


def strategies(funnel: Funnel | None, worth: Sequence[Worth]) -> Strategies | None:
    """Returns the strategies; None where nothing is known of them.

    Args:
        funnel: by judgements; None without them.
        worth: by the reranker, the results and clicks.
    """
    known = {one.strategy: one for one in funnel.strategies} if funnel else {}
    worths = {one.strategy: one for one in worth}
    names = list(dict.fromkeys([*known, *worths]))
    if not names:
        return None
    most = max((one.found_alone for one in known.values()), default=0)
    top = funnel.top if funnel else 0
    rows = [StrategyRow(name, _steps(known.get(name), most, top), known.get(name), worths.get(name)) for name in names]
    height = max((len(row.steps) for row in rows), default=0) * STEP - (STEP - BAR) + 2
    clicks = any(one.click_rate is not None for one in worth)
    gain = any(one.reranker_gain is not None for one in worth)
    reranked = any(one.survived_reranker is not None for one in known.values())
    return Strategies(rows, funnel, clicks, gain, reranked, height=height)


def _steps(of: StrategyFunnel | None, most: int, top: int) -> list[FunnelStep]:
    if of is None:
        return []
    counts = [("it alone found", of.found_alone), ("after fusion", of.survived_fusion)]
    counts += [("after the reranker", of.survived_reranker)] if of.survived_reranker is not None else []
    counts += [(f"in the top {top}", of.in_top)]
    room = WIDTH - _NAMES - _COUNTS
    middle = _NAMES + room / 2
    wide = [room * count / most if most else 0.0 for _, count in counts]
    found = []
    for place, (words, count) in enumerate(counts):
        y = 1 + place * STEP
        band = ""
        if place + 1 < len(counts):
            here, there = wide[place] / 2, wide[place + 1] / 2
            band = (
                f"M{middle - here:.1f} {y + BAR:.1f}L{middle + here:.1f} {y + BAR:.1f}"
                f"L{middle + there:.1f} {y + STEP:.1f}L{middle - there:.1f} {y + STEP:.1f}Z"
            )
        before = counts[place - 1][1] if place else 0
        share = count / before if place and before else None
        found.append(FunnelStep(words, count, share, middle - wide[place] / 2, y, wide[place], band))
    return found
