"""The page over the nights of one name: one self-contained HTML file, without any text of a query or a rewrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.chain.pipeline import COSTED
from jobs.measure.nights.distributions import GUARD, LENGTH, RUNG, SCORE, SCRIPT, Distribution
from jobs.measure.nights.night import JUDGEMENTS, Drift, Night
from jobs.measure.nights.nights import Nights
from jobs.measure.nights.stability import ADDED, CHANCE, MODERATE, SHIFT, Stability
from jobs.pages.night_charts import COST, QUALITY, Chart, Line, night_chart
from jobs.pages.render import render_page
from jobs.terminal.formats import masked, money, percent

HEADINGS = {
    LENGTH: "Length of texts, in characters",
    SCRIPT: "Script of most of a text's letters",
    RUNG: "How rewrites were read from answers",
    GUARD: "Texts that guards found",
    SCORE: "Score of a query's first result",
}
MOST_SHIFTS = 20  # that are named above the charts
MOST_LINES = 5  # of a chart, as many as the style sheet has colours for


@dataclass(frozen=True)
class DriftRow:
    """A distribution of one night in a table of shares."""

    night: str
    drift: Drift
    shares: list[float | None]
    """By the bins of the table; None: it has no such bin."""


@dataclass(frozen=True)
class DriftTable:
    """The distributions of one kind, the newest night first."""

    name: str
    """Of the CSV file."""
    kind: str
    title: str
    bins: list[str]
    rows: list[DriftRow]


@dataclass(frozen=True)
class Shift:
    """A distribution that has shifted."""

    night: str
    title: str
    of: str
    words: str


def nights_page(found: Nights) -> str:
    """Returns the page as HTML."""
    tables = _tables(found.nights)
    return render_page(
        "nights.html.j2",
        {
            "texts": True,  # there is none to leave out
            "found": found,
            "root": masked(found.output),
            "charts": _charts(found),
            "stages": _stages(found.nights),
            "priced": any(one.figures.usd_by_stage is not None for one in found.nights),
            "reasons": list(dict.fromkeys(reason for one in found.nights for reason in one.figures.failures)),
            "taken": _taken(found.nights),
            "of_answers": list(dict.fromkeys(name for one in found.nights for name in one.run.of_answers)),
            "tables": tables,
            "shifts": _shifts(found.nights),
            "most_shifts": MOST_SHIFTS,
            "limits": {"moderate": MODERATE, "shift": SHIFT, "chance": CHANCE, "added": ADDED},
        },
    )


def _stages(nights: Sequence[Night]) -> list[str]:
    """Returns the stages that cost something, in the order of the chain, and `idle` and `lost` behind."""
    used = {stage for one in nights for stage in (one.figures.usd_by_stage or one.figures.seconds_by_stage)}
    place = {stage: number for number, stage in enumerate(COSTED)}
    return sorted(used, key=lambda stage: (place.get(stage, len(place)), stage in ("idle", "lost"), stage))


def _taken(nights: Sequence[Night]) -> list[str]:
    """Returns the kinds of work that a night needed."""
    return list(dict.fromkeys(kind for one in nights for kind, needed in one.figures.needed.items() if needed))


def _charts(found: Nights) -> list[Chart]:
    nights, names = found.nights, [one.run.night for one in found.nights]
    marks = [", ".join(f"other {what}" for what in one.changed) + " from here on" if one.changed else None for one in nights]
    parted = [
        JUDGEMENTS in one.changed or not (before.finished and one.finished)
        for before, one in zip([*nights[:1], *nights], nights, strict=False)
    ]

    def lines(of: dict[str, Callable[[Night], float | None]]) -> list[Line]:
        named = list(of.items())[:MOST_LINES]
        return [Line(f"s{place}", name, [value(one) for one in nights]) for place, (name, value) in enumerate(named)]

    def taken_of(kind: str) -> Callable[[Night], float | None]:
        return lambda one: one.taken(kind)

    quality = [Line(kind, name, [one.run.measured(kind, found.measure) for one in nights]) for kind, name in QUALITY.items()]
    taken = {kind.replace("_", " "): taken_of(kind) for kind in _taken(nights)}
    new = {"of distinct queries": lambda one: one.new_share, "of the traffic": lambda one: one.new_traffic}
    failed: dict[str, Callable[[Night], float | None]] = {"failed": lambda one: one.figures.failed}
    drawn = [
        night_chart(found.measure, names, quality, "{:.4f}".format, marks, parted=parted),
        night_chart(COST, names, _costs(nights), money, marks, least=0.0),
        night_chart("traffic that is covered", names, lines({"covered": lambda one: one.figures.coverage}), percent, marks),
        night_chart("new queries", names, lines(new), percent, marks, least=0.0),
        night_chart("taken from the store", names, lines(taken), percent, marks, least=0.0),
        night_chart("queries with an error", names, lines(failed), percent, marks, least=0.0),
        night_chart("greatest PSI to the night before", names, _greatest(nights, "before"), "{:.2f}".format, marks, least=0.0),
        night_chart("greatest PSI to the first night", names, _greatest(nights, "first"), "{:.2f}".format, marks, least=0.0),
    ]
    return [chart for chart in drawn if chart is not None]


def _costs(nights: Sequence[Night]) -> list[Line]:
    """Returns the cost of 1,000 queries: whole, and of the stages that cost most."""
    priced = [one.figures.usd_by_stage or {} for one in nights]
    sums = {stage: sum(of.get(stage, 0.0) for of in priced) for stage in _stages(nights)}
    dearest = sorted((stage for stage, usd in sums.items() if usd), key=lambda stage: -sums[stage])[: MOST_LINES - 1]
    found = [Line("s0", "all", [one.run.usd_per_thousand for one in nights])]
    for place, stage in enumerate(dearest if len(dearest) > 1 else (), start=1):
        values = [
            None if one.figures.usd_by_stage is None or not one.run.queries else 1000 * of.get(stage, 0.0) / one.run.queries
            for one, of in zip(nights, priced, strict=True)
        ]
        found.append(Line(f"s{place}", stage, values))
    return found


def _greatest(nights: Sequence[Night], against: str) -> list[Line]:
    """Returns, for each kind of distribution, the greatest PSI of a night."""
    found = []
    for place, kind in enumerate(HEADINGS):
        values: list[float | None] = []
        for one in nights:
            held: list[Stability | None] = [getattr(drift, against) for drift in one.drifts if drift.of.kind == kind]
            values.append(max((of.psi for of in held if of is not None), default=None))
        found.append(Line(f"s{place}", kind, values))
    return found


def _tables(nights: Sequence[Night]) -> list[DriftTable]:
    """Returns a table for each kind; of scores, whose bins differ, for each score."""
    rows: dict[tuple[str, str], list[tuple[str, Drift]]] = {}
    for one in reversed(nights):
        for drift in one.drifts:
            kind = drift.of.kind
            rows.setdefault((kind, drift.of.of if kind == SCORE else ""), []).append((one.run.night, drift))
    order = list(HEADINGS)
    found = []
    for (kind, score), of in sorted(rows.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        bins = ["found"] if kind == GUARD else list(dict.fromkeys(name for _, drift in of for name in drift.of.counts))
        title = f"{HEADINGS[kind]}: {score}" if score else HEADINGS[kind]
        name = "-".join(["drift", kind, *score.replace("'", "").split()])
        found.append(
            DriftTable(name, kind, title, bins, [DriftRow(night, drift, _shares(drift.of, bins)) for night, drift in of])
        )
    return found


def _shares(of: Distribution, bins: Sequence[str]) -> list[float | None]:
    return [of.counts.get(name, 0) / of.total if of.total else None for name in bins]


def _shifts(nights: Sequence[Night]) -> list[Shift]:
    """Returns the distributions that have shifted, those of the newest night first."""
    found = []
    for one in reversed(nights):
        for drift in one.drifts:
            held = (("the night before", drift.before), ("the first night", drift.first))
            words = [f"PSI {of.psi:.2f} to {name}" for name, of in held if of is not None and of.level == "shift"]
            if words:
                found.append(Shift(one.run.night, HEADINGS[drift.of.kind], drift.of.of, " and ".join(words)))
    return found
