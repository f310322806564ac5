"""What each strategy brought: the drawn funnel of what it alone found, and its figures with and without judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobs.pages.charts import drawing, element
from jobs.terminal.formats import number, percent

if TYPE_CHECKING:
    from jobs.measure.funnel import Funnel, StrategyFunnel
    from jobs.measure.worth import Worth

WIDTH, STEP, BAR = 276.0, 38.0, 18.0  # of a drawing, of a step, of its bar
_NAMES, _COUNTS = 112.0, 72.0  # room for the words at the left and the figures at the right


@dataclass(frozen=True)
class StrategyRow:
    """A strategy: its drawing, and its figures. Each may be missing."""

    strategy: str
    svg: Markup | None
    funnel: StrategyFunnel | None
    worth: Worth | None


@dataclass(frozen=True)
class Strategies:
    """All strategies, drawn to one scale."""

    rows: list[StrategyRow]
    funnel: Funnel | None
    gain: bool
    """Whether the worth by a reranker is known."""
    reranked: bool
    """Whether the funnel has the step of a reranker."""


def strategies(funnel: Funnel | None, worth: Sequence[Worth]) -> Strategies | None:
    """Returns the strategies by judgements (None: there are none), reranker and results; None where none is known."""
    known = {one.strategy: one for one in funnel.strategies} if funnel else {}
    worths = {one.strategy: one for one in worth}
    names = list(dict.fromkeys([*known, *worths]))
    if not names:
        return None
    most = max((one.found_alone for one in known.values()), default=0)
    top = funnel.top if funnel else 0
    rows = [StrategyRow(name, _drawn(known.get(name), most, top), known.get(name), worths.get(name)) for name in names]
    gain = any(one.reranker_gain is not None for one in worth)
    reranked = any(one.survived_reranker is not None for one in known.values())
    return Strategies(rows, funnel, gain, reranked)


def _drawn(of: StrategyFunnel | None, most: int, top: int) -> Markup | None:
    """Returns a step below the other: what is left of the documents that only this strategy found; bands lead to the next."""
    if of is None:
        return None
    counts = [("it alone found", of.found_alone), ("after fusion", of.survived_fusion)]
    counts += [("after the reranker", of.survived_reranker)] if of.survived_reranker is not None else []
    counts += [(f"in the top {top}", of.in_top)]
    room = WIDTH - _NAMES - _COUNTS
    middle = _NAMES + room / 2
    half = [room * count / most / 2 if most else 0.0 for _, count in counts]
    parts = []
    for place, (words, count) in enumerate(counts):
        y, here, before = 1 + place * STEP, half[place], counts[place - 1][1] if place else 0
        if place + 1 < len(counts):
            there = half[place + 1]
            band = (
                f"M{middle - here:.1f} {y + BAR:.1f}L{middle + here:.1f} {y + BAR:.1f}"
                f"L{middle + there:.1f} {y + STEP:.1f}L{middle - there:.1f} {y + STEP:.1f}Z"
            )
            parts.append(element("path", d=band))
        share = element("tspan", f" {percent(count / before)}".replace(".0 %", " %"), class_="of") if before else ""
        figures = element("tspan", number(count), class_="count")
        parts += [
            element("rect", x=middle - here, y=y, width=max(2 * here, 1.0), height=BAR),
            element("text", words, class_="name", x="0", y=y + 14),
            element("text", figures, share, class_="figures", x=WIDTH - _COUNTS + 6, y=y + 14),
        ]
    label = ", ".join(f"{words} {number(count)}" for words, count in counts)
    return drawing(WIDTH, len(counts) * STEP - (STEP - BAR) + 2, *parts, label=label)
