"""Answers with their nuggets as nuggetizer writes them (Pradeep et al. 2024, arXiv 2411.09607): a JSON line for each."""

from __future__ import annotations

import json
from typing import Any

from cluster.errors import ConfigError
from cluster.storage.whole_file import written
from jobs.measure.export.answers.answered import AnsweredArm
from jobs.measure.export.answers.trec_rag import rag_line
from jobs.measure.export.answers.written import WrittenAnswers, batched
from jobs.measure.judged_rows import database

_BATCH = 500  # answers whose nuggets are in memory
_FOUND = """
SELECT query_id, text, importance, assignment FROM rows_of($nuggets) LEFT JOIN ({assigned}) USING (query_id, nugget)
WHERE query_id IN (SELECT unnest($ids)) ORDER BY query_id, nugget
"""
_ASSIGNED = "SELECT query_id, nugget, assignment FROM rows_of($assignments) WHERE arm = $arm AND sample = 0"
_NONE_ASSIGNED = "SELECT NULL::VARCHAR AS query_id, NULL::INTEGER AS nugget, NULL::VARCHAR AS assignment WHERE false"


def write_nuggetizer(path: str, answers: AnsweredArm) -> WrittenAnswers:
    """Writes a line per answer: query, qid, answer_text, response_length, run_id, nuggets (text, importance, assignment).

    `answer_text` is without citations, and `response_length` counts its words, as in the file for TREC RAG. An answer whose
    query has no nuggets, or some of whose nuggets could not be looked for, has no line.

    Raises:
        ConfigError: the judge makes no nuggets, or files of the run cannot be read.
    """
    judge = answers.run.config.judge
    if judge is None or judge.nuggets is None:
        what = f"{answers.run.storage.root}: no LLM makes nuggets"
        raise ConfigError("argument", f"--nuggetizer {path}: {what}; give a run whose config has `judge.nuggets`")
    rows, without, failed = 0, 0, 0
    with written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for batch in batched(answers.read(contexts=False), _BATCH):
            nuggets = _nuggets(answers, sorted({one.row["query_id"] for one in batch}))
            for one in batch:
                found = nuggets.get(one.row["query_id"], [])
                without += not found
                failed += any(nugget["assignment"] is None for nugget in found)
                if not found or any(nugget["assignment"] is None for nugget in found):
                    continue
                rag, _ = rag_line(one, answers.run_id)
                line = {
                    "query": rag["topic"], "qid": rag["topic_id"],
                    "answer_text": " ".join(sentence["text"] for sentence in rag["answer"]),
                    "response_length": rag["response_length"], "run_id": rag["run_id"], "nuggets": found,
                }  # fmt: skip
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
                rows += 1
    notes = [f"{without:,} without nuggets have no line"] if without else []
    notes += [f"{failed:,} have no line, since the judge could not tell which nuggets they have"] if failed else []
    return WrittenAnswers(path, rows, tuple(notes))


def _nuggets(answers: AnsweredArm, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Returns query_id -> its nuggets, each with its assignment to the arm's answer, null where there is none."""
    tables = answers.run.tables
    if not tables.get("nuggets"):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    given: dict[str, Any] = {"nuggets": list(tables["nuggets"]), "ids": ids}
    query = _FOUND.format(assigned=_NONE_ASSIGNED)
    if tables.get("assignments"):
        query = _FOUND.format(assigned=_ASSIGNED)
        given |= {"assignments": list(tables["assignments"]), "arm": answers.arm}
    with database(answers.run) as connection:
        for query_id, text, importance, assignment in connection.execute(query, given).fetchall():
            nugget = {"text": text, "importance": importance, "assignment": assignment}
            found.setdefault(query_id, []).append(nugget)
    return found
