"""The end of an ablation: its arms are compared, and its page, values and closing table are written.

The page says which arm is best and by how much, what each strategy brings, what arms cost, and which queries move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import Any, cast

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cluster.prices import Prices
from cluster.storage.s3_duckdb import kept_duckdb
from jobs.config.settings import EvaluateSettings
from jobs.counts import QUANTITIES, by_arm
from jobs.job.indexes import noted_changes
from jobs.log.judgements import Judgements
from jobs.measure.answers import GoldAnswers
from jobs.measure.comparison import FAMILIES, FULL, Comparison, comparisons
from jobs.measure.costs import ArmCost, GatedArm, arm_costs, gated_arms
from jobs.measure.exports import LONG, long_tables, write_tables
from jobs.measure.judged import judge_models
from jobs.measure.notes import EXPLAINED, HEADINGS, TITLES
from jobs.measure.significance import TIE
from jobs.measure.strategies import TOP, Funnel, Worth, funnel, worth
from jobs.pages.charts import Point, gains, scatter
from jobs.pages.comparison import Comparisons, arms_table, comparison_values, means_table, signs_note, slices_table
from jobs.pages.render import Chart, Head, Marked, Notes, Section, Table, Tile, Tiles, difference, write_page
from jobs.pages.sections import configuration, run_page, time_section
from jobs.pages.summary import spending_rows
from jobs.runs.folder import REPORT, RunFolder
from jobs.runs.saving import Saving, saved
from jobs.runs.sums import found_by_guards
from jobs.runs.tally import covered_words
from jobs.terminal.formats import count, duration, figure, known, money, percent, sentence
from jobs.terminal.tables import facts

PER_QUERY = "per_query.parquet"
MOST_ARMS = 50  # rows of a table; --json has the others
MOST_QUERIES = 10  # that gained most, and that lost most
MUCH_UNJUDGED = 0.2
MOST_BARS = 400  # of queries, evenly spread in their order


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
    """Returns what is known of the arms of an ablation; `by_judge`: also by what a judge says of answers, where one does."""
    found = Comparisons(comparisons(folder, judgements, settings, gold, by_judge=by_judge))
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
        worth(folder),
        arm_costs(folder, prices, gains),
        gated_arms(folder, prices, comparison),
    )


def write_pages(found: ComparedArms, out: str | None = None, *, texts: bool) -> None:
    """Writes the report to `out`, or into the ablation's folder, and there, where arms were measured, per_query.parquet."""
    storage = found.folder.storage
    write_page(out or storage.url(REPORT), ablation_report(found, texts=texts))
    measured = [one.frame for one in found.comparisons.every if one.differences]
    if measured and out is None:
        write_tables(storage.url(PER_QUERY), LONG, long_tables(*measured))


def closing_page(found: ComparedArms) -> RenderableType:
    """Returns what the terminal shows of an ablation: the work that arms shared, what it cost, and how they compare."""
    table = facts(_rows(found), found.folder.record["run_id"])
    parts: list[RenderableType] = [table, Text("")]
    if found.comparison is None:
        parts = [table, Text("not measured: evaluate.qrels names no judgements, and no judge.relevance is set")]
    if found.comparisons.every:
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
        "costs": found.costs,
        "gates": found.gates,
        "worth": found.worth,
        "comparison": None if found.comparison is None else comparison_values(found.comparison),
    }
    values |= {"answers": None, "judged_answers": {}, "judged_results": None} | found.comparisons.values_beside()
    return cast(dict[str, Any], known(values))


def arm_guards(folder: RunFolder) -> dict[str, dict[str, int]]:
    """Returns arm -> flag of a guard -> texts that have it, all strategies together; without arms that have none."""
    arms = [one["name"] for one in folder.record["ablation"]["arms"]]
    flags = {arm: {one.name: one.total for one in found_by_guards(own)} for arm, own in by_arm(folder.counts, arms).items()}
    return {arm: named for arm, named in flags.items() if named}


def ablation_report(found: ComparedArms, *, texts: bool = True) -> str:
    """Returns the report of an ablation as one HTML page; without `texts` it has no query."""
    return run_page(found.folder, "Report of an ablation", _sections(found, texts), texts=texts)


