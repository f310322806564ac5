"""How many pseudo-answers have a gold answer of their query."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from cluster.storage.s3_duckdb import open_duckdb
from jobs.log.judgements import Judgements, Key, read_answers
from jobs.measure.judged_rows import query_of
from jobs.runs.folder import RunFolder
from rewriters.guards.leakage import has_answer


class AnswerShare(NamedTuple):
    """How many texts that are searched as passages have a gold answer of their query, of those whose query has one."""

    with_answer: int
    texts: int


def answer_share(run: RunFolder, path: str, key: Key) -> AnswerShare:
    """Returns how many pseudo-answers of a run's committed shards have a gold answer.

    Raises:
        ConfigError: the answers cannot be read.
    """
    answers = read_answers(path, key)
    files = [run.storage.url(file.key) for one in run.manifests for file in one.files.get("rewrites", ())]
    found: dict[str, list[str]] = {}
    with open_duckdb() as connection:
        for name, query_id in query_of(connection, run, Judgements(path, {name: {} for name in answers}, key)).items():
            if query_id is not None:
                found.setdefault(query_id, []).extend(answers[name])
        if not files or not found:
            return AnswerShare(0, 0)
        connection.register("answered", pa.table({"query_id": list(found)}))
        passages = "search_as = 'passage' OR list_contains(?, strategy)"
        query = f"SELECT query_id, text FROM rows_of(?) SEMI JOIN answered USING (query_id) WHERE {passages}"
        rows = connection.execute(query, [files, run.passage_strategies]).fetchall()
    return AnswerShare(sum(any(has_answer(text, one) for one in found[query_id]) for query_id, text in rows), len(rows))
