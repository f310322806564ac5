"""The frame of arm x measure x key from which every verb starts: the values of a run, of its original alone, of an ablation.

Counted are the judged keys (log rows or queries) that are in the log and whose query is committed. One without results counts
zero, so failures never raise a mean; an unfinished run is measured on its committed queries. Arms often have the same list for
a query, so each distinct list of a query is measured once.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np

from jobs.chain.arms.arms import RUN
from jobs.chain.cuts import cut_from
from jobs.job.measure_checks import WHOLE, check_grades, check_measures, deepest_rank, depths
from jobs.log.judgements import JudgedBy, Judgements, Key
from jobs.measure import judged_rows
from jobs.measure.clusters import query_clusters
from jobs.measure.judged_rows import ARM_LISTS, NOT_ASKED, AskedQuery, asked_queries, counted_keys
from jobs.measure.measures import MeasuredCells, reached
from jobs.measure.missing_documents import UnknownDocuments
from jobs.measure.notes import nothing_measured
from jobs.measure.significance import (
    TIE,
    Floats,
    Numbers,
    PairedTest,
    cluster_sums,
    detectable,
    equivalence_p,
    paired_test,
    verdict,
)
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database
from jobs.tables import ORIGINAL

# Kinds of frames; the others are those of a judge of answers. Judged lists stand beside lists that people judged.
LISTS, JUDGED_LISTS, ANSWERS = "lists", "relevance", "answers"


class Pair(NamedTuple):
    """An arm B beside an arm A by one measure, over the same keys; what is not known is None."""

    a: float | None  # mean of A; None: there is no A
    b: float
    difference: float | None = None
    interval: tuple[float, float] | None = None  # 95 % interval of the difference; None with fewer than two clusters
    p: float | None = None  # two-sided paired t-test over clusters, not corrected
    better: int = 0
    worse: int = 0
    detectable: float | None = None  # smallest true difference that a test of these queries at .05 finds with a power of 80 %
    verdict: str | None = None


@dataclass(frozen=True)
class Frame:
    """Values by arm, measure and key, in order of the keys' queries; rejected log rows last."""

    arms: tuple[str, ...]
    measures: tuple[str, ...]  # as ir_measures prints them; the first one decides
    keys: tuple[str, ...]
    query_ids: tuple[str | None, ...]  # the query of each; None for a rejected log row
    asked: tuple[AskedQuery, ...]  # the same queries; `NOT_ASKED` for a rejected log row
    values: Floats  # (arms, measures, keys): 0 without results
    condensed: Floats
    """(arms, measures, keys): of the lists without their unjudged documents (condensed lists: Sakai, Alternatives to Bpref,
    SIGIR 2007), as deep as they were read: those of an ablation whole."""
    unjudged: Floats  # (arms,): share of the results, down to `depth`, without a judgement; NaN for an arm without results
    failed: Numbers  # (arms,): keys whose committed query has no result; they count zero. Rejected rows are not among them
    judged: int
    missing: int
    not_committed: int
    rejected: int  # number of counted keys that are rejected log rows; they count zero
    depth: int  # the deepest rank that a measure reads, one that is left out, too
    key: Key
    unmatched: tuple[str, str] | None  # if no judged key is in the log: a key of the judgements and one of the log, as examples
    unknown: UnknownDocuments | None = None
    """The judged documents that no index of the config itself has; None where they were not looked up, too."""
    judge: JudgedBy | None = None  # the LLM that judged; None: people did
    kind: str = LISTS
    """Measured items: lists; or answers, then a list is an answer, of length 1, and nothing is cut or unjudged. Answers are
    measured against gold answers (`ANSWERS`), or by what a judge says of them (its kinds)."""
    left_out: tuple[str, ...] = ()
    """Measures and arms that are left out, since a measure reads deeper than lists reach (`reached`); a sentence each."""

    @property
    def answers(self) -> bool:
        return self.kind not in (LISTS, JUDGED_LISTS)

    @property
    def gold(self) -> bool:
        """Returns True if keys are those with gold answers; else they are judged."""
        return self.kind == ANSWERS

    @property
    def warning(self) -> str | None:
        """Returns the reason why nothing was measured, in one line; None if something was."""
        if self.keys:
            return None
        if self.left_out:
            return f"nothing is measured: {'; '.join(self.left_out)}"
        if self.judge is not None and self.answers:
            return f"nothing is measured: no query is committed whose answers could be judged ({self.kind}); errors/ says why"
        return nothing_measured(self.judged, self.not_committed, self.unmatched, self.key, gold=self.gold)

    def with_measures(self, kept: Sequence[int]) -> Self:
        """Returns the frame with the measures at some places; without keys where there are none."""
        if not kept:
            none = self.values[..., :0]
            return replace(self, keys=(), query_ids=(), asked=(), values=none, condensed=none)
        names = tuple(self.measures[place] for place in kept)
        return replace(self, measures=names, values=self.values[:, kept], condensed=self.condensed[:, kept])

    @property
    def counted(self) -> dict[str, int]:
        """Returns the number of keys that are judged, left out and counted, and of how many queries, by name."""
        counted = self.judged - self.missing - self.not_committed
        counts = {"judged": self.judged, "missing": self.missing, "not_committed": self.not_committed, "counted": counted}
        return counts | {"queries": self.distinct, "rejected": self.rejected}

    @cached_property
    def counts(self) -> Numbers:
        """Returns (keys,): how often the log has the key's query; 1 for a rejected row."""
        return np.array([query.log_count for query in self.asked], np.int64)

    @cached_property
    def clusters(self) -> Numbers:
        """Returns (keys,): the number of the cluster of near-duplicate queries; each rejected row is one."""
        return query_clusters([query.words for query in self.asked])

    @cached_property
    def weights(self) -> Floats:
        """Returns (keys,): each key's share of the traffic; a query's traffic is divided among its keys. They sum to 1."""
        keys_of = Counter(self.query_ids)
        share = self.counts / np.array([keys_of[query_id] if query_id else 1 for query_id in self.query_ids], np.float64)
        return share / share.sum()

    def difference_test(self, arms: Sequence[int], base: int, measure: int) -> PairedTest:
        """Returns the mean differences of arms to one, by their places, by one measure, with their intervals and tests."""
        return paired_test(self.values[arms, measure] - self.values[base, measure], self.clusters)

    def equivalence_p(self, test: PairedTest, measure: int, margin: float) -> Floats:
        """Returns the p that differences by a measure are within a margin; NaN where it is 0 throughout: it says nothing."""
        p = equivalence_p(test, margin)
        return p if self.values[:, measure].any() else np.full_like(p, np.nan)

    def pairs(self, b: int, a: int | None, margin: float) -> dict[str, Pair]:
        """Returns measure -> arm `b` beside arm `a`; None: beside none."""
        means = self.values.mean(axis=2) if self.keys else np.full(self.values.shape[:2], np.nan)
        if a is None or not self.keys:
            return {name: Pair(None, float(means[b, place])) for place, name in enumerate(self.measures)}
        test = paired_test(self.values[b] - self.values[a], self.clusters)
        moved = self.by_query[b] - self.by_query[a]
        seen = detectable(test, range(len(self.measures)))
        pairs = {}
        for index, name in enumerate(self.measures):
            gap = test.gap(index)
            p_equivalent = float(self.equivalence_p(test, index, margin)[index])
            pairs[name] = Pair(
                a=float(means[a, index]),
                b=float(means[b, index]),
                difference=gap.mean,
                interval=gap.interval,
                p=None if np.isnan(gap.p) else gap.p,
                better=int((moved[index] > TIE).sum()),
                worse=int((moved[index] < -TIE).sum()),
                detectable=seen.get(index),
                verdict=None if np.isnan(gap.p) else verdict(gap.mean, gap.p, p_equivalent),
            )
        return pairs

    @cached_property
    def means(self) -> dict[str, tuple[float, tuple[float, float] | None]]:
        """Returns measure -> the mean of the first arm, NaN without keys, and its 95 % interval over clusters, if known."""
        test = paired_test(self.values[0], self.clusters)
        gaps = map(test.gap, range(len(self.measures)))
        return {name: (gap.mean, gap.interval) for name, gap in zip(self.measures, gaps, strict=True)}

    @property
    def drawn(self) -> int:
        return int(self.clusters.max(initial=-1)) + 1

    @cached_property
    def query(self) -> Numbers:
        """Returns (keys,): the number of each key's query, from 0 in their order; each rejected row is one."""
        ids = [query_id or f" {place}" for place, query_id in enumerate(self.query_ids)]
        return np.cumsum([place > 0 and ids[place] != ids[place - 1] for place in range(len(ids))]).astype(np.int64)

    @property
    def distinct(self) -> int:
        """Returns the number of distinct queries; each rejected row counts as one."""
        return int(self.query.max(initial=-1)) + 1

    @cached_property
    def by_query(self) -> Floats:
        """Returns (arms, measures, queries): the means over the keys of each query."""
        arms, measures, keys = self.values.shape
        sums = cluster_sums(self.values.reshape(arms * measures, keys), self.query)
        return (sums / np.bincount(self.query)).reshape(arms, measures, self.distinct)


