"""The overview of a run: tiles, notices for operators, quality measures, and the table of the stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster import costs
from jobs.chain.pipeline import COSTED
from jobs.counts import GateQueries
from jobs.job.indexes import noted_changes
from jobs.log.rejections import rejected_words
from jobs.log.sets.names import left_out_words
from jobs.measure.evaluate import Evaluation
from jobs.measure.measures import title
from jobs.pages.report.figures import Figures
from jobs.pages.report.spending import Spending
from jobs.pages.summary import grade_words, round_words, web_words
from jobs.runs.retry import retry_words
from jobs.runs.starts import unknown_losses
from jobs.runs.sums import many_fallbacks
from jobs.runs.traffic import covered_words
from jobs.tables import NOTES
from jobs.terminal.formats import duration, money, number, percent, planned_rewrites, queries, sentence

WARN_SHARE = 0.5  # of limits.error_rate: from this share on a notice is shown


@dataclass(frozen=True)
class Tile:
    """A key figure of the run; `detail` explains `bad` in words."""

    label: str
    value: str
    detail: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Quality:
    """One measure of the results, with that of the original query alone."""

    measure: str
    results: float
    original: float | None
    interval: tuple[float, float] | None
    verdict: str
    """Of the difference: better, worse, no clear difference; empty without a test."""

    @property
    def difference(self) -> float | None:
        """Returns results - original alone."""
        return None if self.original is None else self.results - self.original


@dataclass(frozen=True)
class StageRow:
    """Input and output of a stage; seconds are its workers' busy time without start-up, None: not metered."""

    name: str
    came: str
    went: str
    seconds: float | None
    rate: float | None
    """Queries per second of one worker."""
    by_shard: tuple[float, float, float] | None
    """Median, 95th and 99th percentile of the seconds for a shard."""


def headline(figures: Figures, spending: Spending) -> Tile | None:
    """Returns the cost per 1,000 queries, or without prices the work; None if nothing is committed."""
    total, worked = spending.total, figures.queries
    if not worked:
        return None
    if total.usd is None:
        seconds = total["seconds"] + total.start_up
        of = f"{duration(seconds)} in all; there are no prices, so no money"
        return Tile("worker time per 1,000 queries", duration(1000 * seconds / worked), of)
    return Tile("cost per 1,000 queries", money(1000 * total.usd / worked), f"{money(total.usd)} in all")


def tiles(figures: Figures, spending: Spending) -> list[Tile]:
    """Returns the key figures of the run, beside quality and cost."""
    run, counts = figures.run, figures.counts
    planned, limit = run.plan.counts, run.config.limits.error_rate
    wall = sum(start.wall for start in figures.starts)
    starts = len(figures.starts)
    total = spending.total
    over = figures.error_rate > limit
    allowed = f"{percent(figures.error_rate)}, {'above the limit of' if over else 'limit'} {percent(limit)}"
    log = f"of {number(planned['log_rows'])} log rows, {rejected_words(planned) or '0 rejected'}{left_out_words(planned)}"
    worker_time = f"{duration(total['seconds'] + total.start_up)} of worker time"
    made, _, detail = planned_rewrites(counts).partition(" ")
    found = [
        Tile(
            "distinct queries",
            number(planned["queries"]),
            f"{number(figures.queries)} committed{covered_words(run.plan, counts)}; {log}" if figures.waiting else log,
            bool(figures.waiting),
        ),
        Tile("rewrites", made, detail),
        Tile("queries with errors", number(counts["failed_queries"]), allowed, over),
        Tile("results", number(counts["results"]), f"for {queries(counts['queries_with_results'])}"),
        Tile("wall time", duration(wall), f"in {starts} starts; {worker_time}" if starts > 1 else worker_time),
    ]
    if total["prompt_tokens"] or total["completion_tokens"]:
        prompt, cached = total["prompt_tokens"], total["cached_tokens"]
        of = f" ({percent(cached / prompt)} cached)" if prompt and cached else ""
        detail = f"{number(prompt)} prompt{of}, {number(total['completion_tokens'])} completion"
        found.append(Tile("tokens per query", number((prompt + total["completion_tokens"]) / figures.queries), detail))
    return found


def notices(figures: Figures) -> list[str]:
    """Returns what went wrong, a sentence each."""
    run, counts = figures.run, figures.counts
    sentences = []
    if not run.finished:
        sentences.append(f"This run is not finished ({run.state}). All figures are of the committed shards only.")
    if (retried := retry_words(run)) is not None:
        sentences.append(f"This run is a retry: {retried}.")
    limit = run.config.limits.error_rate
    if figures.queries and figures.error_rate > limit:
        sentences.append(f"{percent(figures.error_rate)} of the queries have errors; limits.error_rate is {percent(limit)}.")
    elif figures.queries and figures.error_rate > WARN_SHARE * limit:
        sentences.append(
            f"{percent(figures.error_rate)} of the queries have errors, more than half of what limits.error_rate allows."
        )
    sentences += [sentence(one) for one in (*many_fallbacks(counts, limit).values(), *noted_changes(run.starts))]
    lost = sum(start.lost or 0.0 for start in figures.starts)
    if lost:
        ended = ", ".join(f"start {one.number} was {one.status}" for one in figures.starts if one.lost)
        sentences.append(f"{duration(lost)} of worker time were lost without a commit: {ended}.")
    if counts["lost_requests"]:
        words = "requests got no answer that was kept: a start was killed, or a server was away."
        sentences.append(f"{counts['lost_requests']:,} {words}")
    elif unknown_losses(figures.run.starts, figures.run.storage.root):
        sentences.append("A start was killed; what it had sent without an answer is known on its own machine only.")
    for start in figures.starts:
        for outage in start.outages:
            sentences.append(
                f"Start {start.number} waited {duration(outage['seconds'])} for {outage['service']}: {outage['reason']}."
            )
    return sentences


