"""Grades of relevance as UMBRELA writes them (Upadhyay et al. 2024, arXiv 2406.06519): JSON lines, one for each judged pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from cluster.errors import ConfigError
from cluster.storage.whole_file import written
from jobs.chain.arms.judging import RELEVANCE
from jobs.chain.steps.contexts import beginning
from jobs.measure.export.answers.answered import opened_documents, topics_by_log
from jobs.measure.export.answers.written import WrittenAnswers
from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder
from jobs.runs.web_pages import page_texts
from rewriters.steps.step import told_hash

_BATCH = 1_000  # pairs whose texts are in memory
_PAIRS = f"""
SELECT {{topic}} AS qid, judged.*, query FROM read_parquet($judgements) AS judged
JOIN read_parquet($queries) AS queries USING (query_id){{of_log}} WHERE kind = '{RELEVANCE}' AND sample = 0
ORDER BY qid, doc_id, grade
"""
_OF_LOG = " JOIN (SELECT DISTINCT query_id, log_id FROM read_parquet($query_map)) AS logged USING (query_id)"
_ASKED = """
SELECT query_id, split_part(variables, '/', 1), model, prompt, text FROM read_parquet($completions)
WHERE query_id IN (SELECT unnest($ids)) AND prompt_hash = $prompt_hash AND coalesce(sample, 0) = 0 AND text IS NOT NULL
"""


def write_umbrela(path: str, run: RunFolder, key: str | None) -> WrittenAnswers:
    """Writes a line per judged pair: model, query, passage, prompt, prediction, judgment, result_status, qid and docid.

    `passage` is the document as the judge has seen it, `prediction` its answer. What could not be read has no grade here, so no
    line; `result_status` is 1 in all. A document that two indexes have with other texts has the text of the run's own index, a
    page of the web that which the judge has seen of the texts that the query's searches have of it.

    Args:
        path: A local file or an object on S3.
        run: A run, or an ablation with the pairs of all arms.
        key: What `qid` is, as `answered_arm` takes it.

    Raises:
        ConfigError: The results were not judged, or files of the run cannot be read.
        RetrieverError: The index of the documents is gone, or holds others now.
    """
    judge, tables = run.config.judge, run.tables
    if judge is None or judge.relevance is None:
        what = f"{run.storage.root}: no LLM has judged the results"
        raise ConfigError("argument", f"--umbrela {path}: {what}; give a run whose config has `judge.relevance`")
    by_log, opened = topics_by_log(run, key), opened_documents(run)
    rows, unread, most = 0, 0, judge.relevance.document_chars
    with database(run) as connection, written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for batch in _pairs(connection, run, by_log=by_log) if tables.get("judgements") else ():
            asked, pages = _asked(run, batch), _pages(run, batch)
            texts = opened(sorted({one["doc_id"] for one in batch if (one["query_id"], one["doc_id"]) not in pages}))
            for one in batch:
                of_page = pages.get((one["query_id"], one["doc_id"]), ())
                passages = [beginning(text, most) for text in of_page or [texts[one["doc_id"]]]]
                told = [((one["query_id"], told_hash({"document": passage}), one["model"]), passage) for passage in passages]
                seen, passage = next(((key, passage) for key, passage in told if key in asked), (None, passages[0]))
                prompt, prediction = (None, None) if seen is None else asked[seen]
                unread += prompt is None
                line = {
                    "model": one["model"], "query": one["query"], "passage": passage, "prompt": prompt,
                    "prediction": prediction, "judgment": one["grade"], "result_status": 1,
                    "qid": one["qid"], "docid": one["doc_id"],
                }  # fmt: skip
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
                rows += 1
    notes = (f"{unread:,} without prompt and prediction: the judge has seen other texts",) if unread else ()
    return WrittenAnswers(path, rows, notes, "judgements")


def _pairs(connection: duckdb.DuckDBPyConnection, run: RunFolder, *, by_log: bool) -> Iterator[list[dict[str, Any]]]:
    names = ("judgements", "queries", "query_map")[: 2 + by_log]
    connection.execute("SET preserve_insertion_order = true")  # else rows come out of order
    query = _PAIRS.format(topic="log_id" if by_log else "query_id", of_log=_OF_LOG if by_log else "")
    for batch in connection.sql(query, params={name: run.tables[name] for name in names}).to_arrow_reader(_BATCH):
        rows = pa.Table.from_batches([batch]).to_pylist()
        yield from (rows[begin : begin + _BATCH] for begin in range(0, len(rows), _BATCH))


def _pages(run: RunFolder, batch: list[dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Returns query_id and doc_id -> the texts that the query's searches have of a page of the web."""
    with database(run) as connection:
        return page_texts(connection, run, sorted({one["query_id"] for one in batch}))


def _asked(run: RunFolder, batch: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Returns query_id, what tells the document, and model -> prompt and answer, from the run's own completions.

    Grading may have asked another model the same.
    """
    files = [run.storage.url(key) for key in (one.key for one in run.storage.list("completions/")) if key.endswith(".parquet")]
    if not files:
        return {}
    given = {"completions": files, "ids": sorted({one["query_id"] for one in batch}), "prompt_hash": batch[0]["prompt_hash"]}
    with database(run) as connection:
        found = connection.execute(_ASKED, given).fetchall()
    return {(query_id, told, model): (prompt, text) for query_id, told, model, prompt, text in found}
