"""The relevance of a run's results as its judge graded it: judgements, by which measures need no file of them."""

from __future__ import annotations

from typing import Any

from jobs.chain.arms.judging import RELEVANCE
from jobs.job.measure_checks import judged_measures
from jobs.log.judgements import JudgedBy, Judgements
from jobs.measure.judged.asked import judge_asked
from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


def judged_relevance(run: RunFolder, sample: int = 0) -> Judgements | None:
    """Returns the grades that a judge gave the results of a run, or of all arms; None: they were not judged.

    Counted are the queries with a grade, and those without results.

    Args:
        run: A run or an ablation.
        sample: From 0, which of several judgements of the same.

    Raises:
        ConfigError: Files of the run cannot be read.
    """
    files = run.tables.get("judgements", ())
    if run.config.judge is None or run.config.judge.relevance is None:
        return None
    grades: dict[str, dict[str, int]] = {}
    models, left_out = set[str](), 0
    with database(run) as connection:

        def rows(query: str, files: Any) -> list[tuple[Any, ...]]:
            return connection.execute(query, [files]).fetchall() if files else []

        # a document that two indexes have with other texts has several grades: the highest counts, as of several judgements
        found = rows(
            "SELECT query_id, doc_id, max(grade), any_value(model) FROM rows_of(?)"
            f" WHERE kind = '{RELEVANCE}' AND sample = {int(sample)} GROUP BY query_id, doc_id ORDER BY query_id, doc_id",
            list(files),
        )
        for query_id, doc_id, grade, model in found:
            grades.setdefault(query_id, {})[doc_id] = grade
            models.add(model)
        with_results = {query_id for (query_id,) in rows(
            "SELECT DISTINCT query_id FROM rows_of(?)", list(run.tables.get("results", ()))
        )}  # fmt: skip
        left_out = len(with_results - grades.keys())
        for (query_id,) in rows("SELECT query_id FROM rows_of(?)", list(run.tables["queries"])):
            if query_id not in with_results:
                grades[query_id] = {}
    why = f"left out: {left_out:,} queries with results of which the judge graded none; errors/ says why"
    notes = (why,) if left_out else ()
    least, asked = run.config.judge.relevance.relevant, judge_asked(run, RELEVANCE)
    judge = JudgedBy(", ".join(sorted(models)) or "a judge", judged_measures(run.config), notes, least, asked)
    return Judgements(f"{run.storage.root}: judgements/", grades, "query_id", judge)