def measure(
    run: RunFolder,
    judgements: Judgements,
    measures: Sequence[str] | None = None,
    *,
    alone: bool = True,
    stay: Collection[str] | None = None,
) -> Frame:
    """Returns the measures of committed results: of an ablation's arms; of a run's, and of its original query alone.

    A run has the arm `run`, and then `original` if its lists were kept and it was not searched as one with its rewrites. Memory
    is that of `values` and `condensed` (8 bytes each per arm, measure and key), 16 bytes per arm and key, some hundred bytes
    per key, and DuckDB's 512 MB.
    `alone`: whether to measure the original query of a run, too. `stay`: the arms of an ablation that are not left out where
    their lists are too short (`reached`); None: all.
    """
    names = check_measures(measures or judgements.measures(run.config.evaluate.measures))
    check_grades(names, judgements)
    kept_alone = run.config.retrieve.keep_runs and not run.config.joining and judgements.judge is None
    alone = alone and kept_alone and not run.is_ablation
    cuts = {RUN: judged_rows.own_cuts(run)} | ({ORIGINAL: {}} if alone else {})
    ends = {name: min(run.config.results, cut_from(run.config, own)) for name, own in cuts.items()}
    own: list[dict[str, Any]] = [{"name": name, "cut_from": end} for name, end in ends.items()]
    arms = run.arms or own
    with database(run) as connection:
        cells = MeasuredCells(names, arms, counted_keys(connection, run, judgements), deepest_rank(names))
        lists = judged_rows.wanted_rows(connection, run, ARM_LISTS, ("arm", "doc_id"), "true ORDER BY query_id, arm, rank")
        originals = judged_rows.originals(connection, run, run.config.results)
        for rows in chain.from_iterable([lists, originals][: 1 + alone]):
            cells.measure(rows, judgements.grades)
        asked = asked_queries(connection, run)
    arm_names = tuple(cells.arms)
    least = np.array([arm.get("cut_from") or WHOLE for arm in arms], np.int64)  # an oracle has lists of its members
    fixed, is_run = arm_names if stay is None else stay, not run.is_ablation
    left, whole, notes = reached(names, depths(names), arm_names, fixed, cells.shown, least, run.config, is_run=is_run)
    kept = [place for place in left if {*(arms[place].get("members") or ())} <= {arm_names[at] for at in left}]
    cells.choose(whole[0] if whole else 0)
    return frame_of(cells, kept, asked, judgements, left_out=notes).with_measures(whole)


def frame_of(
    cells: MeasuredCells, arms: Sequence[int], asked: Mapping[str, AskedQuery], judgements: Judgements, **fields: Any
) -> Frame:
    """Returns the frame of the arms at some places, with further fields."""
    counted, names, shown = cells.counted, tuple(cells.arms), cells.shown[arms]
    query_ids = [counted.query_of[key] for key in counted.keys]
    with np.errstate(invalid="ignore"):
        unjudged = cells.unjudged[arms].sum(axis=1) / shown.sum(axis=1)
    return Frame(
        arms=tuple(names[place] for place in arms),
        measures=cells.measures,
        keys=tuple(counted.keys),
        query_ids=tuple(query_ids),
        asked=tuple(asked[query_id] if query_id else NOT_ASKED for query_id in query_ids),
        values=cells.values[arms],
        condensed=cells.condensed[arms],
        unjudged=unjudged,
        failed=(shown[:, : len(counted.keys) - len(counted.rejected)] == 0).sum(axis=1),
        judged=counted.judged,
        missing=counted.missing,
        not_committed=counted.not_committed,
        rejected=len(counted.rejected),
        depth=cells.depth,
        key=judgements.key,
        unmatched=counted.unmatched,
        judge=judgements.judge,
        **fields,
    )
