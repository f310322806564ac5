"""The gold answers of a job's queries, which its judge is shown."""

import pyarrow as pa

from cluster.storage.s3_duckdb import open_duckdb
from jobs.job.prepare import Prepared
from jobs.log.judgements import read_answers
from jobs.run.draft import PlannedQueries


def gold_of_queries(prepared: Prepared, queries: PlannedQueries) -> dict[str, list[str]]:
    """Returns query_id -> gold answers of a log's queries; empty where no judge asks for them."""
    settings, judge = prepared.config.evaluate, prepared.config.judge
    if judge is None or judge.accuracy is None or settings.answers is None:
        return {}
    answers = read_answers(settings.answers, settings.key)
    table, column = {
        "log_id": ("query_map", "log_id"), "query_id": ("queries", "query_id"), "query": ("queries", "normalised"),
    }[settings.key]  # fmt: skip
    # a text is a query on its own: after earlier turns the same words are another one
    with_context = settings.key == "query" and prepared.config.log.context_column is not None
    gold: dict[str, list[str]] = {}
    with open_duckdb() as connection:
        connection.register("answered", pa.table({"answered": pa.array(list(answers), pa.string())}))
        rows = connection.execute(
            f"SELECT DISTINCT answered, query_id FROM rows_of(?) JOIN answered ON answered = {column}"
            f" WHERE query_id IS NOT NULL{' AND context IS NULL' * with_context} ORDER BY answered",
            [[queries.storage.url(file.key) for file in queries.plan.tables[table]]],
        ).fetchall()
    for key, query_id in rows:
        mine = gold.setdefault(query_id, [])
        mine += [one for one in answers[key] if one not in mine]
    return gold
