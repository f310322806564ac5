"""The measures of two runs side by side, over what is judged in both: paired differences, intervals, gains and losses.

Urbano, Lima and Hanjalic, Statistical Significance Testing in Information Retrieval (SIGIR 2019), compare the tests; with
thousands of queries any difference is significant, so look at its size and its interval before p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jobs.job.judged_ids import checked_ids
from jobs.log.judgements import JudgedBy, Judgements, Key
from jobs.measure.answers import GoldAnswers, answer_frame
from jobs.measure.clusters import query_clusters
from jobs.measure.frame import ANSWERS, LISTS, Frame, measure
from jobs.measure.query_context import contexts_of
from jobs.measure.significance import TIE, detectable
from jobs.runs.folder import RunFolder


class PairedMeasure(NamedTuple):
    """One measure: the means of A and B over the same keys, their difference B - A, and in how many queries it moved."""

    a: float
    b: float
    interval: tuple[float, float] | None
    """95 % interval of the mean difference; None with fewer than two queries."""
    p: float | None
    """Two-sided paired t-test over clusters, not corrected; None likewise."""
    better: int
    """Queries in which B has the higher value."""
    worse: int
    detectable: float | None = None
    """Smallest true difference that a test of these queries at .05 finds with a power of 80 %; None: not known."""

    @property
    def difference(self) -> float:
        """Returns the mean difference, B - A."""
        return self.b - self.a


class QueryChange(NamedTuple):
    """One query's value of the first measure in A and in B, the mean of its judged log rows where they are several."""

    query_id: str
    query: str
    asked: int
    a: float
    b: float
    context: str | None = None
    """The earlier turns; None: there are none."""


class Paired(NamedTuple):
    """What judgements say of two runs."""

    key: Key
    judged: int
    """Number of judged keys."""
    counted: int
    """Number of judged keys that both runs count."""
    queries: int
    """Number of distinct queries of the counted keys."""
    clusters: int
    """Number of clusters of near-duplicates among them."""
    missing: tuple[int, int]
    """Judged keys that are not in the log of A, of B."""
    not_committed: tuple[int, int]
    """Judged keys whose query is not committed in A, in B."""
    others: int
    """Judged log_ids that are another query in B than in A; left out."""
    unjudged: tuple[float | None, float | None]
    """Share of the results of A, of B, as deep as the measures read, without a judgement."""
    measures: dict[str, PairedMeasure]
    """Empty if no key is counted."""
    gained: list[QueryChange]
    """The queries with the greatest gains, the greatest first."""
    lost: list[QueryChange]
    """The queries with the greatest losses, the greatest first."""
    first: tuple[int, int] = (0, 0)
    """Results of A, of B, that measures read at most: fewer than they would where the run kept fewer."""
    kind: str = LISTS
    """That of the frames (`Frame.kind`)."""
    left_out: tuple[str, ...] = ()
    """Which measures are left out, of which run (`Frame.left_out`)."""
    judge: JudgedBy | None = None
    """The LLM that judged both, with what is to be said of its judgements; None: people did."""

    @property
    def ranked_by(self) -> str:
        """Returns the measure by which queries are said to have gained or lost: the first."""
        return next(iter(self.measures))

    @property
    def warning(self) -> str | None:
        """Returns why nothing was compared, in one line; None if something was."""
        if self.counted:
            return None
        if self.left_out:
            return f"nothing is measured: {'; '.join(self.left_out)}"
        why = f"{self.missing[0]:,} are not in the log of A, {self.missing[1]:,} not in that of B"
        if any(self.not_committed):
            why += f"; {self.not_committed[0]:,} are not committed in A, {self.not_committed[1]:,} not in B"
        if self.others:
            why += f"; {self.others:,} log_ids are other queries in B than in A"
        more = "; judgements of queries (evaluate.key, --key) hold for every log" if self.key == "log_id" else ""
        named = f"{self.key}s with gold answers" if self.kind == ANSWERS else f"judged {self.key}s"
        return f"nothing is measured: of {self.judged:,} {named} none counts in both runs: {why}{more}"


def quality(a: RunFolder, b: RunFolder, judgements: Judgements, count: int, measures: Sequence[str] | None = None) -> Paired:
    """Measures two runs and pairs their values.

    Args:
        a: one run.
        b: the other; a difference is of B - A.
        judgements: of log rows or queries.
        count: the most queries to list as gained, and as lost.
        measures: names that ir_measures knows; None: those of the config of B.

    Raises:
        ConfigError: a measure cannot be computed, or files of the runs cannot be read.
    """
    names = measures or b.config.evaluate.measures
    of_a, of_b = (measure(run, checked_ids(judgements, run.config), names, alone=False) for run in (a, b))
    return pair_frames(of_a, of_b, b, count, (a.config.results, b.config.results))


def answer_quality(a: RunFolder, b: RunFolder, gold: GoldAnswers, count: int) -> Paired:
    """Returns the same of the answers of two runs, by F1 and exact match; both runs answer."""
    return pair_frames(answer_frame(a, gold), answer_frame(b, gold), b, count, (1, 1))


