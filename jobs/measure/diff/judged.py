"""Two runs by what LLMs say of their results and answers: the measures of each side by side, as by people's judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jobs.job.measure_checks import judged_measures
from jobs.log.judgements import Judgements
from jobs.measure.answers import judged_answer_frames
from jobs.measure.diff.quality import Paired, judge_of_both, pair_frames
from jobs.measure.frame import JUDGED_LISTS, measure
from jobs.measure.judged import judged_relevance
from jobs.runs.folder import RunFolder


class JudgedRuns(NamedTuple):
    """What judges say of two runs."""

    found: Sequence[Paired]
    """In each kind that both have."""
    notes: Sequence[str]
    """What both have and cannot be compared; a sentence each."""


def judged_quality(a: RunFolder, b: RunFolder, count: int) -> JudgedRuns:
    """Returns what judges say of the results and the answers of two runs, in each kind in which both are judged.

    Args:
        a: one run.
        b: the other; differences are of B - A.
        count: the most queries to list as gained, and as lost.

    Raises:
        ConfigError: files of the runs cannot be read.
    """
    found, notes = [], []
    if (of_lists := _of_lists(a, b, count)) is not None:
        found.append(of_lists)
    of_a, of_b = ({frame.kind: frame for frame in judged_answer_frames(run)} for run in (a, b))
    for kind in (one for one in of_a if one in of_b):
        if of_a[kind].measures != of_b[kind].measures:
            sides = (f"{name} of {', '.join(of[kind].measures)}" for name, of in (("A", of_a), ("B", of_b)))
            notes.append(f"judgements: {kind} are other measures in A than in B ({'; '.join(sides)}), so they are not compared")
            continue
        found.append(pair_frames(of_a[kind], of_b[kind], b, count, (1, 1)))
    return JudgedRuns(found, notes)


def _of_lists(a: RunFolder, b: RunFolder, count: int) -> Paired | None:
    """Returns what judges say of the results; None where not both are judged.

    A document has the grade that it has in either run (of two the higher), so that both are measured by one ideal. Counted are
    the queries that both judge, to the depth to which both are judged.
    """
    of_a, of_b = judged_relevance(a), judged_relevance(b)
    if of_a is None or of_b is None:
        return None
    names = judged_measures(min((b, a), key=_depth).config)
    grades = {
        key: {doc_id: max(mine.get(doc_id, 0), theirs.get(doc_id, 0)) for doc_id in mine | theirs}
        for key, mine in of_a.grades.items()
        if (theirs := of_b.grades.get(key)) is not None
    }
    judge = judge_of_both(of_a.judge, of_b.judge)
    assert judge is not None, "LLMs have judged"
    both = Judgements(f"{of_a.path} and {of_b.path}", grades, "query_id", judge._replace(measures=names))
    frame_a, frame_b = (replace(measure(run, both, names, alone=False), kind=JUDGED_LISTS) for run in (a, b))
    return pair_frames(frame_a, frame_b, b, count, (a.config.results, b.config.results))


def _depth(run: RunFolder) -> int:
    """Returns how many of the first results are judged."""
    settings = None if run.config.judge is None else run.config.judge.relevance
    return 0 if settings is None else settings.documents
