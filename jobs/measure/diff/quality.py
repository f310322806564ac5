"""The measures of two runs side by side, over what is judged in both: paired differences, intervals, gains and losses.

Urbano, Lima and Hanjalic, Statistical Significance Testing in Information Retrieval (SIGIR 2019), compare the tests; with
thousands of queries any difference is significant, so look at its size and its interval before p.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from jobs.job.measure_checks import deepest_rank
from jobs.log.judgements import JudgedBy, Judgements
from jobs.measure.answers import judged_answer_frames
from jobs.measure.comparison import margin_of
from jobs.measure.frame import JUDGED_LISTS, Frame, Pair, measure
from jobs.measure.judge import judged_relevance
from jobs.measure.significance import TIE
from jobs.runs.folder import RunFolder


class QueryChange(NamedTuple):
    """One query's value of the first measure in A and in B, the mean of its judged log rows where they are several."""

    query_id: str
    query: str
    asked: int
    a: float
    b: float
    context: str | None = None


class Paired(NamedTuple):
    """Quality of two runs by judgements."""

    frame: Frame  # of the keys that both count; its arms are A and B
    missing: tuple[int, int]  # judged keys that are not in the log of A, of B
    not_committed: tuple[int, int]  # judged keys whose query is not committed in A, in B
    left_out: Sequence[str]  # measures that are left out, of which run
    others: int  # judged log_ids that are another query in B than in A; left out
    measures: dict[str, Pair]
    gained: list[QueryChange]
    lost: list[QueryChange]
    first: tuple[int, int]  # results of A, of B, that measures read at most: fewer than they would where the run kept fewer
    margin: float

    @property
    def warning(self) -> str | None:
        """Returns the reason why nothing was compared, in one line; None if something was."""
        if self.frame.keys:
            return None
        if self.left_out:
            return f"nothing is measured: {'; '.join(self.left_out)}"
        why = f"{self.missing[0]:,} are not in the log of A, {self.missing[1]:,} not in that of B"
        if any(self.not_committed):
            why += f"; {self.not_committed[0]:,} are not committed in A, {self.not_committed[1]:,} not in B"
        if self.others:
            why += f"; {self.others:,} log_ids are other queries in B than in A"
        key = self.frame.key
        more = "; judgements of queries (evaluate.key, --key) hold for every log" if key == "log_id" else ""
        named = f"{key}s with gold answers" if self.frame.gold else f"judged {key}s"
        return f"nothing is measured: of {self.frame.judged:,} {named} none counts in both runs: {why}{more}"

    def values(self) -> dict[str, Any]:
        frame, judge = self.frame, self.frame.judge
        judged_by = {} if judge is None else {"judged_by": judge.model, "judge_notes": judge.notes}
        counts = {"counted": len(frame.keys), "queries": frame.distinct, "clusters": frame.drawn}
        names = ("missing", "not_committed", "others", "measures", "gained", "lost", "first", "left_out", "warning")
        own = {name: getattr(self, name) for name in names}
        return {"key": frame.key, "judged": frame.judged} | counts | own | {"unjudged": frame.unjudged.tolist()} | judged_by


def quality(a: RunFolder, b: RunFolder, judgements: Judgements, count: int, measures: Sequence[str] | None = None) -> Paired:
    """Measures two runs and pairs their values."""
    names = measures or b.config.evaluate.measures
    of_a, of_b = (measure(run, judgements, names, alone=False) for run in (a, b))
    return paired(of_a, of_b, a, b, count)


def judge_of_both(a: JudgedBy | None, b: JudgedBy | None) -> JudgedBy | None:
    """Returns the judge of two runs, with a warning where they are two; None: people did."""
    if a is None or b is None:
        return a or b
    notes = list(dict.fromkeys((*a.notes, *b.notes)))
    if a.model != b.model:
        notes.insert(0, f"warning: {a.model} judged A, {b.model} B: the difference is of the judges, too")
    return b._replace(notes=tuple(notes))


def judged_quality(a: RunFolder, b: RunFolder, count: int) -> tuple[list[Paired], list[str]]:
    """Returns the judged quality of two runs' results and answers, in each kind in which both are judged.

    Beside it stands what both have and cannot be compared, a sentence each. Arguments and errors are those of `quality`.
    """
    of_lists, notes = _judged_lists(a, b, count), []
    judged = [] if of_lists is None else [of_lists]
    of_a, of_b = ({frame.kind: frame for frame in judged_answer_frames(run)} for run in (a, b))
    for kind in (kind for kind in of_a if kind in of_b):
        if of_a[kind].measures != of_b[kind].measures:
            sides = (f"{name} of {', '.join(of[kind].measures)}" for name, of in (("A", of_a), ("B", of_b)))
            notes.append(f"judgements: {kind} are other measures in A than in B ({'; '.join(sides)}), so they are not compared")
            continue
        judged.append(paired(of_a[kind], of_b[kind], a, b, count))
    return judged, notes


