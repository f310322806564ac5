"""The end of an ablation: its arms are compared, and its page, values and closing table are written.

The page says which arm is best and by how much, what each strategy brings, what arms cost, and which queries move.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from jobs.measure.costs import ArmCost, arm_costs
from jobs.measure.exports import LONG, long_tables, write_tables
from jobs.measure.judge import judge_models
from jobs.measure.notes import EXPLAINED, HEADINGS, TITLES
from jobs.measure.significance import TIE
from jobs.measure.strategies import TOP, Funnel, Worth, funnel, worth
from jobs.pages.charts import Point, scatter
from jobs.pages.comparison import Comparisons, arms_table, comparison_values, means_table, signs_note, slices_table
from jobs.pages.render import Chart, Head, Notes, Section, Table, Tile, Tiles, difference, write_page
from jobs.pages.sections import configuration, run_page, time_section
from jobs.pages.summary import spending_rows
from jobs.runs.folder import REPORT, RunFolder
from jobs.runs.savings import GateSaving, Saving, saved
from jobs.runs.sums import found_by_guards
from jobs.runs.tally import covered_words
from jobs.terminal.formats import count, duration, figure, known, money, p_words, percent, queries, sentence
from jobs.terminal.live_display import facts

PER_QUERY = "per_query.parquet"
MOST_ARMS = 50  # rows of a table; --json has the others
MOST_QUERIES = 10  # that gained most, and that lost most
MUCH_UNJUDGED = 0.2


@dataclass(frozen=True)
class ComparedArms:
    """An ablation with the figures of its arms."""

    folder: RunFolder
    prices: Prices | None
    saving: Saving
    comparisons: Comparisons
    funnel: Funnel | None
    worth: Sequence[Worth]
    costs: Sequence[ArmCost]
    gates: Mapping[str, GateSaving]

    @property
    def known(self) -> Comparison | None:
        """Returns the comparison by the lists, if at least one query counts."""
        lists = self.comparisons.lists
        return lists if lists is not None and lists.frame.keys else None

    @property
    def leading(self) -> str:
        """Returns the first measure of the best arm that is compared with another; empty where nothing was measured."""
        lists = self.known
        if lists is None or lists.leader is None:
            return ""
        best, baseline = (f"of {arm} {figure(lists.by_arm[arm, lists.first].mean)}" for arm in (lists.leader, lists.baseline))
        return f"{lists.first} {best}, {baseline}"


@kept_duckdb()
def compared(
    folder: RunFolder,
    judgements: Judgements | None,
    settings: EvaluateSettings | None,
    prices: Prices | None,
    gold: GoldAnswers | None = None,
) -> ComparedArms:
    """Returns the costs and measures of an ablation's arms; without `settings` nothing is measured."""
    return ComparedArms(
        folder,
        prices,
        saved(folder),
        Comparisons(() if settings is None else comparisons(folder, judgements, settings, gold)),
        # a judge grades the results alone, so it knows nothing of what was lost on the way
        None if judgements is None or judgements.judge is not None else funnel(folder, judgements),
        worth(folder),
        *arm_costs(folder, prices),
    )


def write_pages(ablation: ComparedArms, out: str | None = None, *, texts: bool) -> None:
    """Writes the report to `out`, or into the ablation's folder, and there, where arms were measured, per_query.parquet."""
    storage = ablation.folder.storage
    write_page(out or storage.url(REPORT), ablation_report(ablation, texts=texts))
    measured = [frame for frame in ablation.comparisons.frames if frame.keys]
    if measured and out is None:
        write_tables(storage.url(PER_QUERY), LONG, long_tables(*measured))


def closing_page(ablation: ComparedArms) -> RenderableType:
    """Returns the page of an ablation for a terminal: the work that arms shared, what it cost, and how they compare."""
    table = facts(_rows(ablation), ablation.folder.record["run_id"])
    parts: list[RenderableType] = [table, Text("")]
    if ablation.comparisons.lists is None:
        parts = [table, Text("not measured: evaluate.qrels names no judgements, and no judge.relevance is set")]
    if ablation.comparisons.every:
        parts.append(ablation.comparisons.page())
    return Group(*parts)


