"""The answered queries of an arm with all that files for others say of them, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from cluster.errors import ConfigError, RetrieverError, nearest
from jobs.chain.arms.arms import FULL, RUN
from jobs.measure.answers.frame import GoldAnswers, answering
from jobs.measure.export.trec import run_tags
from jobs.measure.judged_rows import counted_keys, database
from jobs.runs.documents import RunDocuments
from jobs.runs.folder import RunFolder
from jobs.runs.web_pages import pages_of_queries
from retrievers.web.hits import page_id

_BATCH = 1_000  # answers whose documents are in memory
_ROWS = """
SELECT {topic} AS topic, answers.*, query FROM rows_of($answers) AS answers
JOIN rows_of($queries) AS queries USING (query_id){of_log} WHERE arm = $arm ORDER BY topic
"""
_REFINED = """
SELECT query_id, doc_id, strips FROM rows_of($grades)
WHERE arm = $arm AND strips IS NOT NULL AND query_id IN (SELECT unnest($ids))
"""
_OF_LOG = " JOIN (SELECT DISTINCT query_id, log_id FROM rows_of($query_map)) AS logged USING (query_id)"


@dataclass(frozen=True)
class Answered:
    """One answer, of a query or of a row of the log."""

    topic: str
    row: dict[str, Any]
    """Of answers/, with the `query`."""
    contexts: list[str] = field(default_factory=list)
    """The texts of its documents, whole or as they were refined; empty where they were not asked for."""
    gold: list[str] = field(default_factory=list)
    """The gold answers of the query."""

    @property
    def documents(self) -> list[str]:
        """Returns the doc_ids in the order of their numbers in the prompt."""
        return [one["doc_id"] for one in self.row["documents"]]


@dataclass(frozen=True)
class AnsweredArm:
    """The answers of a run, or of one arm of an ablation."""

    run: RunFolder
    arm: str
    by_log: bool
    """Whether there is a row for each row of the log; else for each query."""
    gold: GoldAnswers | None = None

    @property
    def run_id(self) -> str:
        """Returns what the answers are called: the run's id, of an ablation with the arm."""
        run_id: str = self.run.record["run_id"]
        return f"{run_id}-{run_tags([self.arm])[self.arm]}" if self.run.is_ablation else run_id

    def without(self, answered: int) -> int:
        """Returns the number of committed queries that have no answer; `answered`: of those that have."""
        return self.run.counts["queries"] - answered

    def read(self, *, contexts: bool) -> Iterator[Answered]:
        """Yields the answers by topic; with the texts of their documents, and their gold answers, if `contexts`.

        Raises:
            RetrieverError: the index of the documents is gone, or holds others now.
            ConfigError: files of the run cannot be read.
        """
        documents = opened_documents(self.run) if contexts else None
        gold = self._gold() if contexts else {}
        with database(self.run) as connection:
            for rows in self._rows(connection):
                own = self._own_texts([row["query_id"] for row in rows]) if documents is not None else {}
                shown_in = [[_known_as(own, row["query_id"], one["doc_id"]) for one in row["documents"]] for row in rows]
                wanted = sorted({pair[1] for pairs in shown_in for pair in pairs if pair not in own})
                texts = documents(wanted) if documents is not None and wanted else {}
                for row, pairs in zip(rows, shown_in, strict=True):
                    shown = [own[pair] if pair in own else texts[pair[1]] for pair in pairs] if documents is not None else []
                    yield Answered(row.pop("topic"), row, shown, gold.get(row["query_id"], []))

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> Iterator[list[dict[str, Any]]]:
        tables = self.run.tables
        given = {name: tables[name] for name in ("answers", "queries", "query_map")[: 2 + self.by_log] if name in tables}
        if "answers" not in given:
            return
        connection.execute("SET preserve_insertion_order = true")  # else rows come out of order
        query = _ROWS.format(topic="log_id" if self.by_log else "query_id", of_log=_OF_LOG if self.by_log else "")
        for batch in connection.sql(query, params=given | {"arm": self.arm}).to_arrow_reader(_BATCH):
            rows = pa.Table.from_batches([batch]).to_pylist()
            yield from (rows[begin : begin + _BATCH] for begin in range(0, len(rows), _BATCH))

    def _own_texts(self, query_ids: list[str]) -> dict[tuple[str, str], str]:
        """Returns (query_id, doc_id) -> the text of a page of the web, or what grading has kept of a document."""
        tables = self.run.tables
        with database(self.run) as connection:  # its own: that of the answers is still being read
            pages = pages_of_queries(connection, self.run, query_ids, self.arm)
            found = {key: one.text for key, one in pages.items()}
            if "grades" in tables:
                given: dict[str, Any] = {"ids": query_ids, "grades": tables["grades"], "arm": self.arm}
                rows = connection.execute(_REFINED, given).fetchall()
                found |= {(query_id, doc_id): strips for query_id, doc_id, strips in rows}
        return found

    def _gold(self) -> dict[str, list[str]]:
        """Returns query_id -> its gold answers, of all rows of the log that are the query, each once."""
        if self.gold is None:
            return {}
        with database(self.run) as connection:
            keys = counted_keys(connection, self.run, self.gold.judged).of_query
        return {one: list(dict.fromkeys(gold for key in of for gold in self.gold.answers[key])) for one, of in keys.items()}


def _known_as(own: Mapping[tuple[str, str], str], query_id: str, doc_id: str) -> tuple[str, str]:
    """Returns the key of a document among the texts that its query has: of a page its own id, without a collection's name."""
    known, page = (query_id, doc_id), (query_id, page_id(doc_id) or doc_id)
    return page if known not in own and page in own else known


def answered_arm(run: RunFolder, arm: str | None, key: str | None, gold: GoldAnswers | None) -> AnsweredArm:
    """Returns the answers to write: of a run, or of an arm, by default the config itself, or the first that answers.

    Args:
        run: a run or an ablation.
        arm: of an ablation; None: not said.
        key: log_id: a topic is a row of the log; query_id, query: a query; None: log_id where the log has a column of ids.
        gold: gold answers, if there are any.

    Raises:
        ConfigError: no LLM answers, or the ablation has no such arm.
    """
    arms = [name for name in answering(run) if not _choosing(run, name)]
    if not arms:
        what = f"{run.storage.root}: no LLM answers, so there are no answers to write"
        raise ConfigError("argument", f"{what}; give a run whose config has `answer`")
    if arm is not None and arm not in arms:
        raise ConfigError("argument", f"--arm {arm}: no arm of this name answers{nearest(arm, arms)}")
    chosen = arm or (FULL if FULL in arms else arms[0])
    return AnsweredArm(run, chosen if run.is_ablation else RUN, topics_by_log(run, key), gold)


def topics_by_log(run: RunFolder, key: str | None) -> bool:
    """Returns whether a topic is a row of the log, by `key` as `answered_arm` takes it."""
    return run.config.log.id_column is not None if key is None else key == "log_id"


def _choosing(run: RunFolder, arm: str) -> Sequence[str]:
    """Returns the arms among which an arm chooses by judgements: it has no answers of its own."""
    arms = run.record.get("ablation", {}).get("arms", ())
    return next((one.get("members") or () for one in arms if one["name"] == arm), ())


def opened_documents(run: RunFolder) -> RunDocuments:
    """Returns the texts of a run's documents; raises RetrieverError if the index is gone, or holds others now."""
    try:
        return RunDocuments(run)
    except OSError as error:
        what = f"{run.storage.root}: the texts of documents cannot be read: {' '.join(str(error).split())}"
        raise RetrieverError("index-missing", f"{what}; put the index back where the run found it") from error