def _judged_lists(a: RunFolder, b: RunFolder, count: int) -> Paired | None:
    """Returns the judged quality of the results; None where not both are judged.

    A document has the grade that it has in either run (of two the higher), so that both are measured by one ideal. Counted are
    the queries that both judge, to the depth to which both are judged.
    """
    of_a, of_b = judged_relevance(a), judged_relevance(b)
    if of_a is None or of_b is None:
        return None
    names = min((of.judge.measures for of in (of_b, of_a) if of.judge is not None), key=deepest_rank)
    grades = {
        key: {doc_id: max(mine.get(doc_id, 0), theirs.get(doc_id, 0)) for doc_id in mine | theirs}
        for key, mine in of_a.grades.items()
        if (theirs := of_b.grades.get(key)) is not None
    }
    judge = judge_of_both(of_a.judge, of_b.judge)
    both = Judgements(f"{of_a.path} and {of_b.path}", grades, "query_id", judge and judge._replace(measures=names))
    frame_a, frame_b = (replace(measure(run, both, names, alone=False), kind=JUDGED_LISTS) for run in (a, b))
    return paired(frame_a, frame_b, a, b, count)


def paired(of_a: Frame, of_b: Frame, a: RunFolder, b: RunFolder, count: int) -> Paired:
    """Returns the quality of two runs by their frames, with the queries of `b`."""
    frame, others = frame_of_both(of_a, of_b)
    margin = margin_of(b.config.evaluate, frame.kind)
    changes = []
    if frame.keys:
        before, after = frame.by_query[:, 0].tolist()
        firsts = np.flatnonzero(np.diff(frame.query, prepend=-1)).tolist()  # the first key of each query
        for number, first in enumerate(firsts):
            if frame.query_ids[first] is not None:  # else a rejected row
                query, context, asked = frame.asked[first]
                values = before[number], after[number]
                changes.append(QueryChange(str(frame.query_ids[first]), str(query), asked, *values, context))
    return Paired(
        frame=frame,
        missing=(of_a.missing, of_b.missing),
        not_committed=(of_a.not_committed, of_b.not_committed),
        left_out=[f"{name}: {note}" for name, side in (("A", of_a), ("B", of_b)) for note in side.left_out],
        others=others,
        measures=frame.pairs(1, 0, margin) if frame.keys else {},
        gained=_listed([change for change in changes if change.b - change.a > TIE], count),
        lost=_listed([change for change in changes if change.a - change.b > TIE], count),
        first=(min(of_a.depth, a.config.results), min(of_b.depth, b.config.results)),
        margin=margin,
    )


def frame_of_both(a: Frame, b: Frame) -> tuple[Frame, int]:
    """Returns the frame of two runs over the keys that both count, its arms A and B, and the number of keys of other queries.

    A log row that only one run rejected is of the other's query, and zero where it was rejected. Keys are in order of their
    queries, those that both rejected last. What else the frame says is of B.
    """
    both = [name for name in b.measures if name in a.measures]
    a, b = (of.with_measures([of.measures.index(name) for name in both]) for of in (a, b))
    place_b = {key: place for place, key in enumerate(b.keys)}
    pairs, others = [], 0
    for first, key in enumerate(a.keys):
        if (other := place_b.get(key)) is None:
            continue
        of_both = a.query_ids[first], b.query_ids[other]
        if None not in of_both and of_both[0] != of_both[1]:
            others += 1
            continue
        pairs.append((of_both[0] or of_both[1], first, other))
    pairs.sort(key=lambda pair: (pair[0] is None, pair[0] or ""))
    rows_a, rows_b = (np.array([pair[place] for pair in pairs], np.int64) for place in (1, 2))
    sides = (a, rows_a), (b, rows_b)
    frame = replace(
        b,
        arms=("A", "B"),
        keys=tuple(b.keys[place] for place in rows_b),
        query_ids=tuple(query_id for query_id, _, _ in pairs),
        asked=tuple(
            b.asked[other] if b.query_ids[other] else a.asked[place]._replace(log_count=1) for _, place, other in pairs
        ),
        values=np.stack([of.values[0][:, rows] for of, rows in sides]),
        condensed=np.stack([of.condensed[0][:, rows] for of, rows in sides]),
        unjudged=np.array([of.unjudged[0] for of, _ in sides]),
        failed=np.array([of.failed[0] for of, _ in sides]),
        judge=judge_of_both(a.judge, b.judge),
    )
    return frame, others


def _listed(changes: Sequence[QueryChange], count: int) -> list[QueryChange]:
    """Returns the queries that moved most; of equal ones those that were asked more often."""
    return sorted(changes, key=lambda one: (-round(abs(one.b - one.a), 12), -one.asked, one.query_id))[:count]
