"""What a judge says of the answers of a run, or of each arm of an ablation: accuracy, and the criteria."""

from __future__ import annotations

from typing import NamedTuple

from jobs.chain.arms.judging import RELEVANCE
from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


class JudgedAnswers(NamedTuple):
    """The mean grade of an arm's answers in one kind."""

    arm: str
    kind: str
    """accuracy, or criteria/ and the name of the criterion."""
    mean: float
    answers: int
    """That the judge has graded, and the mean is over."""


def judged_answers(run: RunFolder) -> list[JudgedAnswers]:
    """Returns the means of the first grades of answers, by arm and kind; none where answers are not judged.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    files = list(run.tables.get("judgements", ()))
    if run.config.judge is None or not run.config.judge.kinds.keys() - {RELEVANCE} or not files:
        return []
    with database(run) as connection:
        rows = connection.execute(
            "SELECT arm, kind, avg(grade), count(*) FROM read_parquet(?) WHERE arm IS NOT NULL AND sample = 0"
            " GROUP BY arm, kind ORDER BY arm, kind",
            [files],
        ).fetchall()
    return [JudgedAnswers(*row) for row in rows]


def answers_in_words(found: list[JudgedAnswers]) -> dict[str, str]:
    """Returns arm -> its means in one line, each with the number of answers that it is over, in brackets."""
    words: dict[str, list[str]] = {}
    for one in found:
        words.setdefault(one.arm, []).append(f"{one.kind.removeprefix('criteria/')} {one.mean:.2f} ({one.answers:,})")
    return {arm: ", ".join(of) for arm, of in words.items()}
