"""The closing table of a run: rows, queries, rewrites by how they were read, results, cost, quality, place."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cluster import costs
from cluster.costs import Totals
from cluster.prices import Prices
from cluster.storage import remote
from jobs.chain.pipeline import COSTED
from jobs.counts import ERROR_QUERIES, ERRORS, FURTHER_TEXTS, GRADED_DOCUMENTS, ROUND_QUERIES
from jobs.log.rejections import rejected_words
from jobs.log.sets.names import left_out_words
from jobs.measure.evaluate import answer_notes, answers_values
from jobs.measure.judge import judge_models
from jobs.measure.measures import title
from jobs.pages.comparison import UNMEASURED, MeasuredRun
from jobs.runs.folder import REPORT, RunFolder
from jobs.runs.retry import RETRY, retry_words
from jobs.runs.savings import saving_of_run
from jobs.runs.sums import by_reason, fallbacks, found_by_guards, many_fallbacks, readers_by_strategy, selected
from jobs.runs.tally import covered_words
from jobs.tables import READER_WORDS, READERS, WRONG_CITATION
from jobs.terminal.formats import clock, figure, money, planned_rewrites, queries, unpriced
from jobs.terminal.live_display import facts
from rewriters.steps.settings import AMBIGUOUS, IRRELEVANT, RELEVANT


def closing_table(
    run: RunFolder, prices: Prices | None, measured: MeasuredRun = UNMEASURED, more: Sequence[str] = ()
) -> RenderableType:
    """Returns the closing table, with notes below it, `more` first."""
    table = facts(_rows(run, prices, measured), run.record["run_id"])
    return Group(table, *(Text(note) for note in (*more, *notes(run, prices, measured))))


def _rows(run: RunFolder, prices: Prices | None, measured: MeasuredRun) -> Iterator[tuple[str, RenderableType]]:
    planned, counts, config = run.plan.counts, run.counts, run.config
    rows = f"{planned['log_rows']:,} row{'s' * (planned['log_rows'] != 1)}"
    yield "log", ", ".join(filter(None, [rows, rejected_words(planned)])) + left_out_words(planned)
    committed = "" if run.finished else f"; {counts['queries']:,} committed{covered_words(run.plan, counts)}"
    yield "queries", f"{planned['queries']:,} distinct{committed}"
    if (retried := retry_words(run)) is not None:
        yield "retry", retried
    readers = readers_by_strategy(dict(sorted(counts.items())))
    names = [READER_WORDS.get(reader, reader) for reader in READERS]
    listed = ", ".join(f"{name} {n:,}" for name in names if (n := sum(each.get(name, 0) for each in readers.values())))
    yield "rewrites", planned_rewrites(counts) + (f" ({listed})" if listed else "")
    if (saving := saving_of_run(run, prices)) is not None:
        yield "gate", saving.summary
    for strategy, text in _by_strategy(counts, readers, config.rewrite.planned).items():
        yield f"  {strategy}", text
    if guards := guard_words(run):
        yield "guards", guards
    yield "results", f"{counts.get('results', 0):,} for {counts.get('queries_with_results', 0):,} queries"
    if config.iterate is not None:
        rounds = sorted((int(number), n) for (number,), n in ROUND_QUERIES.of(counts))
        text = ", ".join(f"round {number}: {queries(n)}" for number, n in rounds)
        yield "rounds", text or "none: no best score was below the threshold"
    if config.grade is not None:
        graded = {verdict: n for (verdict,), n in GRADED_DOCUMENTS.of(counts)}
        verdicts = (RELEVANT, AMBIGUOUS, IRRELEVANT, "ungraded")
        text = ", ".join(f"{graded[name]:,} {name}" for name in verdicts if graded.get(name))
        yield "grades", text or "none: no result was there"
    if config.web is not None:
        away = sum(n for (stage, _), n in ERROR_QUERIES.of(counts) if stage == "web")
        yield "web", f"asked for {queries(counts.get('web_asked', 0))}" + (f", unanswered for {queries(away)}" if away else "")
    if config.answer is not None:
        wrong = sum(n for (*_, reason), n in ERRORS.of(counts) if reason == WRONG_CITATION)
        parts = [f"{counts.get('answers', 0):,}"]
        parts += [f"{cut:,} cut by the token limit"] if (cut := counts.get("answers_cut", 0)) else []
        parts += [f"{wrong:,} cite a document that they were not given"] if wrong else []
        yield "answers", ", ".join(parts)
    if config.judge is not None:
        yield "judgements", f"{counts.get('judgements', 0):,} by {', '.join(judge_models(run)) or 'a judge'}"
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in by_reason(counts).items())
    yield "errors", f"{queries(counts.get('failed_queries', 0))} ({reasons})" if reasons else "none"
    yield from spending_rows(run, prices)
    if (evaluation := measured.known) is not None:
        for measure, pair in evaluation.pairs.items():
            alone = "" if pair.a is None else f"  ({evaluation.alone} {figure(pair.a)})"
            yield title(measure), figure(pair.b) + alone
        for note in evaluation.frame.left_out:
            yield "left out", note
    for frame in (frame for frame in measured.answers if frame.keys):
        if frame.gold:
            yield from ((f"{name} of answers", figure(mean)) for name, (mean, _) in frame.means.items())
        else:
            means = ", ".join(f"{name} {mean:.2f}" for name, (mean, _) in frame.means.items())
            yield f"answers, {frame.kind}", f"{means} ({len(frame.keys):,} queries)"
    if run.storage.get(REPORT) is not None:
        yield "report", run.storage.url(REPORT)


def spending_rows(run: RunFolder, prices: Prices | None) -> Iterator[tuple[str, str]]:
    """Yields the rows of a closing table on fallbacks, on what was spent, and on what was lost."""
    if fell := fallbacks(run.counts):
        yield "fallbacks", "the original in place of " + ", ".join(f"{name} {queries(n)}" for name, n in fell.items())
    billed = None if prices is None else run.bill(prices)
    total = 0.0 if billed is None else billed.usd
    yield "cost", _cost(run.spent, list(run.spent), None if billed is None else billed.usd, total)
    for stage in (*(name for name in COSTED if name in run.spent), *(name for name in run.spent if name not in COSTED)):
        usd = None if billed is None else billed.of_stages([stage])
        if _shown(costs.stage_sums(run.spent, stage), usd):
            yield f"  {stage}", _cost(run.spent, [stage], usd, total)
    if billed is not None and billed.nodes:
        yield "  idle", money(billed.idle, total) + (f", and {money(billed.lost, total)} lost" if billed.lost else "")
    for text in lost_words(run):
        yield "lost", text


def lost_words(run: RunFolder) -> Iterator[str]:
    """Yields the requests without an answer that was kept, or a note that this is not known."""
    if lost := run.counts.get("lost_requests", 0):
        yield f"{counted('requests', lost)} got no answer that was kept: a start was killed, or a server was away"
    elif remote(run.storage.root) and any(start["status"] == "killed" for start in run.starts):  # journals lie on its machine
        yield "a start was killed; what it had sent without an answer is known on its own machine only"


def closing_values(
    run: RunFolder, prices: Prices | None, measured: MeasuredRun = UNMEASURED, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the same as JSON-able values."""
    return {
        "run_id": run.record["run_id"],
        "folder": run.storage.root,
        "retry": run.record.get(RETRY),
        "log": run.plan.counts,
        "counts": dict(run.counts),
        "costs": run.spent,
        "usd": None if prices is None else run.bill(prices).usd,
        "evaluation": None if measured.lists is None else measured.lists.values(),
        **{"answers": None, "judged_answers": {}, **answers_values(measured.answers)},
        "notes": [*more, *notes(run, prices, measured)],
    }


