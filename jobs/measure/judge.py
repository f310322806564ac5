"""The judge of a run, and its grades of results: judgements, by which measures need no file of them."""

from jobs.chain.arms.tasks import RELEVANCE
from jobs.job.measure_checks import judged_measures
from jobs.log.judgements import JudgedBy, Judgements
from jobs.runs.folder import RunFolder
from jobs.runs.tables import database


def judge_models(run: RunFolder) -> list[str]:
    """Returns the models that have judged, sorted."""
    with database(run, tables=["judgements"]) as connection:
        rows = connection.execute("SELECT DISTINCT model FROM judgements ORDER BY model").fetchall()
    return [model for (model,) in rows]


def judged_relevance(run: RunFolder) -> Judgements | None:
    """Returns the grades that a judge gave the results of a run, or of all arms; None: they were not judged.

    Counted are the queries with a grade, and those without results.
    """
    if run.config.judge is None or run.config.judge.relevance is None:
        return None
    grades: dict[str, dict[str, int]] = {}
    models = set[str]()
    with database(run, tables=["judgements", "results", "queries"]) as connection:
        # a document found with several texts has several grades: the highest counts
        graded = connection.execute(
            "SELECT query_id, doc_id, max(grade), any_value(model) FROM judgements WHERE kind = ? AND sample = 0"
            " GROUP BY query_id, doc_id ORDER BY query_id, doc_id",
            [RELEVANCE],
        )
        for query_id, doc_id, grade, model in graded.fetchall():
            grades.setdefault(query_id, {})[doc_id] = grade
            models.add(model)
        with_results = {query_id for (query_id,) in connection.execute("SELECT DISTINCT query_id FROM results").fetchall()}
        left_out = len(with_results - grades.keys())
        ids = [query_id for (query_id,) in connection.execute("SELECT query_id FROM queries").fetchall()]
        grades |= {query_id: {} for query_id in ids if query_id not in with_results}
    why = f"left out: {left_out:,} queries with results of which the judge graded none; errors/ says why"
    notes = (why,) if left_out else ()
    named, least = ", ".join(sorted(models)) or "a judge", run.config.judge.relevance.relevant
    judge = JudgedBy(named, judged_measures(run.config), notes, least)
    return Judgements(f"{run.storage.root}: judgements/", grades, "query_id", judge)
