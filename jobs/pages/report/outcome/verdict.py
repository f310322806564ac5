"""Whether rewriting helps, and by what, in one sentence that claims no more than the figures hold."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from jobs.measure.judged_rows import of_original
from jobs.pages.report.figures import Figures
from jobs.pages.report.glance import Quality
from jobs.pages.report.judged_queries import Judged
from jobs.pages.report.lists import TOP, ListStatistics
from jobs.runs.reading import database, files
from jobs.tables import ORIGINAL
from jobs.terminal.formats import number, percent, signed

ALPHA = 0.05


def verdict(figures: Figures, quality: list[Quality], judged: Judged | None, lists: ListStatistics | None) -> str | None:
    """Returns the sentence, by the leading measure, the first; None where nothing is committed or nothing was rewritten."""
    if not figures.queries or not figures.counts["planned"] or lists is None or not lists.documents:
        return None
    reranked = figures.run.config.rerank.kind != "none"
    what, helps, harms = ("rewriting and reranking", "help", "do harm") if reranked else ("rewriting", "helps", "does harm")
    first = quality[0] if quality else None
    if first is None or first.difference is None or first.interval is None:
        return f"Whether {what} {helps} is not known: {_unknown(first)}.{_found(lists)}"
    low, high = first.interval
    of = f"{first.measure} {signed(first.difference)} over the original alone, 95 % interval {signed(low)} to {signed(high)}"
    if low > 0:
        return f"{what.capitalize()} {helps}{_mostly(figures, judged, lists)}: {of}."
    if high < 0:
        return f"{what.capitalize()} {harms}: {of}."
    return f"It is not clear whether {what} {helps}: {of}, which holds 0."


def _unknown(first: Quality | None) -> str:
    if first is None:
        return "nothing is measured"
    return "the original alone was not measured" if first.difference is None else "it takes two judged queries"


def _found(lists: ListStatistics) -> str:
    """Returns how many of the first results only rewrites have found."""
    if not lists.comparable or not lists.top_documents:
        return ""
    share = (lists.top_documents - lists.added[0].top_found) / lists.top_documents
    return f" Of the first {TOP} results of a query {percent(share)} were found by rewrites only."


def _mostly(figures: Figures, judged: Judged | None, lists: ListStatistics) -> str:
    """Returns by which strategy, where one found more than any other of what the original did not find; else "".

    Counted are the relevant documents among the first `TOP` results that no list of the original has. A strategy is named where
    its lists hold more than half of them, and, by a sign test over those that one of the two alone has, more than the next.
    """
    if judged is None or not lists.comparable:
        return ""
    found = _relevant(figures, judged)
    every, by = sum(found.values()), Counter[str]()
    for strategies, count in found.items():
        by.update(dict.fromkeys(strategies, count))
    ranked = sorted(by, key=lambda name: (-by[name], name))
    if not ranked or by[ranked[0]] * 2 <= every or (len(ranked) > 1 and not _more(found, ranked[0], ranked[1])):
        return ""
    words = f"{number(by[ranked[0]])} of {number(every)} relevant documents that the original does not find"
    return f", mostly by {ranked[0]} ({words})"


def _more(found: dict[frozenset[str], int], one: str, other: str) -> bool:
    """Returns whether one strategy has clearly more documents than another."""
    from scipy.stats import binomtest

    alone = sum(count for names, count in found.items() if one in names and other not in names)
    of_other = sum(count for names, count in found.items() if other in names and one not in names)
    return alone > of_other and bool(binomtest(alone, alone + of_other).pvalue < ALPHA)


def _relevant(figures: Figures, judged: Judged) -> dict[frozenset[str], int]:
    """Returns strategies -> the number of relevant results that their lists have, and none of the original."""
    run = figures.run
    pairs = [
        (query_id, doc_id) for query_id, of in judged.grades.items() for doc_id, grade in of.items() if grade >= judged.least
    ]
    names = files(run, "results", run.manifests)
    if not pairs or not names:
        return {}
    columns = dict(zip(("query_id", "doc_id"), map(list, zip(*pairs, strict=True)), strict=True))
    with database() as connection:
        connection.register("relevant", pa.table({name: pa.array(of, pa.string()) for name, of in columns.items()}))
        original = f"SELECT DISTINCT query_id, doc_id FROM rows_of($runs) WHERE {of_original(run)}"
        runs = files(run, "runs", run.manifests) if run.config.retrieve.keep_runs else []
        rows = connection.execute(
            "SELECT list_sort(list_distinct(list_transform(sources, lambda s: s.strategy))) AS found, count(*) "
            "FROM (FROM rows_of($names) WHERE rank <= $top) SEMI JOIN relevant USING (query_id, doc_id) "
            + (f"ANTI JOIN ({original}) USING (query_id, doc_id) " if runs else "")
            + "GROUP BY found",
            {"names": names, "top": TOP} | ({"runs": runs} if runs else {}),
        ).fetchall()
    return {frozenset(found): count for found, count in rows if found and ORIGINAL not in found}