def _sections(found: ComparedArms, texts: bool) -> Iterator[Section | None]:
    compared = found.comparison
    stand = compared if compared is not None and compared.frame.keys else None
    yield _verdict(found, stand)
    if stand is not None:
        yield _arms(stand, "arms", "Arms")
        yield _left_out(stand)
    for one in found.comparisons.beside:
        if one.frame.keys:
            yield _arms(one, one.frame.kind, TITLES[one.frame.kind], EXPLAINED[one.frame.kind])
        else:
            yield Section(one.frame.kind, TITLES[one.frame.kind], sentence("; ".join(one.notes)))
    yield _strategies(found)
    yield _cost(found, stand)
    if stand is not None:
        yield _queries(stand, texts)
        if stand.slices:
            words = f"{stand.first}, part by part of the judged queries."
            yield Section("slices", "Slices", words, [slices_table(stand)])
    yield time_section(found.folder)
    if stand is not None:
        families = [f"{name}: {words}" for name, words in FAMILIES.items() if name in stand.families.values()]
        yield Section("method", "Method", parts=[Notes([*stand.notes, *families])], folded=True)
    yield configuration(found.folder)


def _verdict(found: ComparedArms, stand: Comparison | None) -> Section:
    arms, run = found.folder.record["ablation"]["arms"], found.folder
    tiles = [Tile("arms", count(len(arms)), f"over {count(run.counts['queries'])} queries")]
    if found.usd is not None:
        tiles.append(Tile("cost of all arms together", money(found.usd)))
    naive, executed = found.saving.naive, found.saving.executed
    for name, alone in naive.items():
        if alone and name in executed:
            title = f"{name.replace('_', ' ')} that were made"
            tiles.append(Tile(title, count(executed[name]), f"arms on their own: {count(alone)}"))
    words = "Nothing is measured." if stand is None else f"There is no arm to compare with {stand.baseline}."
    if stand is not None and (best := stand.leader) is not None:
        one, base, first = stand.by_arm[best, stand.first], stand.baseline, stand.first
        ends = "" if isnan(one.low) else f"95 % interval {figure(one.low, '+')} to {figure(one.high, '+')}"
        state = {"better": "good", "worse": "bad"}.get(one.verdict, "")
        tiles.insert(0, Tile(f"{first} of {best} over {base}", figure(one.difference, "+"), ends, state))
        # no more than the figures hold
        known = {"better": f"is better than {base}", "worse": f"is worse than {base}", "equivalent": f"is equivalent to {base}"}
        named = known.get(one.verdict, f"does not clearly differ from {base}")
        limit = one.verdict_within(stand.margin).removeprefix(one.verdict)
        p = one.corrected
        corrected = "" if p is None else ", corrected p " + ("below .001" if p < 0.001 else f"{p:.3f}")
        words = f"The best arm, {best}, {named}{limit}: "
        words += f"{first} {figure(stand.by_arm[base, first].mean)} → {figure(one.mean)}{corrected}."
    return Section("verdict", "", words, [Notes(_notices(found, stand), warns=True), Tiles(tiles)])


def _notices(found: ComparedArms, stand: Comparison | None) -> list[str]:
    """Returns what a reader must know before trusting the figures, a sentence each."""
    run, compared = found.folder, found.comparison
    notices = []
    if not run.finished:
        notices.append(f"This ablation is not finished ({run.state}). All figures are of the committed shards only.")
    notices += [sentence(one) for one in noted_changes(run.starts)]
    if stand is None:
        why = compared.notes if compared else ("nothing is measured: there are no relevance judgements (evaluate.qrels)",)
        return [*notices, sentence("; ".join(why).removeprefix("warning: "))]
    frame = stand.frame
    if frame.judge is not None:
        notices.append(f"Judged by {frame.judge.model}, an LLM, and LLMs over-rate: differences tell more than means.")
    notices += [sentence(note) for note in frame.left_out]
    names = [one["name"] for one in run.record["ablation"]["arms"]]
    if lacking := [name for name in names if name not in frame.arms]:
        notices.append(f"{len(lacking):,} of {len(names):,} arms were not measured: {', '.join(lacking[:5])}.")
    if frame.not_committed:
        notices.append(f"{frame.not_committed:,} judged keys are of queries that are not committed yet and count for no arm.")
    if frame.unknown is not None:
        notices.append(f"{frame.unknown.note.removeprefix('warning: ')}.")
    if (most := float(np.nanmax([0.0, *frame.unjudged]))) > MUCH_UNJUDGED:
        notices.append(f"Nobody judged up to {percent(most)} of an arm's results; they count as not relevant.")
    return notices