def remarks(figures: Figures) -> list[str]:
    """Returns what is not as one might expect, without anything having gone wrong; a sentence each."""
    sentences = []
    redundancy = figures.run.record.get("redundancy", {})
    if redundancy.get("asked") != redundancy.get("used"):
        sentences.append(
            f"Redundancy weights are by {redundancy.get('used')} (of the lists' first documents): for "
            f"{redundancy.get('asked')} a retriever must be dense."
        )
    notes = {name: sum(one.count for one in figures.reasons if one.reason == name) for name in NOTES}
    if notes["no_hits"]:
        sentences.append(f"No list has a hit for {queries(notes['no_hits'])}, so without results.")
    if notes["original_stands_in"]:
        sentences.append(
            f"For {queries(notes['original_stands_in'])} nothing of weight above 0 was found; the original's lists stand in."
        )
    if figures.queries and not figures.counts["planned"]:
        sentences.append("No rewrites were planned: only the original query was searched.")
    return sentences


def quality(evaluation: Evaluation | None) -> list[Quality]:
    """Returns the measures of an evaluation, the leading one first; an empty list where nothing was measured."""
    if evaluation is None or evaluation.warning is not None:
        return []
    intervals, original = evaluation.intervals or {}, evaluation.original or {}
    return [
        Quality(title(name), evaluation.results[name], original.get(name), intervals.get(name), evaluation.verdict(name) or "")
        for name in evaluation.measures
    ]


def stages(figures: Figures, spending: Spending) -> list[StageRow]:
    """Returns the stages in their order."""
    run, counts, worked = figures.run, figures.counts, figures.queries
    planned = run.plan.counts
    busy = {line.name: line["seconds"] for line in spending.stages}
    total = spending.total
    lists = sum(sum(of.values()) for of in figures.lists.values())
    hits = figures.stored.get("runs", (0, 0, 0))[1]
    written = sum(rows for _, rows, _ in figures.stored.values())
    reranked = run.config.rerank.kind != "none"
    candidates = figures.candidates

    def stage(name: str, came: str, went: Iterable[str]) -> StageRow:
        seconds = busy.get(name)
        rate = worked / seconds if seconds and worked else None
        by_shard = figures.shard_seconds.get(name)
        return StageRow(name, came, ", ".join(word for word in went if word), seconds, rate, by_shard)

    fused = "candidates (not all counted)" if candidates is None else f"{number(candidates)} candidates"
    words: dict[str, tuple[str, list[str]]] = {
        "retrieve": (
            f"{number(figures.texts)} texts",
            [
                f"{number(lists)} lists",
                f"{number(total['searches'])} searches" + (f", {number(total['saved'])} saved" if total["saved"] else ""),
                f"{number(hits)} hits" if hits else "",
                _failed(figures, "retrieve"),
            ],
        ),
        "fuse": (f"{number(lists)} lists", [fused]),
        "write": (
            f"{number(counts['results'])} results of {queries(worked)}",
            [f"{number(written)} rows in {number(len(figures.stored))} tables"],
        ),
    }
    if figures.run.config.rewrite.gated is not None:
        sure = counts[GateQueries("sure").key]
        words["gate"] = queries(worked), [f"{queries(sure)} not to be rewritten", _failed(figures, "gate")]
    if counts["planned"]:
        made = [f"{number(counts['rewrites'])} {'texts' if figures.several else 'rewrites'}"]
        made += [f"{number(counts['not_selected'])} not selected" if figures.selected else ""]
        made += [f"{number(counts['rewrite_errors'])} failed"]
        words["rewrite"] = f"{queries(worked)}, {number(counts['planned'])} rewrites planned", made
    if reranked:
        went = [f"{number(counts['results'])} results", _failed(figures, "rerank")]
        known = costs.stage_sums(run.spent, "rerank").get("reused", 0)
        pairs = f"{number(total['pairs'] + known)} pairs"
        pairs += f", {number(known)} of them from the store" if known else ""
        words["rerank"] = pairs, went
    if run.config.iterate is not None:
        words["iterate"] = queries(worked), [round_words(counts), _failed(figures, "iterate")]
    if run.config.grade is not None:
        words["grade"] = queries(worked), [grade_words(counts), _failed(figures, "grade")]
    if run.config.web is not None:
        words["web"] = queries(worked), [web_words(counts), _failed(figures, "web")]
    if run.config.answer is not None:
        cut = counts["answers_cut"]
        made = [f"{number(counts['answers'])} answers", f"{number(cut)} cut by the token limit" if cut else ""]
        words["answer"] = queries(worked), [*made, _failed(figures, "answer")]
    if run.config.judge is not None:
        words["judge"] = queries(worked), [f"{number(counts['judgements'])} judgements", _failed(figures, "judge")]
    dedup = [
        f"{number(planned['queries'])} distinct queries",
        f"{number(figures.repeated)} repeated",
        f"{number(planned['rejected'])} rejected",
    ]
    found = [stage("dedup", f"{number(planned['log_rows'])} log rows", dedup)]
    for name in COSTED:  # other stages with costs are shown with queries as input and output
        if name in words:
            found.append(stage(name, *words[name]))
        elif name in figures.run.spent:
            found.append(stage(name, queries(worked), [queries(worked), _failed(figures, name)]))
    return found


def _failed(figures: Figures, stage: str) -> str:
    failed = figures.failed_in(stage)
    return f"{queries(failed)} failed" if failed else ""
