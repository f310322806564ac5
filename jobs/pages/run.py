"""The page of a run: whether rewriting helped, on which queries, what it cost, and what went wrong.

All figures are computed from the committed shards, so that unfinished runs can be reported, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cluster import costs
from cluster.costs import START_UP
from cluster.prices import Prices
from jobs.chain.pipeline import COSTED
from jobs.counts import ERROR_QUERIES, ERRORS, FURTHER_TEXTS
from jobs.job.indexes import noted_changes
from jobs.log.rejections import REASONS, rejected_words
from jobs.measure.evaluate import Evaluation, store_evaluation
from jobs.measure.measures import title
from jobs.measure.notes import INTERVAL, ends_in_words
from jobs.measure.significance import BETTER, WORSE
from jobs.measure.strategies import FIRST_RESULTS, Sums, comparable, contributions, listed_strategies
from jobs.pages.comparison import UNMEASURED, MeasuredRun
from jobs.pages.render import Code, Head, Notes, Part, Section, Table, Tile, Tiles, write_page
from jobs.pages.samples import Sample, ends, samples
from jobs.pages.sections import configuration, run_page, time_section
from jobs.pages.summary import guard_words, lost_words
from jobs.runs.folder import REPORT, RunFolder
from jobs.runs.retry import retry_words
from jobs.runs.savings import saving_of_run
from jobs.runs.sums import many_fallbacks, readers_by_strategy, selected
from jobs.runs.tables import database
from jobs.tables import NOTES, ORIGINAL
from jobs.terminal.formats import count, duration, figure, money, percent, planned_rewrites, queries, sentence

EXAMPLES = 3  # of each reason of an error
CHARACTERS = 300  # of the beginning and of the end of an answer
WARN_SHARE = 0.5  # of limits.error_rate: from this share on a notice is shown

Example = dict[str, Any]
"""One answer or log row with an error: `id` (query_id or log_id), `query`, `strategies`, `message`, `answer`."""


def write_report(run: RunFolder, prices: Prices | None, measured: MeasuredRun, out: str | None = None, *, texts: bool) -> None:
    """Writes the report of a run to `out`, a path or an object on S3, or into its folder, where its evaluation is stored, too.

    `texts`: whether queries and texts are on it.
    """
    html = report(run, prices, measured, texts=texts)
    if out is None:
        store_evaluation(run.storage, measured.values(), finished=run.finished)
    write_page(out or run.storage.url(REPORT), html)


def report(run: RunFolder, prices: Prices | None, measured: MeasuredRun = UNMEASURED, *, texts: bool = True) -> str:
    """Returns the report as one HTML page, without `prices` with quantities only.

    Without `texts` it has no query, rewrite, prompt, answer, message or document; ids, counts and names stay.
    """
    return run_page(run, "Report of a run", _sections(run, prices, measured, texts), texts=texts)


def _sections(run: RunFolder, prices: Prices | None, measured: MeasuredRun, texts: bool) -> Iterator[Section | None]:
    added, failures = contributions(run), examples(run)
    failed = [one["id"] for (stage, reason), of in failures.items() if stage != "log" and reason not in NOTES for one in of]
    chosen = samples(run, failed, measured, texts=texts)
    yield _verdict(run, prices, measured, added)
    yield _quality(measured)
    yield _strategies(run, added)
    yield _samples(run, chosen, measured)
    yield cost_section(run, prices)
    yield errors_section(run, failures, texts=texts)
    yield time_section(run)
    yield configuration(run)


def _verdict(run: RunFolder, prices: Prices | None, measured: MeasuredRun, added: Sums) -> Section:
    counts, planned = run.counts, run.plan.counts
    tiles = _lead_tiles(run, prices, measured)
    rejected = rejected_words(planned)
    log = f"of {planned['log_rows']:,} log rows" + f", {rejected}" * bool(rejected)
    waiting = planned["queries"] - counts["queries"]
    log = f"{counts['queries']:,} committed; {log}" if waiting else log
    tiles.append(Tile("distinct queries", count(planned["queries"]), log, "bad" if waiting else ""))
    rewrites, _, detail = planned_rewrites(counts).partition(" ")
    tiles.append(Tile("rewrites", rewrites, detail))
    limit, failed = run.config.limits.error_rate, counts["failed_queries"]
    rate = failed / counts["queries"] if counts["queries"] else 0.0
    limit_text = f"{percent(rate)}, {'above the limit of' if rate > limit else 'limit'} {percent(limit)}"
    tiles.append(Tile("queries with errors", count(failed), limit_text, "bad" if rate > limit else ""))
    parts: list[Part] = [Notes(notices(run, rate), warns=True), Tiles(tiles), Notes(remarks(run, prices))]
    return Section("verdict", "", verdict(run, measured.known, added), parts)


def verdict(run: RunFolder, measured: Evaluation | None, added: Sums) -> str:
    """Returns a sentence on whether rewriting helps, and by what, that claims no more than the figures hold."""
    if not run.counts["queries"]:
        return "Nothing is committed yet."
    if not run.counts["planned"]:
        return "No rewrites were planned: only the original query was searched."
    reranked = run.config.rerank.kind != "none"
    what, helps, harms = ("rewriting and reranking", "help", "do harm") if reranked else ("rewriting", "helps", "does harm")
    first, pair = (None, None) if measured is None else next(iter(measured.pairs.items()))
    ends = None if pair is None else pair.interval
    if measured is None or pair is None or first is None or ends is None:
        why = "nothing is measured" if measured is None else "the original alone was not measured"
        why = "it takes two judged queries" if measured is not None and measured.has_original else why
        return f"Whether {what} {helps} is not known: {why}.{_only_by_rewrites(run, added)}"
    moved = figure(pair.difference or 0.0, "+")
    by = f"{title(first)} {moved} over the {measured.alone}, {INTERVAL} {ends_in_words(ends)}"
    if ends[0] > 0:
        return f"{what.capitalize()} {helps}: {by}."
    if ends[1] < 0:
        return f"{what.capitalize()} {harms}: {by}."
    return f"It is not clear whether {what} {helps}: {by}, which holds 0."


def _only_by_rewrites(run: RunFolder, added: Sums) -> str:
    if not comparable(run) or not (documents := added["top_found", ""]):
        return ""
    new = (documents - added["top_found", ORIGINAL]) / documents
    return f" Of the first {FIRST_RESULTS} results of a query {percent(new)} were found by rewrites only."


def _lead_tiles(run: RunFolder, prices: Prices | None, measured: MeasuredRun) -> list[Tile]:
    tiles, known = [], measured.known
    if known is not None:
        first, pair = next(iter(known.pairs.items()))
        if pair.a is None:
            tiles.append(Tile(title(first), figure(pair.b), "the original alone was not measured"))
        else:
            state = {BETTER: "good", WORSE: "bad"}.get(pair.verdict or "", "")
            text = f"{figure(pair.a)} → {figure(pair.b)}"
            if gains := [gain for _, gain in measured.gains]:
                text += f"; {sum(one > 0 for one in gains):,} queries gained, {sum(one < 0 for one in gains):,} lost"
            tiles.append(Tile(f"{title(first)} over the {known.alone}", figure(pair.b - pair.a, "+"), text, state))
    asked = run.counts["queries"]
    if asked and prices is not None:
        usd = run.bill(prices).usd
        tiles.append(Tile("cost per 1,000 queries", money(1000 * usd / asked), f"{money(usd)} in all"))
    elif asked:
        seconds = costs.stage_sums(run.spent).get("seconds", 0.0)
        tiles.append(Tile("worker time per 1,000 queries", duration(1000 * seconds / asked), "no prices, so no money"))
    wall = sum(one["wall_seconds"] for one in run.starts)
    starts = f"in {len(run.starts):,} starts" if len(run.starts) > 1 else "from the first stage to the last record"
    return [*tiles, Tile("wall time", duration(wall), starts)]


def notices(run: RunFolder, error_rate: float) -> list[str]:
    """Returns notices of failures, a sentence each."""
    limit, texts = run.config.limits.error_rate, []
    if not run.finished:
        texts.append(f"This run is not finished ({run.state}). All figures are of the committed shards only.")
    if error_rate > WARN_SHARE * limit:
        over = f"; limits.error_rate is {percent(limit)}" if error_rate > limit else ", more than half of limits.error_rate"
        texts.append(f"{percent(error_rate)} of the queries have errors{over}.")
    texts += [sentence(one) for one in (*many_fallbacks(run.counts, limit).values(), *noted_changes(run.starts))]
    texts += [sentence(one) for one in lost_words(run)]
    for start in run.starts:
        for away in start["outages"]:
            texts.append(f"Start {start['start']} waited {duration(away['seconds'])} for {away['service']}: {away['reason']}.")
    return texts


def remarks(run: RunFolder, prices: Prices | None) -> list[str]:
    """Returns remarks on surprises other than failures, a sentence each."""
    counts, texts = run.counts, []
    if (retried := retry_words(run)) is not None:
        texts.append(f"This run is a retry: {retried}.")
    redundancy = run.record.get("redundancy", {})
    if redundancy.get("asked") != redundancy.get("used"):
        texts.append(f"Redundancy weights are by {redundancy['used']}: for {redundancy['asked']} a retriever must be dense.")
    if (saving := saving_of_run(run, prices)) is not None:
        texts.append(f"Gate: {saving.summary}.")
    chosen, total = selected(counts, run.config.rewrite.planned)
    if total:
        shares = ", ".join(f"{name} {percent(n / total)}" for name, n in chosen.items())
        mean = sum(chosen.values()) / total
        texts.append(f"Selected were {mean:.2f} strategies per query: {shares}.")
    return texts


def _quality(measured: MeasuredRun) -> Section:
    parts: list[Table | Notes] = []
    for table, notes in measured.tables(wide=True):
        parts += [Notes(notes)] if table is None else [table, Notes(notes)]
    text = "" if parts else "Not measured: give relevance judgements in evaluate.qrels, or to this report with --qrels FILE."
    return Section("quality", "Quality", text, parts)


def _strategies(run: RunFolder, added: Sums) -> Section | None:
    if not added:
        return None
    readers, known, failed = readers_by_strategy(run.counts), comparable(run), Counter[str]()
    for (stage, component, reason), number in ERRORS.of(run.counts):
        if stage == "rewrite" and component and reason not in NOTES:
            failed[component] += number
    columns = [Head("strategy"), Head("queries with a text", count), Head("failed", count)]
    by_rewrites = ("of these not by the original", f"in the first {FIRST_RESULTS}, not by the original")
    for label in ("results found, per query", *by_rewrites, "by no other strategy"):
        columns.append(Head(label, lambda documents: f"{documents / run.counts['queries']:.2f}"))
    rows = []
    for name in listed_strategies(run):
        texts = sum(readers.get(name, {}).values()) - run.counts[FURTHER_TEXTS.key(name)]
        new = [added["new", name], added["top_new", name]] if known and name != ORIGINAL else [None, None]
        asked = run.counts["queries"] if name == ORIGINAL else texts
        rows.append([name, asked, failed[name], added["found", name], *new, added["alone", name]])
    if not (documents := added["found", ""]):
        return Section("strategies", "Strategies", "No results are committed.", [Table(columns, rows)])
    rest = (documents - added["found", ORIGINAL]) / documents
    text = f"Rewrites alone found {percent(rest)} of all results.{_only_by_rewrites(run, added)}" if known else ""
    return Section("strategies", "Strategies", text, [Table(columns, rows)])


def _samples(run: RunFolder, chosen: Sequence[Sample], measured: MeasuredRun) -> Section:
    text, gained = "Nothing is committed yet.", "those that gained and lost most, " * (measured.lists is not None)
    if chosen:
        text = f"{len(chosen):,} of {run.counts['queries']:,} queries: "
        text += f"some with errors, {gained}those asked most often, and others."
        if comparable(run):
            text += f" “+ new”: no list of the original has the document in its first {run.config.fuse.depth}."
        text += " “★ relevant”: judged so, with its grade." * (measured.lists is not None)
    return Section("samples", "Sample queries", text, chosen)


def cost_section(run: RunFolder, prices: Prices | None) -> Section:
    """Returns the costs of the committed shards by stage; where nodes are billed, the lines add up to the bill."""
    spent, billed = run.spent, None if prices is None else run.bill(prices)
    total = costs.stage_sums(spent)
    if not spent:
        return Section("cost", "Cost", "Nothing is committed, so nothing is accounted for yet.")
    whole = total.get("seconds", 0.0) if billed is None else billed.usd

    def line(name: str, stage: str, keys: Sequence[str]) -> list[object]:
        own = {key: spent[stage][key] for key in keys}
        sums = costs.stage_sums({stage: own})
        start_up = sum(of.get("seconds", 0.0) for key, of in own.items() if key.startswith(START_UP))
        usd = None if billed is None else sum(billed.usd_of(stage, key, amounts) for key, amounts in own.items())
        busy = sums.get("seconds", 0.0) - start_up
        part = (sums.get("seconds", 0.0) if usd is None else usd) / whole if whole else 0.0
        return [name, usd, part, busy or None, start_up or None, *(sums.get(name) or None for name in costs.QUANTITIES)]

    rows = []
    for stage in sorted(spent, key=lambda name: (COSTED.index(name) if name in COSTED else len(COSTED), name)):
        rows.append(line(stage, stage, list(spent[stage])))
        keys = [key for key in spent[stage] if not key.startswith((START_UP, "@")) and key != costs.STORAGE_COMPONENT]
        for key in keys if len(keys) > 1 else ():
            component, _, model = key.partition("@")
            rows.append(line(f"  {component} ({model})" if model else f"  {component}", stage, [key]))
    for name, usd in (("idle", billed.idle), ("lost", billed.lost)) if billed is not None else ():
        rows += [[name, usd, usd / whole if whole else 0.0, *[None] * (2 + len(costs.QUANTITIES))]] if usd else []
    ups = sum(of.get("seconds", 0.0) for stage in spent.values() for key, of in stage.items() if key.startswith(START_UP))
    sums = [total.get("seconds", 0.0) - ups, ups, *(total.get(name) or None for name in costs.QUANTITIES)]
    bill = None if billed is None else billed.usd
    rows.append(["total", bill, 1.0, *sums])
    columns = [Head("stage"), Head("USD", partial(money, total=bill)), Head("share", percent)]
    columns += [Head("busy time", duration), Head("start-up", duration)]
    table = Table([*columns, *(Head(name.replace("_", " "), count) for name in costs.QUANTITIES)], rows, strong=["total"])
    asked = run.counts["queries"]
    text = "Quantities only: there are no prices. Shares are of the time of workers."
    if billed is not None and asked:
        text = f"{money(billed.usd)} in all, {money(1000 * billed.usd / asked)} per 1,000 queries."
        if nodes := sum(billed.nodes.values()):
            text += f" {money(nodes)} of it are nodes, billed by time, busy or not: idle is what no work was there for, lost"
            text += " is what was in flight when a start was killed, failed or stopped."
    if total.get("reused"):
        text += f" {count(total['reused'])} answers, lists and scores came from the store, at no cost."
    return Section("cost", "Cost", text, [table])


def examples(run: RunFolder) -> dict[tuple[str, str], list[Example]]:
    """Returns up to EXAMPLES of each (stage, reason), rejected log rows among them."""
    names = run.tables.get("errors")
    examples_of: dict[tuple[str, str], list[Example]] = {}
    query = f"""
        WITH chosen AS (
            SELECT stage, reason, coalesce(query_id, log_id) AS id, any_value(query_id) AS query_id, raw,
                if(log_id IS NULL, filename, '') AS file,  -- rejected rows are in the order of their ids
                array_to_string(list_sort(list_distinct(list(nullif(component, '')))), ', ') AS strategies,
                min(message) AS message
            FROM read_parquet(?, filename = true, hive_partitioning = false) GROUP BY stage, reason, id, raw, file
            QUALIFY row_number() OVER (PARTITION BY stage, reason ORDER BY file, id, raw) <= {EXAMPLES}
        )
        SELECT stage, reason, id, query, strategies, message, {ends("raw", CHARACTERS)} AS answer
        FROM chosen LEFT JOIN queries USING (query_id) ORDER BY file, id, raw
    """
    with database(run, tables=["queries"]) as connection:
        rows = connection.sql(query, params=[names]).to_arrow_table().to_pylist() if names else []
    for example in rows:
        examples_of.setdefault((example.pop("stage"), example.pop("reason")), []).append(example)
    return examples_of


def errors_section(run: RunFolder, examples_of: Mapping[tuple[str, str], list[Example]], *, texts: bool) -> Section:
    """Returns the section on errors, failures before notes; without `texts` the examples are ids."""
    counts, total = run.counts, run.counts["queries"]
    order = {name: place for place, name in enumerate(run.config.rewrite.planned)}
    lost: dict[tuple[str, str], dict[str, int]] = {}  # stage and reason -> strategy -> rewrites lost to it
    for (stage, name, reason), number in sorted(ERRORS.of(counts), key=lambda row: order.get(row[0][1], len(order))):
        lost.setdefault((stage, reason), {}).update({name: number} if name else {})
    asked = {key: counts[ERROR_QUERIES.key(*key)] for key in lost}  # an answer that lacks several rewrites counts once
    known = sorted(lost, key=lambda key: (key[1] in NOTES, -asked[key], key))
    rows = [
        [
            reason + " (a note, no failure)" * (reason in NOTES), stage, asked[stage, reason],
            asked[stage, reason] / total if total else None,
            ", ".join(f"{name} {n:,}" for name, n in lost[stage, reason].items()) or None,
        ]
        for stage, reason in known
    ]  # fmt: skip
    columns = [Head("reason"), Head("stage"), Head("queries", count), Head("share of queries", percent)]
    parts: list[Table | Code] = [Table([*columns, Head("rewrites lost, by strategy")], rows)] if rows else []
    for stage, reason in known:
        shown = [_words(example, texts) for example in examples_of.get((stage, reason), ())]
        parts += [Code(f"Examples: {reason} in {stage}", "\n\n".join(shown))] if shown else []
    failed, planned = counts["failed_queries"], run.plan.counts
    rejected = Counter({reason: planned.get(f"rejected_{reason}", 0) for reason in sorted(REASONS)}).most_common()
    if rejected := [(reason, number) for reason, number in rejected if number]:
        parts.append(Table([Head("rejected log rows"), Head("rows", count)], rejected))
        for reason, _ in rejected:
            shown = [_words(example, texts) for example in examples_of["log", reason]]
            parts.append(Code(f"Examples: {reason}", "\n\n".join(shown)))
    text = "No query has an error."
    if failed:
        text = f"{queries(failed)} of {total:,} ({percent(failed / total)}) have an error; "
        text += "they have results all the same if any list had a hit."
    text += f" {planned['rejected']:,} of {planned['log_rows']:,} log rows were rejected." if planned["rejected"] else ""
    if guards := guard_words(run):
        text += f" Guards: {guards}."
    return Section("errors", "Errors", text, parts)


def _words(example: Example, texts: bool) -> str:
    return "\n".join(f"{name}: {words}" for name, words in example.items() if words) if texts else str(example["id"])