def _arms(stand: Comparison, name: str, title: str, explained: str = "") -> Section:
    """Returns the arms by the first measure, and by all measures."""
    frame = stand.frame
    what = "queries with gold answers" if frame.gold else "judged queries"
    arms = stand.main_arms(MOST_ARMS)
    more = f" The best {len(arms):,} are shown; --json and per_query.parquet have all." if len(arms) < len(frame.arms) else ""
    words = f"{len(frame.arms):,} arms over {len(frame.keys):,} {what}, {HEADINGS[frame.kind]}.{more}"
    tables = [arms_table(stand, arms, wide=True)]
    tables += [means_table(stand, arms)] if len(frame.measures) > 1 else []
    tables += [slices_table(stand)] if stand.slices and frame.answers else []
    notes = [explained, signs_note(stand), "seen from: the smallest true difference that the test finds with 80 % power"]
    return Section(name, title, words, [*tables, Notes([one for one in notes if one])])


def _left_out(stand: Comparison) -> Section | None:
    losses, measures = stand.left_out(), stand.frame.measures
    if not losses:
        return None
    labels = [*(f"loss of {name}" for name in measures), "mean loss"]
    columns = [Head("left out"), *(Head(label, difference) for label in labels)]
    table = Table(columns, [[name, *of, fmean(of)] for name, of in losses])
    words = f"What {FULL} loses without a strategy; most without {losses[0][0]}: {figure(losses[0][1][0], '+')} {stand.first}."
    return Section("left-out", "Leave one out", words, [table])


def _strategies(found: ComparedArms) -> Section | None:
    """Returns what each strategy found: with judgements its relevant documents on their way, and its share of the results."""
    if not found.worth:
        return None
    funnel, columns, words = found.funnel, [Head("strategy")], "What each strategy's lists bring beside those of the original."
    if funnel:
        steps = ("after fusion", "after the reranker", f"in the first {TOP}")
        labels = ["relevant documents found", "found by it alone", *(f"of these {step}" for step in steps)]
        columns += [Head(label, count) for label in labels]
        words = f"{funnel.judged_queries:,} queries have {funnel.relevant:,} relevant documents; "
        words += f"lists hold {funnel.found:,} of them."
    columns += [Head("results that the original has not, per query", lambda value: f"{value:.2f}")]
    columns += [Head("their share of all results", percent), Head("best reranker score over the original's", difference)]
    rows = [
        [
            one.strategy,
            *(funnel.strategies[one.strategy] if funnel else ()),
            one.increment,
            one.increment_share,
            one.reranker_gain,
        ]
        for one in found.worth
    ]
    return Section("strategies", "Strategies", words, [Table(columns, rows)])


def _cost(found: ComparedArms, stand: Comparison | None) -> Section | None:
    if not found.costs:
        return None
    priced = any(one["standalone_usd"] is not None for one in found.costs)
    shown = set(stand.main_arms(MOST_ARMS)) if stand is not None else {one["arm"] for one in found.costs[:MOST_ARMS]}
    further = ("rounds", "grades", "web_searches", "answers", "judgements")
    more = [name for name in further if any(one[name] for one in found.costs)]
    columns = [Head("arm")]
    columns += [Head("alone, USD", money), Head("saved without it, USD", money)] if priced else []
    names = ["requests", "searches", "pairs", *more]
    columns += [*(Head(name.replace("_", " "), count) for name in names), Head("work of workers", duration)]
    rows = [
        [one["arm"], *([one["standalone_usd"], one["marginal_usd"]] * priced), *(one[name] for name in names), one["seconds"]]
        for one in found.costs
        if one["arm"] in shown
    ]
    note = "alone: as if only this arm were run; saved without it: what no other arm needs. " * priced
    note += "Fusing and start-up are no part."
    naive, executed = found.saving.naive, found.saving.executed
    saved = ", ".join(f"{executed[name]:,} {name.replace('_', ' ')} in place of {of:,}" for name, of in naive.items() if of)
    words = f"Arms share what they need: {saved}." if saved else ""
    gates = Notes([sentence(f"gate of {one.arm}: {one.words}") for one in found.gates])
    return Section("cost", "Cost", words, [*_cost_chart(found, stand), Table(columns, rows, note=note), gates])


