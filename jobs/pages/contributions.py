"""What each strategy brought to the results of a run: what its lists found, and what the original's had not.

These are sums over shards; of a long run only as many shards are read as hold about `MOST_QUERIES` queries.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from jobs.measure.judged_rows import above_cuts
from jobs.measure.list_portions import weightless
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, portions, spread
from jobs.tables import ORIGINAL
from retrievers.lists import TOGETHER

MOST_QUERIES = 50_000
TOP = 10
PORTION = 2_000_000  # rows of results/ read at a time


@dataclass(frozen=True)
class Added:
    """What the lists of one strategy have of the results, in documents."""

    strategy: str
    found: int
    new: int
    """Of these, results that no list of the original has."""
    alone: int
    """Of these, results that no other strategy's list has."""
    top_found: int
    top_new: int
    """`found` and `new` among the first `TOP` results."""


@dataclass(frozen=True)
class Contributions:
    """What strategies brought, over `queries` of the committed queries."""

    queries: int
    documents: int
    top_documents: int
    added: list[Added]


def contributions(run: RunFolder) -> Contributions | None:
    """Returns what each strategy brought; None if nothing is committed."""
    queries = run.counts["queries"]
    if not queries:
        return None
    chosen = run.manifests
    if queries > MOST_QUERIES:
        chosen = spread(chosen, max(1, MOST_QUERIES // max(manifest.counts["queries"] for manifest in chosen)))
    names = [ORIGINAL, *run.config.rewrite.planned, *[TOGETHER] * bool(run.config.joining)]
    left_out = weightless(run, names)
    found: Counter[tuple[bool, frozenset[str]]] = Counter()
    # lists of weight 0 are no sources of results: what they hold is known where lists were kept
    others = f"""LEFT JOIN (
        SELECT query_id, doc_id, list(DISTINCT strategy) AS others FROM rows_of($runs)
        WHERE {above_cuts(run)} AND strategy || '/' || retriever IN (SELECT unnest($left_out)) GROUP BY ALL
    ) USING (query_id, doc_id)"""
    with database() as connection:
        for portion in portions(chosen, "results", PORTION):
            results, runs = files(run, "results", portion), files(run, "runs", portion) if left_out else []
            by = "list_concat(list_transform(sources, lambda s: s.strategy), " + ("coalesce(others, []))" if runs else "[])")
            query = f"SELECT rank <= $top, list_distinct({by}) AS found, count(*) FROM rows_of($names) {others if runs else ''}"
            given = {"top": TOP, "names": results} | ({"runs": runs, "left_out": left_out} if runs else {})
            for top, strategies, number in connection.execute(f"{query} GROUP BY ALL", given).fetchall() if results else ():
                found[top, frozenset(strategies)] += number
    return Contributions(
        sum(manifest.counts["queries"] for manifest in chosen),
        found.total(),
        sum(number for (top, _), number in found.items() if top),
        [_added(name, found) for name in names],
    )


def _added(name: str, found: Counter[tuple[bool, frozenset[str]]]) -> Added:
    mine = {key: number for key, number in found.items() if name in key[1]}
    new = {key: number for key, number in mine.items() if ORIGINAL not in key[1]}
    alone = sum(number for (_, strategies), number in mine.items() if len(strategies) == 1)
    tops = [sum(number for (top, _), number in of.items() if top) for of in (mine, new)]
    return Added(name, sum(mine.values()), sum(new.values()), alone, *tops)


def comparable(run: RunFolder) -> bool:
    """Returns whether all documents found by the original are known.

    They are known from its lists, or from the results' sources, which name every list but those of weight 0. Where it was
    searched as one with its rewrites they are not.
    """
    return not run.config.joining and (run.config.retrieve.keep_runs or not weightless(run, [ORIGINAL]))
