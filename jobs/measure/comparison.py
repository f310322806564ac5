"""Compares the arms of an ablation with its baseline: means, differences, tests, slices, and notes on what they assume.

Families of tests, each measure on its own: the arms with a question of their own (those that are always there, `ablate.arms`
and the subsets), adjusted by Holm's method; and the grid, which is explored, by false discovery rates. Samples (the noise
floor), oracle arms (bounds that the judgements chose) and further names of an arm test nothing and are in no family.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from jobs.chain.arms.tasks import CRITERIA
from jobs.config.settings import EvaluateSettings
from jobs.job.measure_checks import check_baseline
from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers, answer_frame, answering, judged_answer_frames
from jobs.measure.frame import JUDGED_LISTS, LISTS, Frame, measure
from jobs.measure.judge import judged_relevance
from jobs.measure.missing_documents import unknown_documents
from jobs.measure.notes import PART, comparison_notes
from jobs.measure.significance import ALPHA, EQUIVALENT, SAMPLES, TIE, Corrected, adjusted, detectable, verdict
from jobs.measure.slices import Slice, slices_of
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import and_more
from rewriters.steps.settings import HIGHEST_GRADES

FULL, WITHOUT = "full", "without "
NOT_TESTED = "not tested"
FAMILIES = {
    "always": "the config itself, the original, each strategy alone",
    "arms": "arms of ablate.arms",
    "subsets": "subsets of the strategies",
    "grid": "combinations of ablate.grid",
    SAMPLES: "the config itself again, with answers of its own",
}
"""Family -> what its arms are."""


@dataclass(frozen=True)
class Difference(Corrected):
    """One arm to the baseline by one measure, over the counted keys; the baseline to itself, too.

    Intervals, of 95 %, are by Student's t over clusters; `p` is of the two-sided paired t-test over clusters. NaN is unknown:
    intervals and p-values with fewer than two clusters. Weights are the traffic; `wins` and `losses` are counts of keys.
    """

    arm: str
    measure: str
    mean: float
    weighted_mean: float
    condensed_mean: float
    difference: float
    low: float
    high: float
    weighted_difference: float
    condensed_difference: float
    p: float
    p_holm: float | None  # `p` adjusted within the family of `QUESTIONS`; None for the baseline and arms outside
    q: float | None  # false discovery rate within the grid; None for other arms
    p_equivalent: float  # the greater p of the two one-sided tests that the difference is within the margin
    wins: int
    ties: int
    losses: int
    detectable: float | None = None
    """Smallest true difference that the test finds with a power of 80 %, by its own variance, at .05 over the number of tests
    that are corrected together; None: it is not tested, or there is no variance."""
    baseline: str = ""

    @property
    def equivalent(self) -> bool:
        """Returns True if the test is in a family and the arm is within the margin; it may be better or worse nevertheless."""
        return self.corrected is not None and self.p_equivalent < ALPHA

    @property
    def verdict(self) -> str:
        if self.corrected is None:
            return NOT_TESTED
        return verdict(self.difference, self.corrected, self.p_equivalent)

    @property
    def signs(self) -> str:
        """Returns + or - for a difference that is clear by the corrected test, = for an equivalent arm, both or neither."""
        return self.sign + "=" * self.equivalent

    def verdict_within(self, margin: float) -> str:
        """Returns the verdict; of a clear difference, too, whether it is within the margin of equivalence."""
        clear = self.equivalent and self.verdict != EQUIVALENT
        return f"{self.verdict}, by less than {margin:g}" if clear else self.verdict


@dataclass
class Comparison:
    """All arms against one of them; without differences where nothing is measured."""

    frame: Frame
    baseline: str
    margin: float
    arms: Mapping[str, Mapping[str, Any]]
    """Arm -> its record in `run.json`: `family`, `members` of one that chooses by judgements, `reads_part_of` the answer to a
    joint request for these strategies, `same_as` an earlier arm, `also` further names in the grid or the subsets."""
    slices: Sequence[Slice] = ()
    notes: Sequence[str] = ()

    def named(self, arm: str) -> str:
        return f"{arm} {PART}" if self.arms[arm].get("reads_part_of") else arm

    @cached_property
    def families(self) -> dict[str, str]:
        """Returns arm -> always, arms, grid, subsets or samples."""
        return {name: arm["family"] for name, arm in self.arms.items()}

    @cached_property
    def oracles(self) -> frozenset[str]:
        """Returns the arms that are bounds: they choose by the judgements."""
        return frozenset(name for name, arm in self.arms.items() if arm.get("members"))

    @cached_property
    def untested(self) -> frozenset[str]:
        """Returns the arms that are the baseline, or an arm that is tested already, under another name."""
        systems = {arm: self.arms[arm].get("same_as") or arm for arm in self.frame.arms}
        names, tested = set[str](), {systems[self.baseline]}
        for arm in (arm for arm in self.frame.arms if arm != self.baseline):
            names.update([arm] if systems[arm] in tested else [])
            tested.add(systems[arm])
        return frozenset(names)

    @property
    def first(self) -> str:
        return self.frame.measures[0]

    @property
    def ordered(self) -> list[str]:
        """Returns the arms by the mean of the first measure, the best first; equal ones as they were given."""
        return sorted(self.frame.arms, key=lambda arm: -self.by_arm[arm, self.first].mean)

    @property
    def leader(self) -> str | None:
        """Returns the best arm that is compared with another; None where there is none."""
        left_out = self.untested | {self.baseline}
        return next((arm for arm in self.ordered if self.contends(arm) and arm not in left_out), None)

    def main_arms(self, most: int) -> list[str]:
        """Returns the arms by the first measure, the best first: `most`, among them always the baseline and `full`."""
        always = {self.baseline, FULL} & set(self.frame.arms)
        chosen = always | set([arm for arm in self.ordered if arm not in always][: max(0, most - len(always))])
        return [arm for arm in self.ordered if arm in chosen]

    def left_out(self) -> list[tuple[str, list[float]]]:
        """Returns strategy -> what each measure of the arm `full` loses without it, the greatest mean loss first.

        These are the rows of DMQR-RAG's Table 4, whose last column is over three data sets; here a mean is over the measures.
        """
        arms = {arm: arm for arm in self.frame.arms if arm.startswith(WITHOUT) and self.families.get(arm) == "subsets"}
        also = {name: arm for arm in self.frame.arms for name in self.arms[arm].get("also") or ()}
        arms |= {name: arm for name, arm in also.items() if name.startswith(WITHOUT)}
        if FULL not in self.frame.arms:
            return []
        means = dict(zip(self.frame.arms, self.frame.values.mean(axis=2), strict=True))
        losses = {name.removeprefix(WITHOUT): means[FULL] - means[arm] for name, arm in arms.items()}
        return sorted(((name, loss.tolist()) for name, loss in losses.items()), key=lambda row: -fmean(row[1]))

    def contends(self, arm: str) -> bool:
        """Returns True if an arm may be called best: oracles are upper bounds, and samples repeat an arm."""
        return arm not in self.oracles and self.families.get(arm) != SAMPLES

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Returns the differences to the baseline, by arm, then measure, in the frame's order; none without keys."""
        by_measure = [self._tested(place) for place in range(len(self.frame.measures))] if self.frame.keys else []
        return tuple(of_arm for of_measures in zip(*by_measure, strict=True) for of_arm in of_measures)

    @cached_property
    def by_arm(self) -> dict[tuple[str, str], Difference]:
        return {(one.arm, one.measure): one for one in self.differences}

    def _tested(self, index: int) -> list[Difference]:
        frame, outside = self.frame, self.oracles | self.untested | {self.baseline}
        base, keys = frame.arms.index(self.baseline), len(frame.keys)
        values, condensed = frame.values[:, index], frame.condensed[:, index]
        series = values - values[base]
        test = frame.difference_test(range(len(frame.arms)), base, index)
        known = bool((test.freedom > 0).all())
        p_holm, q = adjusted(test.p, [self.families[arm] if known and arm not in outside else None for arm in frame.arms])
        seen = detectable(test, p_holm, len(p_holm)) | detectable(test, q, len(q))
        means, condensed_means, weighted = values.mean(axis=1), condensed.mean(axis=1), values @ frame.weights
        wins, losses = (series > TIE).sum(axis=1), (series < -TIE).sum(axis=1)
        columns: dict[str, Any] = {
            "mean": means,
            "weighted_mean": weighted,
            "condensed_mean": condensed_means,
            "difference": test.mean,
            "low": test.low,
            "high": test.high,
            "weighted_difference": weighted - weighted[base],
            "condensed_difference": condensed_means - condensed_means[base],
            "p": test.p,
            "p_equivalent": frame.equivalence_p(test, index, self.margin),
            "wins": wins,
            "ties": keys - wins - losses,
            "losses": losses,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            Difference(
                arm, frame.measures[index], **dict(zip(columns, row, strict=True)),
                p_holm=p_holm.get(n), q=q.get(n), detectable=seen.get(n), baseline=self.baseline,
            )
            for n, (arm, row) in enumerate(zip(frame.arms, rows, strict=True))
        ]  # fmt: skip