def _rows(ablation: ComparedArms) -> Iterator[tuple[str, RenderableType]]:
    folder = ablation.folder
    arms = folder.arms
    over = f"over {folder.plan.counts['queries']:,} distinct queries"
    if not folder.finished:
        over += f"; {folder.counts['queries']:,} committed{covered_words(folder.plan, folder.counts)}"
    yield "arms", f"{len(arms):,} of {len(arms):,}, {over}"
    for kind in QUANTITIES:
        naive, executed, reused = (of[kind] for of in (ablation.saving.naive, ablation.saving.executed, ablation.saving.reused))
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
    for arm, own in by_arm(folder.counts, [one["name"] for one in arms]).items():
        if own["stood_in"]:
            yield "stand-ins", f"{arm}: {queries(own['stood_in'])} without hits of its own; the original's were used"
    for arm, gate in ablation.gates.items():
        yield "gate", f"{arm}: {gate.summary}"
    yield from spending_rows(folder, ablation.prices)
    if folder.storage.get(REPORT) is not None:
        yield "report", Text(folder.storage.url(REPORT), overflow="fold")


def closing_values(ablation: ComparedArms) -> dict[str, Any]:
    """Returns the same as JSON-able values."""
    lists = ablation.comparisons.lists
    values = {
        "run_id": ablation.folder.record["run_id"],
        "folder": ablation.folder.storage.root,
        "arms": ablation.folder.arms,
        "work": ablation.saving._asdict(),
        "guards": arm_guards(ablation.folder),
        "costs": ablation.costs,
        "gates": ablation.gates,
        "worth": ablation.worth,
        "comparison": lists and comparison_values(lists),
    }
    values |= {"answers": None, "judged_answers": {}, "judged_results": None} | ablation.comparisons.values_beside()
    return cast(dict[str, Any], known(values))


def arm_guards(folder: RunFolder) -> dict[str, dict[str, int]]:
    """Returns arm -> flag of a guard -> texts that have it, all strategies together; without arms that have none."""
    arms = [arm["name"] for arm in folder.arms]
    guards = {arm: found_by_guards(own) for arm, own in by_arm(folder.counts, arms).items()}
    return {arm: {guard.name: guard.total for guard in own} for arm, own in guards.items() if own}


def ablation_report(ablation: ComparedArms, *, texts: bool = True) -> str:
    """Returns the report of an ablation as one HTML page; without `texts` it has no query."""
    return run_page(ablation.folder, "Report of an ablation", _sections(ablation, texts), texts=texts)


def _sections(ablation: ComparedArms, texts: bool) -> Iterator[Section | None]:
    lists = ablation.known
    yield _verdict(ablation)
    if lists is not None:
        yield _arms(lists, "arms", "Arms")
        yield _left_out(lists)
    for comparison in ablation.comparisons.beside:
        kind = comparison.frame.kind
        if comparison.frame.keys:
            yield _arms(comparison, kind, TITLES[kind], EXPLAINED[kind])
        else:
            yield Section(kind, TITLES[kind], sentence("; ".join(comparison.notes)))
    yield _strategies(ablation)
    yield _cost(ablation)
    if lists is not None:
        yield _queries(lists, texts)
        if lists.slices:
            yield Section("slices", "Slices", f"{lists.first}, part by part of the judged queries.", [slices_table(lists)])
    yield time_section(ablation.folder)
    if lists is not None:
        families = [f"{name}: {meaning}" for name, meaning in FAMILIES.items() if name in lists.families.values()]
        yield Section("method", "Method", parts=[Notes([*lists.notes, *families])], folded=True)
    yield configuration(ablation.folder)


def _verdict(ablation: ComparedArms) -> Section:
    arms, run, lists = ablation.folder.arms, ablation.folder, ablation.known
    tiles = [Tile("arms", count(len(arms)), f"over {count(run.counts['queries'])} queries")]
    if ablation.prices is not None:
        tiles.append(Tile("cost of all arms together", money(run.bill(ablation.prices).usd)))
    text = "Nothing is measured." if lists is None else f"There is no arm to compare with {lists.baseline}."
    if lists is not None and (best := lists.leader) is not None:
        leader, base, first = lists.by_arm[best, lists.first], lists.baseline, lists.first
        ends = "" if isnan(leader.low) else f"95 % interval {figure(leader.low, '+')} to {figure(leader.high, '+')}"
        state = {"better": "good", "worse": "bad"}.get(leader.verdict, "")
        tiles.insert(0, Tile(f"{first} of {best} over {base}", figure(leader.difference, "+"), ends, state))
        # no more than the figures hold
        known = {"better": f"is better than {base}", "worse": f"is worse than {base}", "equivalent": f"is equivalent to {base}"}
        named = known.get(leader.verdict, f"does not clearly differ from {base}")
        limit, p = leader.verdict_within(lists.margin).removeprefix(leader.verdict), leader.corrected
        corrected = "" if p is None else f", corrected p {p_words(p)}"
        text = f"The best arm, {best}, {named}{limit}: "
        text += f"{first} {figure(lists.by_arm[base, first].mean)} → {figure(leader.mean)}{corrected}."
    return Section("verdict", "", text, [Notes(_notices(ablation), warns=True), Tiles(tiles)])


