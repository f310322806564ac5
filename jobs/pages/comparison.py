"""A comparison for the terminal, at most 80 columns wide, and as JSON-able values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.comparison import Comparison, Difference
from jobs.measure.notes import HEADINGS, ends_in_words, interval_words
from jobs.measure.significance import ALPHA
from jobs.measure.standing import standing
from jobs.terminal.formats import figure, known, plain

MOST_ARMS = 20  # rows of the tables; the baseline and `full` are always among them
MOST_MEASURES = 5  # columns of the second table
_WIDTH = 76
_ARM_WIDTH = 26
BEST, SECOND = "¹", "²"


def comparison_table(comparison: Comparison) -> RenderableType:
    """Returns the arms by the first measure, those by all measures, the slices, and the notes; only a warning for nothing."""
    if not comparison.differences:
        return Text("\n".join(map(plain, comparison.notes)))
    shown = _shown(comparison)
    parts: list[RenderableType] = [_first_table(comparison, shown)]
    if len(comparison.frame.measures) > 1:
        parts += ["", _means_table(comparison, shown)]
    if comparison.slices:
        parts += ["", _slice_table(comparison)]
    left_out = len(comparison.frame.arms) - len(shown)
    notes = [
        f"{BEST} best, {SECOND} second best; + better, - worse than {comparison.baseline} (p or q < {ALPHA}), = equivalent",
        *([f"{left_out:,} more arms are not shown: --json and the report have them"] if left_out else []),
        *comparison.notes,
    ]
    return Group(*parts, Text("\n" + "\n".join(map(plain, notes))))


def comparison_tables(
    lists: Comparison | None, answers: Comparison | None, judged: Sequence[Comparison] = ()
) -> RenderableType:
    """Returns the tables of the arms by their lists, and below, under lines of their own, those by their answers.

    Args:
        lists: None: not measured.
        answers: against gold answers; likewise.
        judged: by what a judge says of the answers, a comparison for each kind.
    """
    parts: list[RenderableType] = [] if lists is None else [comparison_table(lists)]
    for one in (*([] if answers is None else [answers]), *judged):
        parts += [Text("\n" * bool(parts) + HEADINGS[one.frame.kind], style="bold"), comparison_table(one)]
    return Group(*parts)


def compared_values(lists: Comparison | None, answers: Comparison | None, judged: Sequence[Comparison] = ()) -> dict[str, Any]:
    """Returns the values of the lists, and those beside them: `answers`, `judged_answers`, `judged_results`; JSON-able."""
    values = {} if lists is None else comparison_values(lists)
    values |= {} if answers is None else {"answers": comparison_values(answers)}
    of_answers = {one.frame.kind: comparison_values(one) for one in judged if one.frame.answers}
    values |= {"judged_answers": of_answers} if of_answers else {}
    by_judge = next((one for one in judged if not one.frame.answers), None)
    return values | ({} if by_judge is None else {"judged_results": comparison_values(by_judge)})


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Returns the comparison as JSON-able values; unknown ones are None."""
    frame = comparison.frame
    arms = [
        {
            "arm": arm,
            "family": comparison.families[arm],
            "oracle": arm in comparison.oracles,
            "reads_part_of": list(comparison.parts.get(arm, ())) or None,
            "same_as": comparison.same_as.get(arm),
            "also": list(comparison.also.get(arm, ())),
            "failed": int(frame.failed[place]),
            "unjudged": float(frame.unjudged[place]),
            "measures": {
                name: {
                    key: value for key, value in asdict(comparison.by_arm[arm, name]).items() if key not in {"arm", "measure"}
                }
                for name in (frame.measures if comparison.differences else ())
            },
        }
        for place, arm in enumerate(frame.arms)
    ]
    counts = {name: getattr(frame, name) for name in ("judged", "missing", "not_committed", "rejected", "depth", "key")}
    judged_by = {} if frame.judge is None else {"judged_by": frame.judge.model}
    values = {
        **judged_by,
        "baseline": comparison.baseline,
        "margin": comparison.margin,
        "measures": list(frame.measures),
        **counts,
        "counted": len(frame.keys),
        "clusters": frame.drawn,
        "arms": arms,
        "slices": [asdict(one) for one in comparison.slices],
        "notes": list(comparison.notes),
    }
    return cast(dict[str, Any], known(values))


