"""The page of an ablation over sets: one self-contained HTML file, beside the pages of its sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from jobs.chain.arms.arms import FULL
from jobs.measure.compare.difference import Difference
from jobs.measure.compare.standing import mark
from jobs.measure.compare.standing import verdict as verdict_of
from jobs.measure.notes import TITLES, marked
from jobs.measure.sets.over_sets import OverSets, SetsComparison
from jobs.measure.sets.stratified import LEAST_SETS
from jobs.pages.ablation.pair_table import pair_table
from jobs.pages.charts import Axis, around_zero
from jobs.pages.render import render
from jobs.runs.folder import REPORT
from jobs.runs.sets.folder import SetsFolder
from jobs.terminal.formats import p_equals, signed

if TYPE_CHECKING:
    from jobs.pages.sets.compared import ComparedSets

MOST_DRAWN = 12  # arms whose differences are drawn set by set


@dataclass(frozen=True)
class SetMean:
    """A mean in the table."""

    value: float
    place: str
    mark: str
    deviation: float | None = None
    """Standard deviation over the arm's seeds on the set; None: there is one seed, or it is a mean over sets."""


@dataclass(frozen=True)
class SetsRow:
    """An arm in the table of all sets and measures."""

    arm: str
    family: str
    baseline: bool
    bound: bool
    means: list[SetMean]
    """Set by set, and over all, measure by measure."""
    over: OverSets
    """By the first measure."""
    verdict: str


@dataclass(frozen=True)
class DrawnArm:
    """The differences of one arm by the first measure, set by set and over all (None)."""

    arm: str
    lines: list[tuple[str | None, Difference | OverSets]]


def interval(one: Difference | OverSets) -> tuple[float, float] | None:
    """Returns the ends of a difference's interval; None where it is not known."""
    return None if isnan(one.low) else (one.low, one.high)


def sets_report(found: ComparedSets) -> str:
    """Returns the page as HTML.

    Raises:
        ConfigError: tables of a set cannot be read.
    """
    return render("sets.html.j2", found.folder, lambda: _values(found))


def _values(found: ComparedSets) -> dict[str, Any]:
    parts = [_part(kind, one) for kind, one in found.comparisons.items()]
    return {
        "texts": True,
        "parts": parts,
        "tabs": [(one["kind"], one["heading"], True) for one in parts],
        "set_pages": _set_pages(found.folder, found),
        "least_sets": LEAST_SETS,
        "interval": interval,
    }


def _set_pages(folder: SetsFolder, found: ComparedSets) -> list[dict[str, Any]]:
    """Returns of each set its name, the page of its own, relative to this one, and how many keys are counted by kind."""
    return [
        {
            "name": name,
            "page": f"{inner}/{REPORT}",
            "counted": [(TITLES[kind], len(one.frame.keys), one.frame.drawn) for kind, one in found.sets.get(name, {}).items()],
        }
        for name, inner in folder.record["sets"].items()
    ]


def _part(kind: str, found: SetsComparison) -> dict[str, Any]:
    """Returns the variables of one kind of measures."""
    said = {"kind": kind, "heading": TITLES[kind], "found": found}
    if not found.over:
        return said | {"rows": [], "drawn": [], "axis": around_zero([]), "lead": None}
    places = {(name, measure): found.places(name, measure) for name, measure in _columns(found)}
    rows = [_row(found, arm, places) for arm in found.ordered()]
    drawn = _drawn(found)
    pairs = pair_table(found.pairs, found.first, found.ordered(), found.min_effect, "t-test with the sets as strata")
    return said | {"rows": rows, "drawn": drawn, "axis": _axis(drawn), "lead": _lead(found), "pairs": pairs}


def _columns(found: SetsComparison) -> list[tuple[str | None, str]]:
    """Returns set and measure of each column; of one set there is no mean over sets."""
    return [(name, measure) for name, measure in found.columns if name is not None or len(found.sets) > 1]


def _row(found: SetsComparison, arm: str, places: dict[tuple[str | None, str], dict[str, str]]) -> SetsRow:
    means = [
        SetMean(
            found.mean(arm, name, measure),
            places[name, measure].get(arm, ""),
            marked(_mark(found, arm, name, measure), found.cut(arm, name, measure)),
            None if name is None else found.sets[name].by_arm[arm, measure].deviation,
        )
        for name, measure in _columns(found)
    ]
    over, base = found.over[arm, found.first], found.is_baseline(arm)
    verdict = "" if base else verdict_of(over, found.min_effect)
    return SetsRow(arm, found.families[arm], base, arm in found.oracles, means, over, verdict)


def _mark(found: SetsComparison, arm: str, name: str | None, measure: str) -> str:
    """Returns an arrow for a significant difference, two where its p is below .01."""
    one = found.tested(arm, name, measure)
    if found.is_baseline(arm):
        return ""
    return ("↑" if one.difference > 0 else "↓") * {"†": 1, "‡": 2}.get(mark(one), 0)


def _drawn(found: SetsComparison) -> list[DrawnArm]:
    """Returns the arms that are drawn: the config itself, and the best others."""
    left_out = {*found.baselines, *found.untested}
    ranked = [arm for arm in found.ordered() if arm not in left_out and found.contends(arm)]
    chosen = [arm for arm in ranked if arm == FULL] + [arm for arm in ranked if arm != FULL][: MOST_DRAWN - 1]
    names: list[str | None] = [*found.sets, None]
    return [DrawnArm(arm, [(name, found.tested(arm, name, found.first)) for name in names]) for arm in chosen]


def _axis(drawn: Sequence[DrawnArm]) -> Axis:
    ends = [end for one in drawn for _, line in one.lines for end in (line.low, line.high, line.difference) if isfinite(end)]
    return around_zero(ends)


def _lead(found: SetsComparison) -> str:
    """Returns what the table says first, in one sentence."""
    left_out = {*found.baselines, *found.untested}
    best = next((arm for arm in found.ordered() if found.contends(arm) and arm not in left_out), None)
    if best is None:
        return f"No arm stands beside {found.baseline}."
    one, count = found.over[best, found.first], len(found.sets)
    ends = f" (95 % interval {signed(one.low)} to {signed(one.high)})" if not isnan(one.low) else ""
    p = "" if one.corrected is None else f", corrected p {p_equals(one.corrected)}"
    return (
        f"Over {count:,} set{'s' * (count != 1)} {best} has the best mean {found.first} beside the baseline, {one.mean:.4f}: "
        f"{signed(one.difference)} to {found.base_of(one.arm)}{ends}{p}; it is above it on {one.wins:,} of {count:,}."
    )