def _notices(ablation: ComparedArms) -> list[str]:
    run, lists = ablation.folder, ablation.comparisons.lists
    notices = []
    if not run.finished:
        notices.append(f"This ablation is not finished ({run.state}). All figures are of the committed shards only.")
    notices += [sentence(change) for change in noted_changes(run.starts)]
    if ablation.known is None:
        why = lists.notes if lists else ("nothing is measured: there are no relevance judgements (evaluate.qrels)",)
        return [*notices, sentence("; ".join(why).removeprefix("warning: "))]
    frame = ablation.known.frame
    if frame.judge is not None:
        notices.append(f"Judged by {frame.judge.model}, an LLM, and LLMs over-rate: differences tell more than means.")
    notices += [sentence(note) for note in frame.left_out]
    if frame.unknown is not None:
        notices.append(f"{frame.unknown.note.removeprefix('warning: ')}.")
    if (most := float(np.nanmax([0.0, *frame.unjudged]))) > MUCH_UNJUDGED:
        notices.append(f"Nobody judged up to {percent(most)} of an arm's results; they count as not relevant.")
    return notices


def _arms(comparison: Comparison, name: str, title: str, explained: str = "") -> Section:
    frame = comparison.frame
    what = "queries with gold answers" if frame.gold else "judged queries"
    arms = comparison.main_arms(MOST_ARMS)
    more = f" The best {len(arms):,} are shown; --json and per_query.parquet have all." if len(arms) < len(frame.arms) else ""
    text = f"{len(frame.arms):,} arms over {len(frame.keys):,} {what}, {HEADINGS[frame.kind]}.{more}"
    tables = [arms_table(comparison, arms, wide=True)]
    tables += [means_table(comparison, arms)] if len(frame.measures) > 1 else []
    tables += [slices_table(comparison)] if comparison.slices and frame.answers else []
    notes = [explained, signs_note(comparison), "seen from: the smallest true difference that the test finds with 80 % power"]
    return Section(name, title, text, [*tables, Notes([note for note in notes if note])])


def _left_out(comparison: Comparison) -> Section | None:
    losses, measures = comparison.left_out(), comparison.frame.measures
    if not losses:
        return None
    labels = [*(f"loss of {name}" for name in measures), "mean loss"]
    columns = [Head("left out"), *(Head(label, difference) for label in labels)]
    table = Table(columns, [[name, *means, fmean(means)] for name, means in losses])
    most = f"most without {losses[0][0]}: {figure(losses[0][1][0], '+')} {comparison.first}"
    text = f"What {FULL} loses without a strategy; {most}."
    return Section("left-out", "Leave one out", text, [table])


def _strategies(ablation: ComparedArms) -> Section:
    steps = ("after fusion", "after the reranker", f"in the first {TOP}")
    labels = ["relevant documents found", "found by it alone", *(f"of these {step}" for step in steps)]
    columns = [Head("strategy"), *(Head(label, count) for label in labels)]
    text = "What each strategy's lists bring beside those of the original."
    if funnel := ablation.funnel:
        text = f"{funnel.judged_queries:,} queries have {funnel.relevant:,} relevant documents; "
        text += f"lists hold {funnel.found:,} of them."
    columns += [Head("results that the original has not, per query", lambda value: f"{value:.2f}")]
    columns += [Head("their share of all results", percent)]
    rows = []
    for own in ablation.worth:
        counts = funnel.strategies[own["strategy"]] if funnel else [None] * len(labels)
        rows.append([own["strategy"], *counts, own["increment"], own["increment_share"]])
    return Section("strategies", "Strategies", text, [Table(columns, rows)])