def marks(comparison: Comparison, measure: str) -> dict[str, str]:
    """Returns arm -> `BEST` or `SECOND` by the mean of a measure ."""
    found = standing(comparison)
    return dict.fromkeys(found.second[measure], SECOND) | dict.fromkeys(found.best[measure], BEST)


def sign(difference: Difference) -> str:
    """Returns + or - for a difference that is significant within its family, = for an equivalent arm, both or neither."""
    return difference.sign + "=" * difference.equivalent


def _shown(comparison: Comparison) -> list[str]:
    """Returns the best arms by the first measure, best first, with the baseline and `full`."""
    first = comparison.frame.measures[0]
    ranked = sorted(comparison.frame.arms, key=lambda arm: -comparison.by_arm[arm, first].mean)
    always = {comparison.baseline, "full"} & set(ranked)
    chosen = always | set([arm for arm in ranked if arm not in always][: MOST_ARMS - len(always)])
    return [arm for arm in ranked if arm in chosen]


def _table(title: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), min_width=_WIDTH)
    table.add_column(title, style="bold", overflow="fold", max_width=_ARM_WIDTH, ratio=1)
    return table


def _first_table(comparison: Comparison, shown: list[str]) -> Table:
    """Returns the arms by the first measure: mean, difference, interval, adjusted p."""
    first = comparison.frame.measures[0]
    best = marks(comparison, first)
    grid = any(comparison.by_arm[arm, first].q is not None for arm in shown)
    table = _table("")
    for title in (first, "difference", interval_words(), "seen from", "p or q" if grid else "p", ""):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for arm in shown:
        one = comparison.by_arm[arm, first]
        base = arm == comparison.baseline
        table.add_row(
            Text(plain(comparison.named(arm))),
            f"{figure(one.mean)}{best.get(arm, ''):<2}",
            "baseline" if base else figure(one.difference, "+"),
            "-" if base or math.isnan(one.low) else ends_in_words((one.low, one.high)),
            "" if one.detectable is None else figure(one.detectable),
            "bound" if arm in comparison.oracles else "same" if arm in comparison.untested else probability(one.corrected),
            sign(one),
        )
    return table


def _means_table(comparison: Comparison, shown: list[str]) -> Table:
    """Returns the arms' means by all measures, marked."""
    measures = comparison.frame.measures[:MOST_MEASURES]
    best = {name: marks(comparison, name) for name in measures}
    table = _table("means")
    for name in measures:
        table.add_column(name, justify="right", no_wrap=True, overflow="ellipsis", min_width=9)
    columns = []
    for name in measures:
        of_arms = [comparison.by_arm[arm, name] for arm in shown]
        after = [best[name].get(one.arm, "") + sign(one) for one in of_arms]
        width = max(3, *map(len, after))
        columns.append([f"{figure(one.mean)}{words:<{width}}" for one, words in zip(of_arms, after, strict=True)])
    for arm, *cells in zip(shown, *columns, strict=True):
        table.add_row(Text(plain(comparison.named(arm))), *cells)
    if len(comparison.frame.measures) > MOST_MEASURES:
        table.caption = Text(f"{', '.join(comparison.frame.measures[MOST_MEASURES:])}: see --json and the report")
    return table


def _slice_table(comparison: Comparison) -> Table:
    """Returns the first measure slice by slice, of one more arm, `full`, or the best where that is none, and its baseline."""
    ranked = [arm for arm in _shown(comparison) if arm != comparison.baseline and arm not in comparison.oracles]
    other = "full" if "full" in ranked else (ranked or [comparison.baseline])[0]
    baseline = comparison.baseline
    table = _table("slices")
    for title in ("keys", baseline, other, "difference"):
        table.add_column(Text(plain(title)), justify="right", no_wrap=True, overflow="ellipsis", max_width=16)
    for one in comparison.slices:
        mean, difference = one.means[other]
        cells = (f"{one.keys:,}{'?' if one.few else ' '}", figure(one.means[baseline][0]), figure(mean))
        table.add_row(Text(plain(f"{one.name}: {one.value}")), *cells, figure(difference, "+"))
    if any(one.few for one in comparison.slices):
        table.caption = Text("?: too few keys for the means to say much")
    return table


def probability(p: float | None) -> str:
    """Returns a p-value as tables have it."""
    return "-" if p is None else "<.0001" if p < 0.0001 else f"{p:.4f}"
