"""The head of the page: what was compared with what, by which tests, and what is to be known before reading on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from jobs.job.indexes import noted_changes
from jobs.measure.notes import judge_notes
from jobs.measure.standing import FAMILIES, Standing, verdict_words
from jobs.plan.work import Saving
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import number, p_equals, percent, sentence, signed

if TYPE_CHECKING:
    from jobs.measure.comparison import Comparison

MUCH_UNJUDGED = 0.2


@dataclass(frozen=True)
class FamilyRow:
    """A family of arms, and how its differences are corrected."""

    name: str
    words: str
    arms: int
    correction: str


@dataclass(frozen=True)
class WorkRow:
    """A quantity of work: of all arms on their own, and as it was done."""

    name: str
    naive: float
    executed: float

    @property
    def saved(self) -> float | None:
        """Returns the share of the work that was not done; None where there was none to do."""
        return 1 - self.executed / self.naive if self.naive else None


def family_rows(comparison: Comparison) -> list[FamilyRow]:
    """Returns the families with arms, in words."""
    counts = Counter(comparison.families[arm] for arm in comparison.frame.arms if arm in comparison.families)
    by_holm = sum(1 for one in comparison.differences if one.p_holm is not None and one.measure == comparison.frame.measures[0])
    corrections = {
        "grid": "q-values (Benjamini-Hochberg) within this family, by measure",
        "samples": "none: the noise floor",
    }
    together = f"Holm, over the {number(by_holm)} comparisons of the families always, arms and subsets, by measure"
    return [
        FamilyRow(name, words, counts[name], corrections.get(name, together))
        for name, words in FAMILIES.items()
        if counts[name]
    ]


def work_rows(saving: Saving) -> list[WorkRow]:
    """Returns the work that the arms share, by quantity."""
    naive, executed = saving.naive, saving.executed
    return [WorkRow(name, float(naive[name]), float(executed[name])) for name in naive if name in executed and naive[name]]


def lead(found: Standing) -> str:
    """Returns the best arm and what is known of it, in a sentence."""
    best = found.leader
    if best is None:
        return f"There is no arm to compare with {found.comparison.baseline}."
    baseline = found.comparison.baseline
    difference = found.differences.get((best, found.first))
    if difference is None:
        return f"{best} has the greatest mean {found.first}."
    p = difference.corrected
    word, _, limit = verdict_words(difference, found.comparison.margin).partition(",")
    known = {
        "better": "is better than", "worse": "is worse than", "equivalent": "is equivalent to",
    }.get(word)  # fmt: skip
    named = "q" if difference.p_holm is None else "corrected p"
    interval = (
        "" if isnan(difference.low) else f", 95 % interval {signed(difference.low)} to {signed(difference.high)}, unadjusted"
    )
    return (
        f"The best arm, {best}, {known or 'is not clearly different from'} {baseline}{',' * bool(limit)}{limit}: {found.first} "
        f"{signed(difference.difference)}{interval}" + ("." if p is None else f", {named} {p_equals(p)}.")
    )


def ablation_notices(run: RunFolder, comparison: Comparison | None, found: Standing | None) -> list[str]:
    """Returns what a reader must know before trusting the figures, a sentence each."""
    said = []
    arms = run.record["ablation"]["arms"]
    if not run.finished:
        said.append(f"This ablation is not finished ({run.state}). All figures are of the committed shards only.")
    said += [sentence(one) for one in noted_changes(run.starts)]
    if found is None:
        notes = comparison.notes if comparison else ("nothing is measured: there are no relevance judgements (evaluate.qrels)",)
        words = "; ".join(notes).removeprefix("warning: ")
        return [*said, f"{sentence(words)} What needs no judgements is still shown."]
    frame = found.comparison.frame
    said += [sentence(note) for note in judge_notes(frame.judge)]
    said += [f"{note}." for note in frame.left_out]
    lacking = [one["name"] for one in arms if one["name"] not in frame.arms]
    if lacking:
        said.append(f"{number(len(lacking))} of {number(len(arms))} arms were not measured: {', '.join(lacking[:5])}.")
    for count, words in (
        (frame.missing, "judged keys are not in the log and count for no arm"),
        (frame.not_committed, "judged keys are of queries that are not committed yet and count for no arm"),
        (frame.rejected, "judged log rows were rejected and count zero for every arm"),
    ):
        if count:
            said.append(f"{number(count)} {words}.")
    if frame.unknown is not None:
        said.append(f"{frame.unknown.note.removeprefix('warning: ')}.")
    worst = int(frame.failed.argmax())
    if frame.failed[worst]:
        said.append(
            f"Queries without results count zero: {number(frame.failed[worst])} of {number(len(frame.keys))} for the arm "
            f"{frame.arms[worst]}, the most of all."
        )
    least, most = unjudged(found)
    if most > MUCH_UNJUDGED:
        said.append(
            f"Nobody judged {percent(least)} to {percent(most)} of the results, by arm; they count as not relevant. See the "
            "condensed means, which leave them out."
        )
    return said


def unjudged(found: Standing) -> tuple[float, float]:
    """Returns the least and the greatest share of unjudged results of an arm; zeros where no arm has results."""
    shares = [float(share) for share in found.comparison.frame.unjudged if not isnan(share)] or [0.0]
    return min(shares), max(shares)


def outcomes(found: Standing) -> Counter[str]:
    """Returns how many arms are better, worse, equivalent or not clearly different, by the first measure."""
    counts: Counter[str] = Counter()
    for (arm, measure), difference in found.differences.items():
        if measure == found.first and found.contends(arm):
            counts[difference.verdict] += 1
    return counts
