"""Gold answers of log rows or queries, and how many pseudo-answers have one of theirs."""

from __future__ import annotations

import io
from typing import NamedTuple

import duckdb
import pyarrow as pa

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import open_file
from cluster.storage.s3_duckdb import attach
from jobs.log.judgements import Judgements, Key
from jobs.measure.evaluate.judged_rows import query_of
from jobs.runs.folder import RunFolder
from rewriters.guards.leakage import has_answer
from rewriters.normalise import normalise

_WHERE = "evaluate.answers"


class AnswerShare(NamedTuple):
    """How many texts that are searched as passages have a gold answer of their query, of those whose query has one."""

    with_answer: int
    texts: int


def read_answers(path: str, key: Key) -> dict[str, list[str]]:
    """Returns key -> gold answers, from lines of tab-separated `key answer` in UTF-8; a key may have several lines.

    Raises:
        ConfigError: the file cannot be read, or a line has other columns.
    """
    answers: dict[str, list[str]] = {}
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                name, tab, answer = line.rstrip("\n").partition("\t")
                name = normalise(name) if key == "query" else name
                if not line.strip():
                    continue
                if not tab or not name or not answer.strip():
                    raise ConfigError(
                        "judgements", f"{_WHERE}: {path}: line {number} is not '{key}<TAB>answer'; correct it: {line[:80]!r}"
                    )
                answers.setdefault(name, []).append(answer)
    except UnavailableError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError("judgements", f"{_WHERE}: {path}: cannot be read: {why}; give another file") from error
    return answers


def answer_share(run: RunFolder, path: str, key: Key) -> AnswerShare:
    """Returns how many pseudo-answers of a run's committed shards have a gold answer.

    Raises:
        ConfigError: the answers cannot be read.
    """
    answers = read_answers(path, key)
    files = [run.storage.url(file.key) for one in run.manifests for file in one.files.get("rewrites", ())]
    found: dict[str, list[str]] = {}
    with duckdb.connect() as connection:
        attach(connection)
        for name, query_id in query_of(connection, run, Judgements(path, {name: {} for name in answers}, key)).items():
            if query_id is not None:
                found.setdefault(query_id, []).extend(answers[name])
        if not files or not found:
            return AnswerShare(0, 0)
        connection.register("answered", pa.table({"query_id": list(found)}))
        passages = "search_as = 'passage' OR list_contains(?, strategy)"
        query = f"SELECT query_id, text FROM read_parquet(?) SEMI JOIN answered USING (query_id) WHERE {passages}"
        rows = connection.execute(query, [files, run.passage_strategies]).fetchall()
    return AnswerShare(sum(any(has_answer(text, one) for one in found[query_id]) for query_id, text in rows), len(rows))
