"""The end of an ablation: its arms are compared, and its page and values are written beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.costs import Prices
from cluster.storage.s3_duckdb import kept_duckdb
from jobs.config.settings import EvaluateSettings
from jobs.counts import QUANTITIES, by_arm
from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers
from jobs.measure.comparison import Comparison
from jobs.measure.costs import ArmCost, GatedArm, arm_costs, gated_arms
from jobs.measure.export.tables import LONG, long_tables, write_tables
from jobs.measure.funnel import Funnel, funnel
from jobs.measure.judged import judge_models
from jobs.measure.worth import Worth, worth
from jobs.pages.ablation import ablation_report
from jobs.pages.comparison import Comparisons, comparison_values, comparisons
from jobs.pages.render import write_page
from jobs.pages.summary import fallback_rows, spending_rows
from jobs.plan.work import Saving, saved
from jobs.runs.folder import REPORT, RunFolder
from jobs.runs.sums import found_by_guards
from jobs.runs.traffic import covered_words
from jobs.terminal.formats import figure, known
from jobs.terminal.tables import facts

PER_QUERY = "per_query.parquet"


@dataclass(frozen=True)
class ComparedArms:
    """An ablation with all that is known of its arms."""

    folder: RunFolder
    prices: Prices | None
    saving: Saving
    comparisons: Comparisons
    funnel: Funnel | None
    worth: Sequence[Worth]
    costs: Sequence[ArmCost]
    gates: Sequence[GatedArm] = ()
    """Of the arms that have one, what it saves and loses."""

    @property
    def comparison(self) -> Comparison | None:
        """Returns the comparison by the lists."""
        return self.comparisons.lists

    @property
    def usd(self) -> float | None:
        """Returns what it has cost, in USD; None without prices."""
        return None if self.prices is None else self.folder.bill(self.prices).usd

    @property
    def leading(self) -> str:
        """Returns the first measure of the best arm that is compared with another; empty where nothing was measured."""
        found = self.comparison
        if found is None or not found.differences or found.leader is None:
            return ""
        best, baseline = (f"of {arm} {figure(found.by_arm[arm, found.first].mean)}" for arm in (found.leader, found.baseline))
        return f"{found.first} {best}, {baseline}"


@kept_duckdb()
def compared(
    folder: RunFolder,
    judgements: Judgements | None,
    settings: EvaluateSettings,
    prices: Prices | None,
    gold: GoldAnswers | None = None,
    *,
    by_judge: bool = True,
) -> ComparedArms:
    """Returns what is known of the arms of an ablation; `by_judge`: also by what a judge says of answers, where one does.

    Raises:
        ConfigError: files of the ablation cannot be read, or the settings do not fit it.
    """
    found = comparisons(folder, judgements, settings, gold, by_judge=by_judge)
    gains: dict[str, float] = {}
    if (comparison := found.lists) is not None:
        first = comparison.frame.measures[0]
        gains = {one.arm: one.difference for one in comparison.differences if one.measure == first}
    return ComparedArms(
        folder,
        prices,
        saved(folder),
        found,
        # a judge grades the results alone, so it knows nothing of what was lost on the way
        None if judgements is None or judgements.judge is not None else funnel(folder, judgements),
        worth(folder) or (),
        arm_costs(folder, prices, gains),
        gated_arms(folder, prices, comparison),
    )


def write_pages(found: ComparedArms, out: str | None = None, *, texts: bool) -> None:
    """Writes the report to `out`, or into the ablation's folder, and there, where arms were measured, per_query.parquet.

    Raises:
        ConfigError: tables cannot be read.
    """
    storage = found.folder.storage
    write_page(out or storage.url(REPORT), ablation_report(found, texts=texts))
    measured = [one.frame for one in found.comparisons.found if one.differences]
    if measured and out is None:
        write_tables(storage.url(PER_QUERY), LONG, long_tables(*measured))


def closing_page(found: ComparedArms) -> RenderableType:
    """Returns what the terminal shows of an ablation: the work that arms shared, what it cost, and how they compare."""
    table = facts(_rows(found), found.folder.record["run_id"])
    parts: list[RenderableType] = [table, Text("")]
    if found.comparison is None:
        parts = [table, Text("not measured: evaluate.qrels names no judgements, and no judge.relevance is set")]
    if found.comparisons.found:
        parts.append(found.comparisons.page())
    return Group(*parts)


def _rows(found: ComparedArms) -> Iterator[tuple[str, RenderableType]]:
    folder = found.folder
    arms = folder.record["ablation"]["arms"]
    over = f"over {folder.plan.counts['queries']:,} distinct queries"
    if not folder.finished:
        over += f"; {folder.counts['queries']:,} committed{covered_words(folder.plan, folder.counts)}"
    yield "arms", f"{len(arms):,} of {len(arms):,}, {over}"
    for kind in QUANTITIES:
        naive, executed, reused = (of[kind] for of in (found.saving.naive, found.saving.executed, found.saving.reused))
        if naive:
            again = f", {reused:,} of them from the store" if reused else ""
            times = f"{naive / executed:.1f} times less" if executed else "nothing"
            sides = (" with retries", " without") if kind == "requests" else ("", "")
            yield kind.replace("_", " "), f"{executed:,}{sides[0]} in place of {naive:,}{sides[1]} ({times}){again}"
    if folder.config.judge is not None:
        judges = ", ".join(judge_models(folder)) or "a judge"
        yield "judge", f"{folder.counts.get('judgements', 0):,} grades by {judges}, each document of a query once for all arms"
    for arm, flags in arm_guards(folder).items():
        yield "guards", f"{arm}: " + ", ".join(f"{flag} {n:,}" for flag, n in flags.items())
    for one in [one for one in found.gates if one.without is not None] or found.gates:
        yield "gate", f"{one.arm}: {one.words}"
    yield from fallback_rows(folder.counts)
    yield from spending_rows(folder, found.prices)
    if folder.storage.get(REPORT) is not None:
        yield "report", Text(folder.storage.url(REPORT), overflow="fold")


def closing_values(found: ComparedArms) -> dict[str, Any]:
    """Returns the same as JSON-able values."""
    values = {
        "run_id": found.folder.record["run_id"],
        "folder": found.folder.storage.root,
        "arms": found.folder.record["ablation"]["arms"],
        "work": found.saving.values(),
        "guards": arm_guards(found.folder),
        "costs": [vars(one) for one in found.costs],
        "gates": [asdict(one) for one in found.gates],
        "worth": [vars(one) for one in found.worth],
        "comparison": None if found.comparison is None else comparison_values(found.comparison),
    }
    values |= {"answers": None, "judged_answers": {}, "judged_results": None} | found.comparisons.values_beside()
    return cast(dict[str, Any], known(values))


def arm_guards(folder: RunFolder) -> dict[str, dict[str, int]]:
    """Returns arm -> flag of a guard -> texts that have it, all strategies together; without arms that have none."""
    arms = [one["name"] for one in folder.record["ablation"]["arms"]]
    flags = {arm: {one.name: one.total for one in found_by_guards(own)} for arm, own in by_arm(folder.counts, arms).items()}
    return {arm: named for arm, named in flags.items() if named}
