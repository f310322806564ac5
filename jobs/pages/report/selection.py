"""What was selected: how many strategies and texts a query has (the paper's Figure 2), which strategies, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from jobs.pages.charts import drawing, element
from jobs.pages.report.figures import Figures
from jobs.runs.reading import database, files, queries_of, spread
from jobs.runs.sums import Selected
from jobs.terminal.formats import number, percent

WIDTH, HEIGHT = 320.0, 110.0  # of the bars
ABOVE, BELOW = 18.0, 20.0  # room for the shares and the numbers
NARROW = 34.0  # a column that is narrower has no share above it
SHARDS = 8  # that reasons are taken from
REASONS = 2  # for each number of selected strategies


@dataclass(frozen=True)
class Histogram:
    """The distribution of a number over the queries."""

    title: str
    mean: float
    svg: Markup


@dataclass(frozen=True)
class SelectionReason:
    """Why strategies were selected for a query."""

    query_id: str
    query: str
    strategies: list[str]
    reason: str


@dataclass(frozen=True)
class Selection:
    """What was selected for the committed queries."""

    kind: str
    """`gate` alone, or the config's `rewrite.select.kind`."""
    all: Selected
    by_type: dict[str, Selected]
    """Query type -> what was selected; empty where queries have no type."""
    histograms: list[Histogram]
    reasons: list[SelectionReason]


def selection(figures: Figures, *, texts: bool) -> Selection | None:
    """Returns what was selected, and with `texts` why; None for a run that does not select, or without a committed query."""
    chosen, run = figures.selected, figures.run
    if chosen is None:
        return None
    by_type = {name: one for name, one in figures.selected_by_type.items() if name}
    histograms = [histogram("selected strategies per query", chosen.numbers, len(figures.strategies))]
    if chosen.texts != chosen.numbers:
        histograms.append(histogram("rewrites per query", chosen.texts, 0))
    # a type says why, and so does chance
    told = texts and not by_type and run.config.rewrite.select.kind != "random_k"
    reasons = _reasons(figures) if told else []
    rewrite = run.config.rewrite
    return Selection(rewrite.select.kind if rewrite.chooses else "gate", chosen, by_type, histograms, reasons)


def histogram(title: str, numbers: Counter[int], most: int) -> Histogram:
    """Returns the drawing of number -> queries, from 0 to the greatest number, at least to `most`."""
    total, last = numbers.total(), max([most, *numbers])
    column = WIDTH / (last + 1)
    highest = max(numbers.values())
    floor, height = ABOVE + HEIGHT, ABOVE + HEIGHT + BELOW
    parts, words = [element("line", x1=0, x2=WIDTH, y1=floor, y2=floor)], []
    for n in range(last + 1):
        count, x = numbers[n], column * (n + 0.5)
        top = floor - HEIGHT * count / highest
        words.append(f"{n}: {number(count)} queries, {percent(count / total)}")
        size = {"x": x - 0.35 * column, "y": top, "width": column * 0.7, "height": max(floor - top, 1.0 * bool(count))}
        parts.append(element("rect", element("title", words[-1]), **size))
        if count and column >= NARROW:
            parts.append(element("text", percent(count / total), class_="share", x=x, y=top - 4))
        parts.append(element("text", n, x=x, y=height - 5))
    mean = sum(n * count for n, count in numbers.items()) / total
    return Histogram(title, mean, drawing(WIDTH, height, *parts, label=f"{title}: {'; '.join(words)}"))


def _reasons(figures: Figures) -> list[SelectionReason]:
    """Returns some reasons, of every number of selected strategies; of a few shards, the first by query_id."""
    run = figures.run
    manifests = spread(run.manifests, SHARDS)
    names = files(run, "selections", manifests)
    if not names:
        return []
    query = f"""
        SELECT query_id, strategies, reason FROM rows_of(?) WHERE trim(coalesce(reason, '')) != ''
        QUALIFY row_number() OVER (PARTITION BY len(strategies) ORDER BY query_id) <= {REASONS}
        ORDER BY len(strategies), query_id
    """
    with database() as connection:
        rows = connection.execute(query, [names]).fetchall()
    wanted = {row[0] for row in rows}
    queries: dict[str, str] = {}
    for manifest in manifests:
        if wanted - queries.keys():
            queries |= {query_id: text for query_id, text, _ in queries_of(run, manifest.shard) if query_id in wanted}
    return [SelectionReason(query_id, queries[query_id], strategies, reason) for query_id, strategies, reason in rows]