def compare(run: RunFolder, judgements: Judgements, settings: EvaluateSettings, kind: str = LISTS) -> Comparison:
    """Returns the comparison of an ablation's arms by their lists; `kind`: that of the frame."""
    frame = measure(run, judgements, settings.measures, stay={baseline_of(run, settings)})
    return compare_frame(run, replace(frame, kind=kind, unknown=unknown_documents(run, judgements)), settings)


def comparisons(
    run: RunFolder, judgements: Judgements | None, settings: EvaluateSettings, gold: GoldAnswers | None
) -> list[Comparison]:
    """Returns the comparisons of an ablation's arms: by the lists, by gold answers, and by what a judge says.

    A judge's are those of the lists, where people have judged them, too, and of the answers in each kind of judgement. The
    baseline of answers is that of the lists; where it does not answer, the first arm that does, which is noted.
    """
    compared = [] if judgements is None else [compare(run, judgements, settings)]
    if gold is not None and answering(run):
        compared.append(compare_frame(run, answer_frame(run, gold), settings))
    by_people = judgements is not None and judgements.judge is None
    if by_people and (graded := judged_relevance(run)) is not None:
        by_judge = settings.model_copy(update={"measures": graded.measures(settings.measures)})
        compared.append(compare(run, graded, by_judge, JUDGED_LISTS))
    return compared + [compare_frame(run, frame, settings) for frame in judged_answer_frames(run)]