def _cost_chart(found: ComparedArms, stand: Comparison | None) -> list[Chart]:
    """Returns quality against cost, in USD, or in seconds of workers without prices; nothing with fewer than two arms."""
    if stand is None:
        return []
    able = [one for one in found.costs if one["arm"] in stand.frame.arms and stand.contends(one["arm"])]
    usd = {one["arm"]: one["standalone_usd"] for one in able if one["standalone_usd"] is not None}
    spent = usd if len(usd) > 1 else {one["arm"]: one["seconds"] for one in able if one["seconds"] is not None}
    if len(spent) < 2 or max(spent.values()) <= 0:
        return []
    words, across = (money, "USD of the arm alone") if spent is usd else (duration, "work of the arm alone")
    quality = {arm: stand.by_arm[arm, stand.first].mean for arm in spent}
    front, baselines = pareto_front(spent, quality), {stand.baseline}
    order = sorted(spent, key=lambda arm: (arm not in baselines, arm not in front, -quality[arm]))
    named = {*baselines, *front, FULL}

    def point(arm: str) -> Point:
        kind = "baseline" if arm in baselines else stand.families.get(arm, "")
        told = f"{arm}: {words(spent[arm])}, {figure(quality[arm])}"
        return Point(spent[arm], quality[arm], told, kind, arm if arm in named else "")

    families = [name for name in dict.fromkeys(stand.families.values()) if name != "samples"]
    legend = [("front", "no arm is cheaper and as good"), ("baseline", "baseline")]
    drawn = scatter([*map(point, order)], across, stand.first, words, [*map(point, front)])
    return [Chart("Quality against cost", drawn, [*legend, *((name, FAMILIES[name]) for name in families)])]


def pareto_front(spent: dict[str, float], quality: dict[str, float]) -> list[str]:
    """Returns the arms than which none is cheaper and at least as good, or as cheap and better; the cheapest first."""
    front: list[str] = []
    for arm in sorted(spent, key=lambda arm: (spent[arm], -quality[arm])):
        if not front or quality[arm] > quality[front[-1]]:
            front.append(arm)
    return front


def _queries(stand: Comparison, texts: bool) -> Section | None:
    """Returns how many queries carry the best arm's mean and how many pay for it, and which those are."""
    frame, best = stand.frame, stand.leader
    if best is None:
        return None
    base = stand.baseline
    before, after = (frame.values[frame.arms.index(arm), 0] for arm in (base, best))
    moved = np.where(np.abs(after - before) > TIE, after - before, 0.0)
    order = np.argsort(-moved, kind="stable")
    listed = [n for n in order[:MOST_QUERIES] if moved[n] > 0] + [n for n in order[-MOST_QUERIES:] if moved[n] < 0]
    ids = [query_id or "rejected log row" for query_id in frame.query_ids]
    names = [query or name for query, name in zip(frame.queries, ids, strict=True)] if texts else ids
    rows = [[names[n], float(before[n]), float(after[n]), Marked(float(moved[n]))] for n in listed]
    columns = [Head("query"), Head(base, figure), Head(best, figure), Head("difference", difference)]
    gained, lost = int((moved > 0).sum()), int((moved < 0).sum())
    words = f"{best} against {base}: {gained:,} queries gain {stand.first}, {lost:,} lose, {len(moved) - gained - lost:,} stay."
    ordered = sorted(moved.tolist(), reverse=True)
    bars = [ordered[n * len(ordered) // MOST_BARS] for n in range(MOST_BARS)] if len(ordered) > MOST_BARS else ordered
    chart = Chart("Each query's difference", gains(bars, f"difference in {stand.first}"))
    return Section("queries", "Queries", words, [chart, Table(columns, rows, "Those that gained and lost most")])