def judge_of_both(a: JudgedBy | None, b: JudgedBy | None) -> JudgedBy | None:
    """Returns who judged two runs, with a warning where they are two, or one that was not asked alike; None: people did."""
    if a is None or b is None:
        return a or b
    notes = list(dict.fromkeys((*a.notes, *b.notes)))
    if a.model != b.model:
        notes.insert(0, f"warning: {a.model} judged A, {b.model} B: the difference is of the judges, too")
    elif None not in (a.asked, b.asked) and a.asked != b.asked:
        words = "was not asked alike in A and B (its prompt, decoding, weights or gold answers differ)"
        notes.insert(0, f"warning: the judge {b.model} {words}: the difference is of the judge, too")
    return b._replace(notes=tuple(notes))


def pair_frames(of_a: Frame, of_b: Frame, b: RunFolder, count: int, most: tuple[int, int]) -> Paired:
    """Returns what two frames say, with the queries of `b`; `most`: the most results of a query in each."""
    frame, others = paired(of_a, of_b)
    found: dict[str, PairedMeasure] = {}
    gained: list[QueryChange] = []
    lost: list[QueryChange] = []
    if frame.keys:
        means, test = frame.values.mean(axis=2), frame.test(1, 0)
        seen = detectable(test, range(len(frame.measures)))
        moved = frame.by_query[1] - frame.by_query[0]
        for place, name in enumerate(frame.measures):
            found[name] = PairedMeasure(
                float(means[0, place]),
                float(means[1, place]),
                test.interval(place),
                None if test.interval(place) is None else float(test.p[place]),
                int((moved[place] > TIE).sum()),
                int((moved[place] < -TIE).sum()),
                seen.get(place),
            )
        changes = _changes(frame)
        gained, lost = ([one for one in changes if sign * (one.b - one.a) > TIE] for sign in (1, -1))
        gained, lost = (_listed(b, of, count) for of in (gained, lost))
    shares = [None if np.isnan(of.unjudged[0]) else float(of.unjudged[0]) for of in (of_a, of_b)]
    return Paired(
        key=of_b.key,
        judged=of_b.judged,
        counted=len(frame.keys),
        queries=frame.distinct,
        clusters=frame.drawn,
        missing=(of_a.missing, of_b.missing),
        not_committed=(of_a.not_committed, of_b.not_committed),
        others=others,
        unjudged=(shares[0], shares[1]),
        measures=found,
        gained=gained,
        lost=lost,
        left_out=tuple(f"{side}: {note}" for side, of in (("A", of_a), ("B", of_b)) for note in of.left_out),
        first=(min(of_a.depth, most[0]), min(of_b.depth, most[1])),
        kind=of_b.kind,
        judge=judge_of_both(of_a.judge, of_b.judge),
    )


def paired(a: Frame, b: Frame) -> tuple[Frame, int]:
    """Returns the frame of two runs over the keys that both count, its arms A and B, and the number of keys of other queries.

    A log row that only one run rejected is of the other's query, and zero where it was rejected. Keys are in order of their
    queries, those that both rejected last. What else the frame says is of B.

    Args:
        a: of a run; its first arm is A.
        b: of another; its first arm is B.
    """
    both = [name for name in b.measures if name in a.measures]
    a, b = (of.with_measures([of.measures.index(name) for name in both]) for of in (a, b))
    place_b = {key: place for place, key in enumerate(b.keys)}
    pairs, others = [], 0
    for place, key in enumerate(a.keys):
        if (other := place_b.get(key)) is None:
            continue
        of_both = a.query_ids[place], b.query_ids[other]
        if None not in of_both and of_both[0] != of_both[1]:
            others += 1
            continue
        pairs.append((of_both[0] or of_both[1], place, other))
    pairs.sort(key=lambda pair: (pair[0] is None, pair[0] or ""))
    rows_a, rows_b = (np.array([pair[place] for pair in pairs], np.int64) for place in (1, 2))
    sides = (a, rows_a), (b, rows_b)
    words = tuple(b.words[other] or a.words[place] for _, place, other in pairs)
    frame = replace(
        b,
        arms=("A", "B"),
        keys=tuple(b.keys[place] for place in rows_b),
        query_ids=tuple(query_id for query_id, _, _ in pairs),
        queries=tuple(b.queries[other] or a.queries[place] for _, place, other in pairs),
        counts=b.counts[rows_b],
        values=np.stack([of.values[0][:, rows] for of, rows in sides]),
        condensed=np.stack([of.condensed[0][:, rows] for of, rows in sides]),
        unjudged=np.array([of.unjudged[0] for of, _ in sides]),
        failed=np.array([of.failed[0] for of, _ in sides]),
        clusters=query_clusters(words),
        words=words,
    )
    return frame, others


def _changes(frame: Frame) -> list[QueryChange]:
    """Returns the values of the first measure of each query that was not rejected in both."""
    places, number = frame.first_keys, frame.query
    before, after = frame.by_query[:, 0]
    return [
        QueryChange(
            str(frame.query_ids[place]),
            str(frame.queries[place]),
            int(frame.counts[place]),
            float(before[number[place]]),
            float(after[number[place]]),
        )
        for place in places
    ]


def _listed(b: RunFolder, changes: Sequence[QueryChange], count: int) -> list[QueryChange]:
    """Returns the queries that moved most; of equal ones those that were asked more often, with what they were asked with."""
    found = sorted(changes, key=lambda one: (-round(abs(one.b - one.a), 12), -one.asked, one.query_id))[:count]
    contexts = contexts_of(b, [one.query_id for one in found])
    return [one._replace(context=contexts[one.query_id]) for one in found]
