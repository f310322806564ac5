"""Measures answers: exact match and F1 against gold answers, and what a judge says of them, as frames of the arms that answer.

A committed query without an answer, a rejected log row, too, counts zero, as queries without results do in the frame of lists.
The first measure decides: F1 of gold answers, the mean of criteria.

Texts are compared as SQuAD's evaluation does (Rajpurkar et al., EMNLP 2016): in lower case, without ASCII punctuation, without
the articles a, an and the, split at white space. HotpotQA's (Yang et al., EMNLP 2018) gives no partial credit where one of the
two is yes, no or noanswer and the other is not; where both are empty after normalising they are equal, as in SQuAD 2.0.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import duckdb
import numpy as np

from cluster.storage.sql import text_literal
from jobs.chain.arms.arms import RUN
from jobs.chain.arms.tasks import ACCURACY, CRITERIA
from jobs.chain.steps.contexts import without_citations
from jobs.config.settings import EvaluateSettings
from jobs.counts import WITHOUT_GOLD
from jobs.job.measure_checks import ANSWER_MEASURES
from jobs.log.judgements import JudgedBy, Judgements, Key, read_answers
from jobs.measure.frame import ANSWERS, Frame, frame_of
from jobs.measure.judged_rows import asked_queries, counted_keys, wanted_rows
from jobs.measure.measures import MeasuredCells
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database

CLOSED = frozenset(("yes", "no", "noanswer"))  # answers of which a word in a longer text is no part
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalised_answer(text: str) -> str:
    """Returns a text as answers are compared: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def overlap(answer: str, gold: str) -> tuple[float, float]:
    """Returns F1 (agreement by the words of both) and exact match of an answer against one gold answer, from 0 to 1."""
    given, wanted = normalised_answer(answer), normalised_answer(gold)
    if given == wanted:
        return 1.0, 1.0
    if given in CLOSED or wanted in CLOSED:
        return 0.0, 0.0
    of_answer, of_gold = given.split(), wanted.split()
    common = (Counter(of_answer) & Counter(of_gold)).total()
    return 2 * common / (len(of_answer) + len(of_gold)), 0.0


def best_overlap(answer: str, golds: Iterable[str]) -> tuple[float, float]:
    """Returns the greatest F1 and the greatest exact match over several gold answers, any of which counts; 0 without one."""
    f1, exact = zip((0.0, 0.0), *(overlap(answer, gold) for gold in golds), strict=True)
    return max(f1), max(exact)


class GoldAnswers(NamedTuple):
    """Gold answers: key -> those that count; and what the keys are."""

    path: str
    answers: Mapping[str, Sequence[str]]
    key: Key

    @property
    def judged(self) -> Judgements:
        """Returns the keys as judgements of no document."""
        return Judgements(self.path, {key: {} for key in self.answers}, self.key)


def gold_answers(settings: EvaluateSettings, path: str | None = None, key: Key | None = None) -> GoldAnswers | None:
    """Returns the gold answers of a file, by default of that which the config names; None: it names none."""
    path, key = (path, key or settings.key) if path is not None else (settings.answers, settings.key)
    return None if path is None else GoldAnswers(path, read_answers(path, key), key)


def answering(run: RunFolder) -> list[str]:
    """Returns the arms that have an LLM answer, in their order; of a run the one arm `run`, or none."""
    if not run.is_ablation:
        return [RUN] if run.config.answer is not None else []
    answers = {arm["name"] for arm in run.arms if arm.get("answers")}
    return [arm["name"] for arm in run.arms if answers.issuperset(arm.get("members") or [arm["name"]])]


def answer_frame(run: RunFolder, gold: GoldAnswers) -> Frame:
    """Returns F1 and exact match of the committed answers of a run or an ablation, at least one arm of which answers."""
    score = cache(lambda key, text: best_overlap(without_citations(text), gold.answers[key]))  # arms often share an answer
    return _frame(run, ANSWERS, ANSWER_MEASURES, gold.judged, lambda key, _, text: score(key, text))


def answer_frames(run: RunFolder, gold: GoldAnswers | None) -> list[Frame]:
    """Returns the frames of answers by gold answers, if there are some, then in each kind that is judged; none of no LLM."""
    by_gold = [answer_frame(run, gold)] if gold is not None and answering(run) else []
    return by_gold + judged_answer_frames(run)


def judged_kinds(run: RunFolder) -> Sequence[str]:
    """Returns the kinds in which the answers of a run, or of an arm, are judged."""
    judge = run.config.judge
    return [kind for kind in judge.kinds if kind != "relevance"] if judge is not None and answering(run) else ()


def judged_answer_frames(run: RunFolder) -> list[Frame]:
    """Returns a frame for each kind in which the answers of a run or of arms are judged; none where they are not.

    Accuracy counts an answer that is called right as 1. Of criteria, each is a measure, and their mean the first one. Counted
    are all committed queries but those whose answer, of some arm, the judge could not grade.
    """
    return [_judged_frame(run, kind) for kind in judged_kinds(run)]


