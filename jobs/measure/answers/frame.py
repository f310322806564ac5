"""The frame of answers: exact match and F1 of each arm's answer to each query that has gold answers.

A committed query without an answer, a rejected log row, too, counts zero, as queries without results do in the frame of lists.
F1 is the first measure, so that it decides: of its best arm no other has a greater exact match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jobs.chain.arms.arms import RUN
from jobs.chain.steps.contexts import without_citations
from jobs.config.settings import EvaluateSettings
from jobs.job.measure_checks import ANSWER_MEASURES
from jobs.log.judgements import JudgedBy, Judgements, Key, read_answers
from jobs.measure import judged_rows
from jobs.measure.answers.overlap import best_overlap
from jobs.measure.arrays import Floats, Numbers
from jobs.measure.frame import ANSWERS, Frame, arms_of, of_keys, without_any
from jobs.measure.judged_rows import AskedQuery, CountedKeys, asked_queries, counted_keys, database
from jobs.runs.folder import RunFolder


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
    """Returns the gold answers of a file, by default of that which the config names; None: it names none.

    Args:
        settings: of the run.
        path: of another file.
        key: what its first column holds; None: as the config says.

    Raises:
        ConfigError: the file cannot be read, or has other columns.
    """
    path, key = (path, key or settings.key) if path is not None else (settings.answers, settings.key)
    return None if path is None else GoldAnswers(path, read_answers(path, key), key)


def answering(run: RunFolder) -> list[str]:
    """Returns the arms that have an LLM answer, in their order; of a run the one arm `run`, or none."""
    if not run.is_ablation:
        return [RUN] if run.config.answer is not None else []
    arms = {arm["name"]: arm for arm in arms_of(run)}
    answers = {name: bool(arm.get("answers")) for name, arm in arms.items()}
    return [name for name, arm in arms.items() if all(answers.get(member) for member in arm.get("members") or (name,))]


def answer_frame(run: RunFolder, gold: GoldAnswers) -> Frame:
    """Returns exact match and F1 of the committed answers: of a run's; of the arms of an ablation that answer.

    An arm that chooses among others by judgements chooses here by the gold answers: the best F1 of its members.

    Args:
        run: a run or an ablation, at least one arm of which answers.
        gold: of log rows or queries.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    arms = {name: place for place, name in enumerate(answering(run))}
    with database(run) as connection:
        counted = counted_keys(connection, run, gold.judged)
        places = {key: place for place, key in enumerate(counted.keys)}
        values = np.zeros((len(arms), len(ANSWER_MEASURES), len(places)))
        lengths = np.zeros((len(arms), len(places)), np.int64)
        known: dict[tuple[str, str], tuple[float, float]] = {}  # arms often share an answer
        for rows in judged_rows.answers(connection, run):
            for row in rows.to_pylist():
                if (arm := arms.get(row["arm"])) is None:
                    continue
                for key in counted.of_query.get(row["query_id"], ()):
                    same = key, row["text"]
                    if same not in known:
                        known[same] = best_overlap(without_citations(row["text"]), gold.answers[key])
                    values[arm, :, places[key]] = known[same]
                    lengths[arm, places[key]] = 1
        asked = asked_queries(connection, run)
    return frame_of_answers(run, ANSWERS, ANSWER_MEASURES, values, lengths, counted, asked, gold.key)


def frame_of_answers(
    run: RunFolder,
    kind: str,
    measures: Sequence[str],
    values: Floats,
    lengths: Numbers,
    counted: CountedKeys,
    asked: Mapping[str, AskedQuery],
    key: Key,
    judge: JudgedBy | None = None,
) -> Frame:
    """Returns the frame of the arms that answer; one that chooses among others has its best member by the first measure.

    Args:
        run: a run or an ablation.
        kind: of the frame.
        measures: the first one decides.
        values: (arms of `answering`, measures, keys): those of arms that choose are filled in.
        lengths: (arms, keys): 1 where there is an answer; likewise.
        counted: the keys.
        asked: query_id -> its query, of all of them.
        key: what the keys are.
        judge: the LLM that judged, if one did.
    """
    arms = {name: place for place, name in enumerate(answering(run))}
    for one in _choosing(run, arms):
        members = np.array([arms[member] for member in one["members"]], np.int64)
        best, keys = members[values[members, 0].argmax(axis=0)], np.arange(values.shape[2])
        values[arms[one["name"]]], lengths[arms[one["name"]]] = values[best, :, keys].T, lengths[best, keys]
    return Frame(
        arms=tuple(arms),
        measures=tuple(measures),
        values=values,
        condensed=values,
        unjudged=np.full(len(arms), np.nan),
        failed=without_any(lengths, counted),
        depth=1,
        kind=kind,
        judge=judge,
        **of_keys(counted, asked, key),
    )


def _choosing(run: RunFolder, arms: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the answering arms that choose among others."""
    return [one for one in arms_of(run) if one.get("members") and one["name"] in arms] if run.is_ablation else []