def notes(run: RunFolder, prices: Prices | None, measured: MeasuredRun) -> list[str]:
    """Returns notes that a reader of the figures needs."""
    config, notes_of_run = run.config, [] if measured.lists is None else measured.lists.notes
    notes_of_run += [note for frame in measured.answers for note in answer_notes(frame)]
    notes_of_run = list(dict.fromkeys(notes_of_run))  # a judge's note is the same for each kind that it judges
    if prices is None:
        notes_of_run.append(f"cost: {unpriced(run.record.get('config_file', 'the config'))}")
    notes_of_run += [f"fallback: {words}" for words in many_fallbacks(run.counts, config.limits.error_rate).values()]
    if config.used_redundancy not in ("none", config.fuse.redundancy):
        notes_of_run.append("redundancy: overlap in place of cosine, since no retriever is dense")
    return notes_of_run


def _by_strategy(
    counts: Mapping[str, int], readers: Mapping[str, Mapping[str, int]], strategies: Sequence[str]
) -> dict[str, str]:
    texts = {strategy: ", ".join(f"{reader} {n:,}" for reader, n in of.items()) for strategy, of in readers.items()}
    for strategy, counts_of_readers in readers.items():
        if further := counts.get(FURTHER_TEXTS.key(strategy), 0):
            texts[strategy] += f"; texts for {queries(sum(counts_of_readers.values()) - further)}"
    chosen, total = selected(counts, strategies)
    for strategy, n in chosen.items() if total else ():
        texts[strategy] = "; ".join(filter(None, [texts.get(strategy), f"selected for {queries(n)}"]))
    return texts


def guard_words(run: RunFolder) -> str:
    """Returns the flags and removals of guards, on one line; "" for none."""
    return ", ".join(f"{one.name} {one.total:,}{' left out' if one.left_out else ''}" for one in found_by_guards(run.counts))


def counted(quantity: str, value: float) -> str:
    """Returns '1 search', '1,646 searches', '12 prompt tokens'."""
    unit = quantity.replace("_", " ")
    if value == 1:
        unit = "search" if unit == "searches" else unit.replace("requests to", "request to").removesuffix("s")
    return f"{int(value):,} {unit}"


def _shown(sums: Mapping[str, float], usd: float | None) -> bool:
    """Returns True if more than zeros would be said of a stage."""
    return bool(usd and usd >= 0.00005) or any(round(value) for value in sums.values())


def _cost(spent: Totals, stages: list[str], usd: float | None, total: float) -> str:
    sums = costs.stage_sums(spent, *stages)
    parts = [] if usd is None else [money(usd, total)]
    if stages != [costs.DRIVER]:
        parts.append(f"{clock(sums.get('seconds', 0))} of workers' time")
    parts += [counted(name, sums[name]) for name in costs.QUANTITIES if sums.get(name)]
    if stages == [costs.DRIVER] and (wall := sums.get("driver_seconds")):
        parts.append(f"{clock(wall)} of the driver")
    if sent := sum(sums.get(name, 0) for name in costs.STORAGE_REQUESTS):
        parts.append(counted("requests_to_S3", sent))
    return ", ".join(parts)
