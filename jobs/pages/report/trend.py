"""The trend over the last nights: the runs of the same name up to this one, as two small charts and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from cluster.costs import Prices
from cluster.errors import ClusterError, ConfigError
from cluster.storage import open_storage
from jobs.job.replay import NOTED
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_values
from jobs.measure.run_list import ListedRun, leading_measure, list_runs
from jobs.pages.charts import Axis, drawing, element, polyline
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import money

NIGHTS = 14
WIDTH, HEIGHT = 320.0, 96.0  # of a chart's area
MARGIN = 8.0  # around it, so that no dot is cut


@dataclass(frozen=True)
class Chart:
    """Lines over the same nights, with the least and the greatest value in words."""

    title: str
    lines: dict[str, str]
    """Class of the style sheet -> name."""
    low: str
    high: str
    svg: Markup


@dataclass(frozen=True)
class TrendRow:
    """A row of the table."""

    run: ListedRun
    this: bool
    changed: bool
    """Whether its settings, the log and the indexes apart, differ from those of the night before."""

    results: float | None
    """The quality of the results, by `Trend.quality`."""
    difference: float | None
    """The same less that of the original alone."""


@dataclass(frozen=True)
class Trend:
    """The nights, oldest first, and the charts that their figures make."""

    nights: list[TrendRow]
    charts: list[Chart]
    quality: str
    """The measure: the first of `evaluate.measures` of the newest night."""


def trend(run: RunFolder, prices: Prices | None, evaluation: Evaluation | None) -> Trend | None:
    """Returns the trend up to this run over the finished runs of its name beside it; None where there are none, or of a replay.

    All costs are at `prices`, so that they compare; `evaluation` is of this run, the others have theirs stored.
    """
    output, _, folder = run.storage.root.rpartition("/")
    if NOTED in run.record:  # of a few queries
        return None
    try:
        listed = list_runs(open_storage(output), run.config.name, lambda record: prices)
    except (OSError, ClusterError, ConfigError):  # what lies beside a run is no fault of its report
        return None
    this = next((place for place, one in enumerate(listed) if one.run_id == folder), None)
    if this is None:
        return None
    mine = replace(listed[this], evaluation=evaluation_values(evaluation) if evaluation else listed[this].evaluation)
    runs = [*(one for one in listed[:this] if one.state == "finished" and one.replays is None), mine][-NIGHTS:]
    if len(runs) < 2:
        return None
    judges = [(one.evaluation or {}).get("judged_by") for one in runs]
    runs = [one if by == judges[-1] else replace(one, evaluation=None) for one, by in zip(runs, judges, strict=True)]
    changed = [False, *(after.settings != before.settings for before, after in pairwise(runs))]
    measure = leading_measure(runs)  # of the nights that were judged by the same
    nights = [
        TrendRow(one, one is runs[-1], new, one.measured("results", measure), one.measured("difference", measure))
        for one, new in zip(runs, changed, strict=True)
    ]
    quality = {"results": "results", "original": "original alone"}
    charts = [
        _chart(measure, nights, {kind: (name, _measured(kind, measure)) for kind, name in quality.items()}, "{:.4f}".format),
        _chart("cost per 1,000 queries", nights, {"results": ("cost", lambda one: one.usd_per_thousand)}, money),
    ]
    return Trend(nights, [chart for chart in charts if chart is not None], measure)


def _measured(kind: str, measure: str) -> Callable[[ListedRun], float | None]:
    return lambda run: run.measured(kind, measure)


def _chart(
    title: str,
    nights: Sequence[TrendRow],
    kinds: dict[str, tuple[str, Callable[[ListedRun], float | None]]],
    words: Callable[[float], str],
) -> Chart | None:
    """Returns the chart; None unless two nights have a value."""
    values = {kind: [of(night.run) for night in nights] for kind, (_, of) in kinds.items()}
    known = [value for one in values.values() for value in one if value is not None]
    if max(sum(value is not None for value in one) for one in values.values()) < 2:
        return None
    low, high = min(known), max(known)
    span = (low, high) if high > low else (low - 1.0, high + 1.0)
    up = Axis(*span, MARGIN + HEIGHT, MARGIN, False, (), words)
    across = [MARGIN + WIDTH * place / (len(nights) - 1) for place in range(len(nights))]
    drawn, lines = [], {kind: name for kind, (name, _) in kinds.items() if any(value is not None for value in values[kind])}
    for x, night in zip(across, nights, strict=True):
        if night.changed:
            tip = element("title", "other settings from here on")
            drawn.append(element("line", tip, class_="change", x1=x, x2=x, y1=0, y2=HEIGHT + 2 * MARGIN))
    for kind, name in lines.items():
        dots = [None if value is None else (x, up.place(value)) for x, value in zip(across, values[kind], strict=True)]
        drawn.append(element("path", class_=kind, d=polyline(dots)))
        for night, value, dot in zip(nights, values[kind], dots, strict=True):
            if value is not None and dot is not None:
                tip = element("title", f"{night.run.night}: {name} {words(value)}")
                drawn.append(element("circle", tip, class_=kind, cx=dot[0], cy=dot[1], r=4 if dot is dots[-1] else 3))
    label = f"{title} over the nights; the table below has the values"
    return Chart(title, lines, words(low), words(high), drawing(WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN, *drawn, label=label))
