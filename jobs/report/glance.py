"""The run at a glance: tiles, what an operator should notice, quality, and the stages in a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.display import queries
from jobs.evaluate import MEASURES, Evaluation
from jobs.report.figures import Figures
from jobs.report.spending import Spending
from jobs.report.wording import duration, money, number, percent
from jobs.tables import NOTES

NEAR = 0.5  # of the error limit: from here on it is worth a word


@dataclass(frozen=True)
class Tile:
    """A figure of the night; `bad` is said in `detail` as well."""

    label: str
    value: str
    detail: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Quality:
    """One measure; `verdict` in words, by the interval of the difference."""

    measure: str
    results: float
    original: float | None
    interval: tuple[float, float] | None

    @property
    def difference(self) -> float | None:
        """Results - original alone."""
        return None if self.original is None else self.results - self.original

    @property
    def verdict(self) -> str:
        """Whether the interval leaves zero out."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "no clear difference"


@dataclass(frozen=True)
class Stage:
    """What came into a stage and what went out; seconds are its workers' busy time without start-up, None: not metered."""

    name: str
    came: str
    went: str
    seconds: float | None
    rate: float | None
    """Queries per second of one worker."""


def tiles(figures: Figures, spending: Spending) -> list[Tile]:
    """The figures that are looked at first."""
    run, counts = figures.run, figures.counts
    planned, limit = run.plan.counts, run.config.limits.error_rate
    wall = sum(start.wall for start in figures.starts)
    starts = len(figures.starts)
    total = spending.total
    failed = counts["failed_queries"]
    over = figures.error_rate > limit
    allowed = f"{percent(figures.error_rate)}, {'above the limit of' if over else 'limit'} {percent(limit)}"
    found = [
        Tile("log rows", number(planned["log_rows"]), f"{number(planned['rejected'])} rejected"),
        Tile(
            "distinct queries",
            number(planned["queries"]),
            f"{number(figures.queries)} committed" if figures.waiting else "all committed",
            bool(figures.waiting),
        ),
        Tile("rewrites", number(counts["rewrites"]), f"of {number(counts['planned'])} planned"),
        Tile("results", number(counts["results"]), f"for {queries(counts['queries_with_results'])}"),
        Tile("queries with errors", number(failed), allowed, over),
        Tile("wall time", duration(wall), f"in {starts} starts" if starts > 1 else "one start"),
    ]
    if total.usd is not None:
        each = f"{money(1000 * total.usd / figures.queries)} per 1,000 queries" if figures.queries else ""
        found.append(Tile("cost", money(total.usd), each))
    found.append(Tile("work", duration(total["seconds"] + total.start_up), f"of it {duration(total.start_up)} start-up"))
    if total["prompt_tokens"] or total["completion_tokens"]:
        cached = total["cached_tokens"]
        of = f"{number(cached)} cached ({percent(cached / total['prompt_tokens'])})" if total["prompt_tokens"] else ""
        found.append(Tile("prompt tokens", number(total["prompt_tokens"]), of))
        each = f"{total['completion_tokens'] / figures.queries:,.0f} per query"
        found.append(Tile("completion tokens", number(total["completion_tokens"]), each))
    return found


def notices(figures: Figures) -> list[str]:
    """What is out of the ordinary, in sentences."""
    run, counts = figures.run, figures.counts
    said = []
    if not run.finished:
        said.append(f"This run is not finished ({run.state}). All figures are of the committed shards only.")
    limit = run.config.limits.error_rate
    if figures.queries and figures.error_rate > limit:
        said.append(f"{percent(figures.error_rate)} of the queries have errors; limits.error_rate is {percent(limit)}.")
    elif figures.queries and figures.error_rate > NEAR * limit:
        said.append(
            f"{percent(figures.error_rate)} of the queries have errors, more than half of what limits.error_rate allows."
        )
    redundancy = run.record.get("redundancy", {})
    if redundancy.get("asked") != redundancy.get("used"):
        said.append(
            f"Redundancy weights are by {redundancy.get('used')}, not by {redundancy.get('asked')} as the config asks: "
            "no retriever is dense."
        )
    notes = {name: sum(one.count for one in figures.reasons if one.reason == name) for name in NOTES}
    if notes["no_hits"]:
        said.append(f"No list has a hit for {queries(notes['no_hits'])}, so without results.")
    if notes["original_stands_in"]:
        said.append(
            f"For {queries(notes['original_stands_in'])} nothing of weight above 0 was found; the original's lists stand in."
        )
    lost = sum(start.lost or 0.0 for start in figures.starts)
    if lost:
        said.append(f"{duration(lost)} of worker time came to no commit: a start was killed or failed.")
    if figures.queries and not counts["planned"]:
        said.append("No rewrites were asked for: the original query alone was searched with.")
    return said


def quality(evaluation: Evaluation | None) -> list[Quality]:
    """The measures of an evaluation."""
    if evaluation is None:
        return []
    intervals, original = evaluation.intervals or {}, evaluation.original or {}
    return [Quality(name, evaluation.results[name], original.get(name), intervals.get(name)) for name in MEASURES]


def stages(figures: Figures, spending: Spending) -> list[Stage]:
    """The stages in their order."""
    run, counts, worked = figures.run, figures.counts, figures.queries
    planned = run.plan.counts
    busy = {line.name: line["seconds"] for line in spending.stages}
    total = spending.total
    lists = sum(sum(of.values()) for of in figures.lists.values())
    hits = figures.stored.get("runs", (0, 0, 0))[1]
    written = sum(rows for _, rows, _ in figures.stored.values())
    reranked = run.config.rerank.kind != "none"
    candidates = figures.candidates

    def stage(name: str, came: str, went: Iterable[str]) -> Stage:
        seconds = busy.get(name)
        rate = worked / seconds if seconds and worked else None
        return Stage(name, came, ", ".join(word for word in went if word), seconds, rate)

    dedup = [
        f"{number(planned['queries'])} distinct queries",
        f"{number(figures.repeated)} asked again",
        f"{number(planned['rejected'])} rejected",
    ]
    found = [stage("dedup", f"{number(planned['log_rows'])} log rows", dedup)]
    if counts["planned"]:
        made = [f"{number(counts['rewrites'])} rewrites", f"{number(counts['rewrite_errors'])} failed"]
        found.append(stage("rewrite", f"{queries(worked)}, {number(counts['planned'])} rewrites planned", made))
    searched = [
        f"{number(lists)} lists",
        f"{number(total['searches'])} searches",
        f"{number(hits)} hits" if hits else "",
        _failed(figures, "retrieve"),
    ]
    found.append(stage("retrieve", f"{number(figures.texts)} texts", searched))
    handed = "candidates (not all counted)" if candidates is None else f"{number(candidates)} candidates"
    found.append(stage("fuse", f"{number(lists)} lists", [handed]))
    if reranked:
        went = [f"{number(counts['results'])} results", _failed(figures, "rerank")]
        found.append(stage("rerank", f"{number(total['pairs'])} pairs", went))
    ended = f"{number(written)} rows in {number(len(figures.stored))} tables"
    found.append(stage("write", f"{number(counts['results'])} results of {queries(worked)}", [ended]))
    return found


def _failed(figures: Figures, stage: str) -> str:
    failed = figures.failed_in(stage)
    return f"{queries(failed)} failed" if failed else ""