def _cost(ablation: ComparedArms) -> Section | None:
    costs, lists = ablation.costs, ablation.known
    if not costs:
        return None
    priced = any(cost["standalone_usd"] is not None for cost in costs)
    shown = lists.main_arms(MOST_ARMS) if lists is not None else [cost["arm"] for cost in costs[:MOST_ARMS]]
    further = ("rounds", "grades", "web_searches", "answers", "judgements")
    names = ["requests", "searches", "pairs", *(name for name in further if any(cost[name] for cost in costs))]
    usd = {"standalone_usd": "alone, USD", "marginal_usd": "saved without it, USD"} if priced else {}
    columns = [Head("arm"), *(Head(label, money) for label in usd.values())]
    columns += [*(Head(name.replace("_", " "), count) for name in names), Head("work of workers", duration)]
    rows = [[cost[name] for name in ("arm", *usd, *names, "seconds")] for cost in costs if cost["arm"] in shown]
    note = "alone: as if only this arm were run; saved without it: what no other arm needs. " * priced
    note += "Fusing and start-up are no part."
    naive, executed = ablation.saving.naive, ablation.saving.executed
    saved = ", ".join(f"{executed[name]:,} {name.replace('_', ' ')} in place of {n:,}" for name, n in naive.items() if n)
    text = f"Arms share what they need: {saved}." if saved else ""
    gates = Notes([sentence(f"gate of {arm}: {gate.summary}") for arm, gate in ablation.gates.items()])
    return Section("cost", "Cost", text, [*_cost_chart(ablation), Table(columns, rows, note=note), gates])


def _cost_chart(ablation: ComparedArms) -> list[Chart]:
    """Returns quality against cost, in USD, or in seconds of workers without prices; nothing with fewer than two arms."""
    lists = ablation.known
    if lists is None:
        return []
    able = [cost for cost in ablation.costs if cost["arm"] in lists.frame.arms and lists.contends(cost["arm"])]
    units = ("standalone_usd", "seconds")
    usd, seconds = ({cost["arm"]: cost[unit] for cost in able if cost[unit] is not None} for unit in units)
    spent = usd if len(usd) > 1 else seconds
    if len(spent) < 2 or max(spent.values()) <= 0:
        return []
    show, across = (money, "USD of the arm alone") if spent is usd else (duration, "work of the arm alone")
    quality = {arm: lists.by_arm[arm, lists.first].mean for arm in spent}
    front, base = pareto_front(spent, quality), lists.baseline
    order = sorted(spent, key=lambda arm: (arm != base, arm not in front, -quality[arm]))

    def point(arm: str) -> Point:
        kind = "baseline" if arm == base else lists.families.get(arm, "")
        text = f"{arm}: {show(spent[arm])}, {figure(quality[arm])}"
        return Point(spent[arm], quality[arm], text, kind, arm if arm in {base, FULL, *front} else "")

    families = [name for name in dict.fromkeys(lists.families.values()) if name != "samples"]
    legend = [("front", "no arm is cheaper and as good"), ("baseline", "baseline")]
    svg = scatter([*map(point, order)], across, lists.first, show, [*map(point, front)])
    return [Chart("Quality against cost", svg, [*legend, *((name, FAMILIES[name]) for name in families)])]


def pareto_front(spent: dict[str, float], quality: dict[str, float]) -> list[str]:
    """Returns the arms than which none is cheaper and at least as good, or as cheap and better; the cheapest first."""
    front: list[str] = []
    for arm in sorted(spent, key=lambda arm: (spent[arm], -quality[arm])):
        if not front or quality[arm] > quality[front[-1]]:
            front.append(arm)
    return front


def _queries(comparison: Comparison, texts: bool) -> Section | None:
    frame, best = comparison.frame, comparison.leader
    if best is None:
        return None
    base = comparison.baseline
    before, after = (frame.values[frame.arms.index(arm), 0] for arm in (base, best))
    moved = np.where(np.abs(after - before) > TIE, after - before, 0.0)
    order = np.argsort(-moved, kind="stable")
    listed = [n for n in order[:MOST_QUERIES] if moved[n] > 0] + [n for n in order[-MOST_QUERIES:] if moved[n] < 0]
    ids = [query_id or "rejected log row" for query_id in frame.query_ids]
    names = [asked.query or name for asked, name in zip(frame.asked, ids, strict=True)] if texts else ids
    rows = [[names[n], float(before[n]), float(after[n]), float(moved[n])] for n in listed]
    columns = [Head("query"), Head(base, figure), Head(best, figure), Head("difference", difference)]
    gained, lost = int((moved > 0).sum()), int((moved < 0).sum())
    stay = len(moved) - gained - lost
    text = f"{best} against {base}: {gained:,} queries gain {comparison.first}, {lost:,} lose, {stay:,} stay."
    return Section("queries", "Queries", text, [Table(columns, rows, "Those that gained and lost most")])
