"""What a run's texts and scores are like, as counts of bins that compare from night to night.

length  characters of a text: below 10, 20, 40, 80, 160, 320, 640, and more
script  of most of a text's letters (`jobs/measure/compare/slices.py`)
rung    how a rewrite was read from the model's answer (`rewrites.parsed_as`)
guard   whether a guard flagged a text, or left it out
score   of the first result of a query: tenths of the first night that has such scores

Texts and scores are of about `MOST_QUERIES` queries, in shards that are evenly spread; what is counted in manifests is of all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from jobs.measure.arrays import Floats
from jobs.measure.compare.slices import script
from jobs.runs.folder import RunFolder
from jobs.runs.reading import database, files, queries_of, spread
from jobs.runs.sums import found_by_guards, rungs_by_strategy
from jobs.runs.tally import Committed
from jobs.tables import ORIGINAL

LENGTH, SCRIPT, RUNG, GUARD, SCORE = "length", "script", "rung", "guard", "score"
MOST_QUERIES = 50_000
LENGTHS = (10, 20, 40, 80, 160, 320, 640)
"""Where a bin of lengths ends and the next begins."""
LENGTH_BINS = ("< 10", *(f"{low}-{high - 1}" for low, high in pairwise(LENGTHS)), f"{LENGTHS[-1]} +")
TENTHS = 10
_QUERIES = "queries"  # what is found over a whole job is of them
_ROWS = 10_000  # that are fetched at a time
_DIGITS = ".6g"  # of the ends of bins of scores, by which bins are called
_SCORES = {"fused_score": "fused score", "rerank_score": "reranker's score"}
Edges = Mapping[str, Sequence[float]]
"""Kind of score -> where its bins end; a score that equals an end is in the bin below it."""


@dataclass(frozen=True)
class Distribution:
    """Counts of bins."""

    kind: str
    """LENGTH, SCRIPT, RUNG, GUARD or SCORE."""
    of: str
    """A strategy or the original; of GUARD '<strategy>: <guard>', of SCORE which score."""
    counts: dict[str, int]
    """Bin -> count, in the order of the bins."""

    @property
    def total(self) -> int:
        """Returns the number of texts or scores."""
        return sum(self.counts.values())


def distributions(run: RunFolder, edges: Edges) -> list[Distribution]:
    """Returns the distributions of a run's committed shards; `edges`: of the scores."""
    chosen = sampled(run)
    return [*_of_texts(run, chosen), *_of_rungs(run), *_of_guards(run), *_of_scores(run, chosen, edges)]


