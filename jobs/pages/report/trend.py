"""The trend over the last nights: the runs of the same name up to this one, as two small charts and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cluster.costs import Prices
from cluster.errors import ClusterError, ConfigError
from cluster.storage import open_storage
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_values
from jobs.measure.run_list import ListedRun, leading_measure, list_runs
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import money

NIGHTS = 14
WIDTH, HEIGHT = 320.0, 96.0  # of a chart's area
MARGIN = 8.0  # around it, so that no dot is cut


@dataclass(frozen=True)
class Dot:
    """A value in a chart, with the words that are shown for it."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Line:
    """The values of one kind over the nights; a night without a value leaves a gap. `kind` is a class of the style sheet."""

    kind: str
    name: str
    path: str
    dots: list[Dot]


@dataclass(frozen=True)
class Chart:
    """Lines over the same nights, with the least and the greatest value in words."""

    title: str
    lines: list[Line]
    low: str
    high: str
    changes: list[float]
    """Where the settings differ from those of the night before."""


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
    width: float = WIDTH + 2 * MARGIN
    height: float = HEIGHT + 2 * MARGIN


def trend(run: RunFolder, prices: Prices | None, evaluation: Evaluation | None) -> Trend | None:
    """Returns the trend up to this run over the finished runs of its name beside it; None where there are none.

    Args:
        run: of the report.
        prices: of all runs, so that their costs compare.
        evaluation: of this run; the others have theirs stored.
    """
    output, _, folder = run.storage.root.rpartition("/")
    try:
        listed = list_runs(open_storage(output), run.config.name, lambda record: prices)
    except (OSError, ClusterError, ConfigError):  # what lies beside a run is no fault of its report
        return None
    this = next((place for place, one in enumerate(listed) if one.run_id == folder), None)
    if this is None:
        return None
    mine = replace(listed[this], evaluation=evaluation_values(evaluation) if evaluation else listed[this].evaluation)
    runs = [*(one for one in listed[:this] if one.state == "finished"), mine][-NIGHTS:]
    if len(runs) < 2:
        return None
    changed = [False, *(after.settings != before.settings for before, after in pairwise(runs))]
    measure = leading_measure(runs)
    nights = [
        TrendRow(one, one is mine, new, one.measured("results", measure), one.measured("difference", measure))
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
    across = [MARGIN + WIDTH * place / (len(nights) - 1) for place in range(len(nights))]
    lines = []
    for kind, (name, _) in kinds.items():
        dots = [
            None if value is None else Dot(x, _y(value, low, high), f"{night.run.night}: {name} {words(value)}")
            for x, value, night in zip(across, values[kind], nights, strict=True)
        ]
        lines.append(Line(kind, name, _path(dots), [dot for dot in dots if dot is not None]))
    changes = [x for x, night in zip(across, nights, strict=True) if night.changed]
    return Chart(title, [line for line in lines if line.dots], words(low), words(high), changes)


def _y(value: float, low: float, high: float) -> float:
    return MARGIN + HEIGHT * (0.5 if high == low else (high - value) / (high - low))


def _path(dots: Sequence[Dot | None]) -> str:
    """Returns the line through the dots as an SVG path, with gaps where there is none."""
    parts, pen = [], "M"
    for dot in dots:
        if dot is None:
            pen = "M"
            continue
        parts.append(f"{pen}{dot.x:.1f} {dot.y:.1f}")
        pen = "L"
    return " ".join(parts)
