"""The trend over the last nights: the runs of the same name up to this one, as two small charts and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cluster.costs import Prices
from cluster.errors import ClusterError, ConfigError
from cluster.storage import open_storage
from jobs.job.replay import NOTED
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_values
from jobs.measure.run_list import ListedRun, judged_otherwise, leading_measure, list_runs
from jobs.pages.night_charts import COST, QUALITY, Chart, Line, night_chart
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import money

NIGHTS = 14


@dataclass(frozen=True)
class TrendRow:
    """A row of the table."""

    run: ListedRun
    this: bool
    changed: bool
    """Whether its settings, the log and the indexes apart, differ from those of the night before."""
    judged_otherwise: bool
    """Whether its quality does not compare with that of the measured night before."""

    results: float | None
    """The quality of the results, by `Trend.quality`."""
    difference: float | None
    """The same less that of the original alone."""

    @property
    def changes(self) -> list[str]:
        """Returns what differs from the night before."""
        return ["settings"] * self.changed + ["judgements"] * self.judged_otherwise


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
    changed = [False, *(after.settings != before.settings for before, after in pairwise(runs))]
    measure, parted = leading_measure(runs), judged_otherwise(runs)
    nights = [
        TrendRow(one, one is runs[-1], new, other, one.measured("results", measure), one.measured("difference", measure))
        for one, new, other in zip(runs, changed, parted, strict=True)
    ]
    names = [one.night for one in runs]
    quality = [Line(kind, name, [one.measured(kind, measure) for one in runs]) for kind, name in QUALITY.items()]
    cost = Line("results", "cost", [one.usd_per_thousand for one in runs])
    charts = [
        night_chart(measure, names, quality, "{:.4f}".format, [_mark(night.changes) for night in nights], parted=parted),
        night_chart(COST, names, [cost], money, [_mark(["settings"] if new else []) for new in changed]),
    ]
    return Trend(nights, [chart for chart in charts if chart is not None], measure)


def _mark(changes: Sequence[str]) -> str | None:
    return ", ".join(f"other {what}" for what in changes) + " from here on" if changes else None