def _judged_frame(run: RunFolder, kind: str) -> Frame:
    arms = answering(run)
    with database(run, tables=["answers", "queries", "judgements"]) as connection:
        measures, grades, models = _graded(connection, run, kind)
        answered = connection.execute("SELECT DISTINCT query_id, arm FROM answers").fetchall()
        left_out = {query_id for query_id, arm in answered if arm in arms and (query_id, arm) not in grades}
        ids = [query_id for (query_id,) in connection.execute("SELECT query_id FROM queries").fetchall()]
        ids = [query_id for query_id in ids if query_id not in left_out]
    notes = []
    if left_out:
        arm = " of an arm" if len(arms) > 1 else ""
        notes.append(f"left out: {len(left_out):,} queries whose answer{arm} the judge could not grade; errors/ says why")
    if kind == ACCURACY and (alone := run.counts.get(WITHOUT_GOLD, 0)):
        notes.append(f"judged by the question alone, since they have no gold answer: {alone:,} queries")
    judge = JudgedBy(", ".join(sorted(models)) or "a judge", measures, tuple(notes))
    keys = Judgements(f"{run.storage.root}: judgements/", {query_id: {} for query_id in ids}, "query_id", judge)
    return _frame(run, kind, measures, keys, lambda key, arm, _: grades[key, arm])


def _frame(
    run: RunFolder, kind: str, measures: Sequence[str], keys: Judgements, value_of: Callable[[str, str, str], Sequence[float]]
) -> Frame:
    """Returns the frame of the arms that answer; one that chooses among others has its best member by the first measure.

    `value_of` returns the values of an answer by its key, arm and text.
    """
    names = answering(run)
    arms = [arm for arm in run.arms if arm["name"] in names] if run.is_ablation else [{"name": name} for name in names]
    with database(run) as connection:
        cells = MeasuredCells(measures, arms, counted_keys(connection, run, keys), 1)
        answers = wanted_rows(connection, run, ("answers",), ("arm", "text"), "true ORDER BY query_id, arm")
        for row in (row for rows in answers for row in rows.to_pylist()):
            for key in cells.counted.of_query.get(row["query_id"], ()) if row["arm"] in cells.arms else ():
                arm, column = cells.arms[row["arm"]], cells.places[key]
                cells.values[arm, :, column], cells.shown[arm, column] = value_of(key, row["arm"], row["text"]), 1
        asked = asked_queries(connection, run)
    cells.choose(0)
    frame = frame_of(cells, range(len(arms)), asked, keys, kind=kind)
    return replace(frame, condensed=frame.values, unjudged=np.full(len(arms), np.nan))


Grades = Mapping[tuple[str, str], Sequence[float]]  # (query_id, arm) -> the value of each measure, of answers that were graded


def _graded(connection: duckdb.DuckDBPyConnection, run: RunFolder, kind: str) -> tuple[tuple[str, ...], Grades, set[str]]:
    """Returns the measures of a kind, the grades, and the models that judged."""
    kinds, files = [kind], run.tables.get("judgements")
    if kind == CRITERIA:  # in the order in which the prompt's file has them
        query = "SELECT kind FROM read_parquet(?, file_row_number = true, hive_partitioning = false)"
        query += " WHERE starts_with(kind, ?) GROUP BY kind ORDER BY min(file_row_number), kind"
        rows = connection.execute(query, [files, f"{CRITERIA}/"]).fetchall() if files else []
        kinds = [criterion for (criterion,) in rows]
    names = tuple(one.removeprefix(f"{CRITERIA}/") for one in kinds)
    measures = (CRITERIA, *names) if len(names) != 1 else names
    if not kinds:
        return measures, {}, set()
    wanted = f"arm IS NOT NULL AND sample = 0 AND kind IN ({', '.join(map(text_literal, kinds))}) GROUP BY query_id, arm"
    columns = ", ".join(f"max(grade) FILTER (kind = {text_literal(one)})" for one in kinds)
    query = f"SELECT query_id, arm, any_value(model), {columns} FROM judgements WHERE {wanted}"
    graded = connection.execute(query).fetchall()
    mean = (lambda grades: [float(np.mean(grades)), *grades]) if len(measures) > len(names) else list
    values = {(query_id, arm): mean(grades) for query_id, arm, _, *grades in graded if None not in grades}
    return measures, values, {model for _, _, model, *_ in graded}


def golds_by_query(run: RunFolder, gold: GoldAnswers) -> dict[str, list[str]]:
    """Returns committed query_id -> the gold answers of all its keys, each once."""
    with database(run) as connection:
        keys_of = counted_keys(connection, run, gold.judged).of_query
    return {
        query_id: list(dict.fromkeys(text for key in keys for text in gold.answers[key])) for query_id, keys in keys_of.items()
    }
