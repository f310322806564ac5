"""The frames of judged answers: what a judge, an LLM, says of each arm's answers, a frame for each kind of judgement.

Counted are the committed queries, but those of which the judge could not grade the answer of an arm: they are left out for all
arms, so that all are measured by the same queries, and their number is said. A query without an answer counts zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np

from cluster.storage.sql import text_literal
from jobs.chain.arms.judging import ACCURACY, CRITERIA
from jobs.counts import WITHOUT_GOLD
from jobs.log.judgements import JudgedBy, Judgements
from jobs.measure.answers.frame import answering, frame_of_answers
from jobs.measure.frame import Frame
from jobs.measure.judged.asked import judge_asked
from jobs.measure.judged.noise import judge_noise, noted_noise
from jobs.measure.judged_rows import asked_queries, counted_keys, database
from jobs.runs.folder import RunFolder


class GradedAnswers(NamedTuple):
    """What a judge said of answers, in one kind."""

    measures: tuple[str, ...]
    """The first one decides."""
    values: Mapping[tuple[str, str], Sequence[float]]
    """(query_id, arm) -> the value of each measure, of answers that were graded."""
    models: frozenset[str]
    """That judged."""


def judges_answers(run: RunFolder) -> bool:
    """Returns whether the answers of a run, or of an arm, are judged."""
    judge = run.config.judge
    return judge is not None and bool(judge.answer_kinds and answering(run))


def judged_answer_frames(run: RunFolder) -> list[Frame]:
    """Returns the frames of a run's judged answers, or of those of the arms that answer, with what is to be said of the judge.

    None where answers are not judged.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    judge = run.config.judge
    if judge is None or not judges_answers(run):
        return []
    found = []
    for kind in judge.answer_kinds:
        frame = judged_answer_frame(run, kind)
        samples = ((frame, judged_answer_frame(run, kind, sample)) for sample in range(1, judge.samples))
        found.append(noted_noise(frame, judge_noise(samples)) if frame.keys else frame)
    return found


def judged_answer_frame(run: RunFolder, kind: str, sample: int = 0) -> Frame:
    """Returns the frame of one kind of judgement.

    Args:
        run: A run or an ablation, at least one arm of which answers.
        kind: Of `JudgeSettings.answer_kinds`.
        sample: From 0, which of several judgements of the same.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    arms = {name: place for place, name in enumerate(answering(run))}
    with database(run) as connection:
        graded = _graded(connection, run, kind, sample)
        answered = [one for one in _rows(connection, run, "answers", "DISTINCT query_id, arm") if one[1] in arms]
        ids = [query_id for (query_id,) in _rows(connection, run, "queries", "query_id")]
        left_out = {query_id for query_id, arm in answered if (query_id, arm) not in graded.values}
        asked_for = [query_id for query_id in ids if query_id not in left_out]
        keys = Judgements(f"{run.storage.root}: judgements/", {query_id: {} for query_id in asked_for}, "query_id")
        counted = counted_keys(connection, run, keys)
        places = {key: place for place, key in enumerate(counted.keys)}
        values = np.zeros((len(arms), len(graded.measures), len(places)))
        lengths = np.zeros((len(arms), len(places)), np.int64)
        for query_id, arm in answered:
            if query_id in places:
                values[arms[arm], :, places[query_id]] = graded.values[query_id, arm]
                lengths[arms[arm], places[query_id]] = 1
        asked = asked_queries(connection, run)
    notes = []
    if left_out:
        arm = " of an arm" if len(arms) > 1 else ""
        notes.append(f"left out: {len(left_out):,} queries whose answer{arm} the judge could not grade; errors/ says why")
    if kind == ACCURACY and (alone := run.counts.get(WITHOUT_GOLD, 0)):
        notes.append(f"judged by the question alone, since they have no gold answer: {alone:,} queries")
    model = ", ".join(sorted(graded.models)) or "a judge"
    judge = JudgedBy(model, graded.measures, tuple(notes), asked=judge_asked(run, kind))
    return frame_of_answers(run, kind, graded.measures, values, lengths, counted, asked, "query_id", judge)


def _graded(connection: duckdb.DuckDBPyConnection, run: RunFolder, kind: str, sample: int) -> GradedAnswers:
    """Returns the grades of a kind; of the criteria, of which each is a measure, the mean is the first."""
    kinds = _criteria(connection, run) if kind == CRITERIA else [kind]
    columns = ", ".join(f"max(grade) FILTER (kind = {text_literal(one)})" for one in kinds)
    names = tuple(one.removeprefix(f"{CRITERIA}/") for one in kinds)
    measures = (CRITERIA, *names) if len(names) != 1 else names
    if not kinds:
        return GradedAnswers(measures, {}, frozenset())
    wanted = f"arm IS NOT NULL AND sample = {int(sample)} AND kind IN ({', '.join(map(text_literal, kinds))})"
    columns = f"query_id, arm, any_value(model), {columns}"
    rows = list(_rows(connection, run, "judgements", columns, f"{wanted} GROUP BY query_id, arm"))
    mean = (lambda grades: [float(np.mean(grades)), *grades]) if len(measures) > len(names) else list
    values = {(query_id, arm): mean(grades) for query_id, arm, _, *grades in rows if None not in grades}
    return GradedAnswers(measures, values, frozenset(model for _, _, model, *_ in rows))


def _criteria(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> list[str]:
    """Returns the kinds of the criteria, in the order in which the prompt's file has them."""
    files = list(run.tables.get("judgements", ()))
    if not files:
        return []
    rows = connection.execute(
        "SELECT kind FROM read_parquet(?, file_row_number = true, hive_partitioning = false)"
        " WHERE starts_with(kind, ?) GROUP BY kind ORDER BY min(file_row_number), kind",
        [files, f"{CRITERIA}/"],
    ).fetchall()
    return [kind for (kind,) in rows]


def _rows(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, table: str, columns: str, condition: str = "true"
) -> Iterator[tuple[Any, ...]]:
    files = list(run.tables.get(table, ()))
    if files:
        found = connection.execute(f"SELECT {columns} FROM rows_of(?) WHERE {condition}", [files])
        while rows := found.fetchmany(10_000):
            yield from rows
