"""Judgements from the events of a log, and what was used, dropped and estimated: as values, and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from jobs.clicks.export import EventChoice
from jobs.clicks.grades import LEFT_OUT, Graded, Grading, counts_of, graded
from jobs.clicks.interactions import DROPPED, SEARCHES, Interactions, read_interactions
from jobs.clicks.models import ClickEstimate, ClickModel, estimate
from jobs.config.config import Config

SHOWN_PLACES = 10  # of the page; --json has all


@dataclass(frozen=True)
class ClickJudgements:
    """Judgements from clicks, and how they came about."""

    interactions: Interactions
    estimate: ClickEstimate
    graded: Graded
    grading: Grading


def click_judgements(config: Config, reading: EventChoice, model: ClickModel, grading: Grading) -> ClickJudgements:
    """Returns judgements from the clicks of a job's log.

    Raises:
        ConfigError: the log is no UBI.
        LogError: the log or its events cannot be read or used.
    """
    interactions = read_interactions(config, reading)
    found = estimate(interactions.cells, model)
    return ClickJudgements(interactions, found, graded(interactions.cells, found, grading), grading)


def click_values(found: ClickJudgements) -> dict[str, Any]:
    """Returns all figures for `--json`."""
    seen, said = found.interactions, found.estimate
    judged = found.graded.judged
    return {
        "model": said.model,
        "rounds": said.rounds,
        "converged": said.converged,
        "events": seen.events,
        "other_actions": seen.other_actions,
        "clicks": {"used": seen.used, "dropped": seen.dropped, "displaced": seen.displaced},
        "searches": {"used": seen.searches, "left_out": seen.left_out},
        "pairs": {
            "shown": found.graded.pairs.num_rows,
            "judged": judged.num_rows,
            "queries": len(judged.column("query_id").unique()),
            "grades": {str(grade): n for grade, n in _grades(found).items()},
            "left_out": found.graded.left_out,
        },
        "places": _places(found),
    }


def click_page(found: ClickJudgements) -> RenderableType:
    """Returns the figures as a page of the terminal."""
    seen, values = found.interactions, click_values(found)
    flow = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    flow.add_column(justify="right")
    flow.add_column()

    def row(n: int, words: str) -> None:
        flow.add_row(f"{n:,}", words)

    row(seen.events, "events")
    row(seen.other_actions, "of other actions")
    for reason, n in seen.dropped.items():
        row(n, f"clicks dropped: {DROPPED[reason]}")
    row(seen.used, "clicks used")
    if seen.displaced:
        row(seen.displaced, "of them with another position.ordinal than their place in the list, which counts")
    row(seen.searches, "searches used")
    for reason, n in seen.left_out.items():
        row(n, f"searches left out: {SEARCHES[reason]}")
    row(values["pairs"]["shown"], "(query, document) pairs shown")
    for reason, n in found.graded.left_out.items():
        row(n, f"pairs left out: {LEFT_OUT[reason]}")
    grades = ", ".join(f"{n:,} of grade {grade}" for grade, n in reversed(_grades(found).items()))
    row(values["pairs"]["judged"], f"pairs judged, of {values['pairs']['queries']:,} queries: {grades}")
    places = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("place", "impressions", "clicks", "clicks/impressions", "propensity"):
        places.add_column(name, justify="right")
    for place in values["places"][:SHOWN_PLACES]:
        rate = f"{place['clicks'] / place['impressions']:.3f}" if place["impressions"] else ""
        propensity = "" if place["propensity"] is None else f"{place['propensity']:.3f}"
        places.add_row(str(place["place"]), f"{place['impressions']:,}", f"{place['clicks']:,}", rate, propensity)
    end = f"{found.estimate.model}, {found.estimate.rounds:,} rounds"
    end += "" if found.estimate.converged else "; propensities still moved: take more days of the log, or --model coec"
    more = len(values["places"]) - SHOWN_PLACES
    return Group(flow, "", places, f"{end}; {more} deeper places in --json" if more > 0 else end)


def _grades(found: ClickJudgements) -> dict[int, int]:
    return counts_of(found.graded, range(len(found.grading.thresholds) + 1))


def _places(found: ClickJudgements) -> list[dict[str, Any]]:
    cells, propensity = found.interactions.cells, found.estimate.propensity
    shown, clicks = (np.bincount(cells.rank - 1, column) for column in (cells.shown, cells.clicked))
    return [
        {
            "place": place,
            "impressions": int(shown[place - 1]),
            "clicks": int(clicks[place - 1]),
            "propensity": None if np.isnan(value) else round(float(value), 6),
        }
        for place, value in enumerate(propensity, 1)
    ]
