"""Grades of relevance as UMBRELA writes them (Upadhyay et al. 2024, arXiv 2406.06519): JSON lines, one for each judged pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from cluster.errors import ConfigError
from cluster.storage.whole_file import written
from jobs.chain.arms.judging import RELEVANCE
from jobs.chain.arms.opened import digest
from jobs.chain.arms.requests import made_with, request_key
from jobs.chain.completions import CompletionRecord, first_key, record_of
from jobs.chain.journal import Key, row_key
from jobs.chain.steps.contexts import beginning
from jobs.chain.steps.replays import best_sample, read_outcome
from jobs.measure.export.answers.answered import opened_documents, topics_by_log
from jobs.measure.export.answers.written import WrittenAnswers
from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder
from jobs.runs.web_pages import page_texts
from retrievers.web.hits import page_id
from rewriters.guards.mask import Mask
from rewriters.outcome.replays import FIRST_REPLAY
from rewriters.query import Query
from rewriters.steps.settings import RelevanceSettings
from rewriters.steps.step import LlmStep

_BATCH = 1_000  # pairs whose texts are in memory
_PAIRS = f"""
SELECT {{topic}} AS qid, judged.*, query FROM rows_of($judgements) AS judged
JOIN rows_of($queries) AS queries USING (query_id){{of_log}} WHERE kind = '{RELEVANCE}' AND sample = 0
ORDER BY qid, doc_id, grade
"""
_OF_LOG = " JOIN (SELECT DISTINCT query_id, log_id FROM rows_of($query_map)) AS logged USING (query_id)"
_ANSWERS = f"""
SELECT * FROM rows_by_name($completions)
WHERE query_id IN (SELECT unnest($ids)) AND prompt_hash = $prompt_hash AND coalesce(sample, 0) % {FIRST_REPLAY} = 0
    AND text IS NOT NULL
"""
Samples = dict[Key, dict[Key, CompletionRecord]]
"""The key of a request's first answer -> its answers by their own keys, those that replays have asked for among them."""


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
    read_by = _Judge(run, judge.relevance)
    with database(run) as connection, written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for batch in _pairs(connection, run, by_log=by_log) if tables.get("judgements") else ():
            asked, pages = _answers(run, batch), _pages(run, batch)
            found_as = [pages.get((one["query_id"], page_id(one["doc_id"]) or ""), ()) for one in batch]
            texts = opened(sorted({one["doc_id"] for one, of_page in zip(batch, found_as, strict=True) if not of_page}))
            for one, of_page in zip(batch, found_as, strict=True):
                passages = [beginning(text, most) for text in of_page or [texts[one["doc_id"]]]]
                found = [(read, text) for text in passages if (read := read_by.answer(asked, one, text)) is not None]
                read, passage = found[0] if found else (None, passages[0])
                unread += read is None
                line = {
                    "model": one["model"], "query": one["query"], "passage": passage, "prompt": read and read.prompt,
                    "prediction": read and read.completion.text, "judgment": one["grade"], "result_status": 1,
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


def _answers(run: RunFolder, batch: list[dict[str, Any]]) -> Samples:
    """Returns the answers to the prompt of the judge that the run has of these queries; grading may have asked it, too."""
    files = [run.storage.url(key) for key in (one.key for one in run.storage.list("completions/")) if key.endswith(".parquet")]
    if not files:
        return {}
    given = {"completions": files, "ids": sorted({one["query_id"] for one in batch}), "prompt_hash": batch[0]["prompt_hash"]}
    found: Samples = {}
    with database(run) as connection:
        for row in connection.execute(_ANSWERS, given).to_arrow_table().to_pylist():
            found.setdefault(first_key(row_key(row)), {})[row_key(row)] = record_of(row)
    return found


class _Judge:
    """The judge of a run, as its record has it: its prompt's file may have changed since."""

    def __init__(self, run: RunFolder, settings: RelevanceSettings) -> None:
        """Reads the record."""
        known = run.record["identity"]["judge"][RELEVANCE]
        self._step = LlmStep.model_validate(known["step"] | {"name": Path(settings.prompt).stem})
        self._engine, self._decoding = digest(known["engine"]), known["decoding"]

    def answer(self, samples: Samples, judged: dict[str, Any], passage: str) -> CompletionRecord | None:
        """Returns the answer that was read, by which a query and a passage have their grade; None: the judge was not asked."""
        query = Query(judged["query_id"], judged["query"])
        request = self._step.request(query, {"document": passage}, Mask(()), self._decoding, "")
        answers = samples.get(request_key(request, made_with(request, self._engine)))
        return None if answers is None else answers[best_sample(request, answers, partial(read_outcome, self._step))]
