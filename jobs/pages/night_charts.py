"""Small charts of lines over the nights: of the report's trend, and of the page of nights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jobs.pages.charts import Axis, drawing, element, polyline

WIDTH, HEIGHT = 320.0, 96.0  # of a chart's area
MARGIN = 8.0  # around it, so that no dot is cut
QUALITY = {"results": "results", "original": "original alone"}
"""Of what quality is drawn: class of the style sheet -> name."""
COST = "cost per 1,000 queries"


@dataclass(frozen=True)
class Line:
    """A value of each night."""

    kind: str
    """A class of the style sheet."""
    name: str
    values: Sequence[float | None]

    @property
    def known(self) -> list[float]:
        """Returns the values of the nights that have one."""
        return [value for value in self.values if value is not None]


@dataclass(frozen=True)
class Chart:
    """Lines over the same nights, with the least and the greatest value in words."""

    title: str
    lines: dict[str, str]
    """Class of the style sheet -> name."""
    low: str
    high: str
    svg: Markup


def night_chart(
    title: str,
    nights: Sequence[str],
    lines: Sequence[Line],
    words: Callable[[float], str],
    marks: Sequence[str | None],
    *,
    parted: Sequence[bool] = (),
    least: float | None = None,
) -> Chart | None:
    """Returns a chart; None unless two nights have a value of one line.

    Args:
        title: Of the chart.
        nights: Their names, the oldest first.
        lines: With a value or none for each night.
        words: Of a value.
        marks: What is said of a night at which a dotted line is drawn; None: no line.
        parted: Whether no line is drawn from the night before, since both do not compare; empty: all do.
        least: The lower end of the axis; None: the least value.
    """
    shown = [line for line in lines if line.known]
    if max((len(line.known) for line in shown), default=0) < 2:
        return None
    known = [value for line in shown for value in line.known]
    low, high = min(known) if least is None else least, max(known)
    span = (low, high) if high > low else (low - 1.0, high + 1.0)
    up = Axis(*span, MARGIN + HEIGHT, MARGIN, False, (), words)
    across = [MARGIN + WIDTH * place / (len(nights) - 1) for place in range(len(nights))]
    drawn = []
    for x, mark in zip(across, marks, strict=True):
        if mark is not None:
            tip = element("title", mark)
            drawn.append(element("line", tip, class_="change", x1=x, x2=x, y1=0, y2=HEIGHT + 2 * MARGIN))
    for line in shown:
        dots = [None if value is None else (x, up.place(value)) for x, value in zip(across, line.values, strict=True)]
        drawn.append(element("path", class_=line.kind, d=polyline(_with_gaps(dots, parted))))
        for night, value, dot in zip(nights, line.values, dots, strict=True):
            if value is not None and dot is not None:
                tip = element("title", f"{night}: {line.name} {words(value)}")
                drawn.append(element("circle", tip, class_=line.kind, cx=dot[0], cy=dot[1], r=4 if dot is dots[-1] else 3))
    label = f"{title} over the nights; the table below has the values"
    svg = drawing(WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN, *drawn, label=label)
    return Chart(title, {line.kind: line.name for line in shown}, words(low), words(high), svg)


def _with_gaps(dots: Sequence[tuple[float, float] | None], parted: Sequence[bool]) -> list[tuple[float, float] | None]:
    """Returns the dots with a gap before each night that does not compare with the one before."""
    found: list[tuple[float, float] | None] = []
    for place, dot in enumerate(dots):
        found += [None, dot] if parted and parted[place] else [dot]
    return found