def sampled(run: RunFolder) -> list[Committed]:
    """Returns shards with about `MOST_QUERIES` queries, evenly spread, or all of a smaller run."""
    shards, queries = run.manifests, run.counts["queries"]
    if queries <= MOST_QUERIES:
        return list(shards)
    return spread(shards, max(1, MOST_QUERIES // max(one.counts["queries"] for one in shards)))


def score_edges(run: RunFolder, known: Collection[str]) -> dict[str, list[float]]:
    """Returns where the bins of each kind of score that is not `known` end: at the tenths of a run's scores.

    Tenths that are equal make one end, so that of scores which are mostly the same there are fewer bins.
    """
    found: dict[str, list[float]] = {}
    for kind in _kinds(run):
        if kind not in known and len(scores := _first_scores(run, sampled(run), kind)):
            ends = np.quantile(scores, np.arange(1, TENTHS) / TENTHS, method="inverted_cdf")
            found[kind] = sorted({float(f"{end:{_DIGITS}}") for end in ends})
    return found


def _of_texts(run: RunFolder, chosen: Sequence[Committed]) -> list[Distribution]:
    """Returns the lengths and scripts of the original queries and of each strategy's texts."""
    lengths: dict[str, Counter[str]] = {}
    scripts: dict[str, Counter[str]] = {}

    def add(strategy: str, text: str) -> None:
        lengths.setdefault(strategy, Counter())[LENGTH_BINS[bisect_right(LENGTHS, len(text))]] += 1
        scripts.setdefault(strategy, Counter())[script(text)] += 1

    for shard in chosen:
        for _, query, _ in queries_of(run, shard.shard):
            add(ORIGINAL, query)
    if names := files(run, "rewrites", chosen):
        with database() as connection:
            rows = connection.execute("SELECT strategy, text FROM rows_of(?)", [names])
            while some := rows.fetchmany(_ROWS):
                for strategy, text in some:
                    add(strategy, text)
    order = _in_order(lengths, [ORIGINAL, *run.config.rewrite.planned])
    found = [Distribution(LENGTH, name, {one: lengths[name][one] for one in LENGTH_BINS}) for name in order]
    return found + [Distribution(SCRIPT, name, dict(sorted(scripts[name].items()))) for name in order]


def _of_rungs(run: RunFolder) -> list[Distribution]:
    made = rungs_by_strategy(run.counts)
    return [Distribution(RUNG, name, made[name]) for name in _in_order(made, run.config.rewrite.planned)]


def _in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Returns names as they are in an order, and those that are not in it behind."""
    place = {name: number for number, name in enumerate(order)}
    return sorted(names, key=lambda name: (place.get(name, len(order)), name))


def unfound(run: RunFolder, names: Iterable[str]) -> list[Distribution]:
    """Returns the distributions of guards, named by `Distribution.of`, that found nothing in a run; of what it made alone."""
    looked_at = _looked_at(run)
    found = []
    for name in names:
        of = name.rpartition(": ")[0]
        if whole := looked_at.get("" if of == _QUERIES else of, 0):
            found.append(Distribution(GUARD, name, _parted(0, whole)))
    return found


def _of_guards(run: RunFolder) -> list[Distribution]:
    """Returns, for each strategy and guard that found something, how many texts it found, and how many it did not.

    What is found over a whole job, of no strategy, is of queries.
    """
    looked_at = _looked_at(run)
    found = []
    for guard in found_by_guards(run.counts):
        for strategy, count in guard.texts.items():
            name = f"{guard.name}, left out" if guard.left_out else guard.name
            found.append(Distribution(GUARD, f"{strategy or _QUERIES}: {name}", _parted(count, looked_at.get(strategy, 0))))
    return sorted(found, key=lambda one: one.of)


def _looked_at(run: RunFolder) -> dict[str, int]:
    """Returns strategy -> texts that guards looked at: those of rewrites/, and those that were left out; "" -> the queries."""
    looked_at = Counter({strategy: sum(rungs.values()) for strategy, rungs in rungs_by_strategy(run.counts).items()})
    for guard in found_by_guards(run.counts):
        looked_at.update(guard.texts if guard.left_out else {})
    return {**looked_at, "": run.counts["queries"]}


def _parted(count: int, whole: int) -> dict[str, int]:
    return {"found": count, "not found": max(0, whole - count)}


def _kinds(run: RunFolder) -> list[str]:
    """Returns the kinds of scores that a run's results have."""
    return [kind for kind in _SCORES if kind == "fused_score" or run.config.rerank.kind != "none"]


def _of_scores(run: RunFolder, chosen: Sequence[Committed], edges: Edges) -> list[Distribution]:
    found = []
    for kind in _kinds(run):
        ends = edges.get(kind)
        scores = _first_scores(run, chosen, kind)
        if ends is None or not len(scores):
            continue
        places = np.bincount(np.searchsorted(ends, scores, side="left"), minlength=len(ends) + 1)
        names = [f"<= {end:{_DIGITS}}" for end in ends] + [f"> {ends[-1]:{_DIGITS}}"]
        found.append(Distribution(SCORE, _SCORES[kind], dict(zip(names, places.tolist(), strict=True))))
    return found


def _first_scores(run: RunFolder, chosen: Sequence[Committed], kind: str) -> Floats:
    """Returns the scores of the first result of each query that has one."""
    names = files(run, "results", chosen)
    if not names:
        return np.zeros(0)
    with database() as connection:
        rows = connection.execute(
            f"SELECT {kind} AS score FROM rows_of(?) WHERE rank = 1 AND isfinite({kind})", [names]
        ).fetchnumpy()
    return np.asarray(rows["score"], np.float64)