def margin_of(settings: EvaluateSettings, kind: str) -> float:
    """Returns the margin of equivalence of a kind of frame; that of the settings is on a scale from 0 to 1."""
    return settings.margin * (HIGHEST_GRADES[kind] if kind == CRITERIA else 1)


def baseline_of(run: RunFolder, settings: EvaluateSettings) -> str:
    """Returns the arm that the others are compared with, by the name that it has among the arms.

    Raises:
        ConfigError: the baseline is no arm.
    """
    names = {name: arm["name"] for arm in run.arms for name in (arm["name"], *(arm.get("also") or ()))}
    check_baseline(settings.baseline, names)
    return str(names[settings.baseline])


def compare_frame(run: RunFolder, frame: Frame, settings: EvaluateSettings) -> Comparison:
    """Returns the comparison of the arms of a frame, by any measures."""
    wanted, every = baseline_of(run, settings), {arm["name"]: arm for arm in run.arms}
    arms = {name: arm for name, arm in every.items() if name in frame.arms}
    baseline = wanted if wanted in arms else frame.arms[0]
    without = [name for name in every if name not in arms] if frame.answers else []
    notes = [f"no LLM answers for {and_more(without)}: not measured here"] if without else []
    notes += [f"compared with {baseline}, since {wanted} has no answers"] if baseline != wanted else []
    slices, slice_notes = slices_of(run, frame, settings.slices, baseline) if frame.keys else ([], [])
    comparison = Comparison(frame, baseline, margin_of(settings, frame.kind), arms, slices)
    comparison.notes = (*notes, *comparison_notes(comparison), *slice_notes)
    return comparison
