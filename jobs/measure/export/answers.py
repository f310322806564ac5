"""The answers of a run as JSON lines, for tools that evaluate answers: `evaluate --rows`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.errors import ConfigError, RetrieverError, nearest
from cluster.storage.whole_file import written
from jobs.chain.arms.arms import FULL, RUN
from jobs.chain.steps.contexts import without_citations
from jobs.measure.answers import GoldAnswers, answering, best_overlap
from jobs.measure.judged_rows import counted_keys, database
from jobs.runs.documents import RunDocuments, pages
from jobs.runs.folder import RunFolder
from jobs.runs.rewrites import searched_rewrites
from retrievers.web.hits import is_page

_BATCH = 500  # answers whose documents are in memory
_ANSWERS = """
SELECT answers.*, query FROM rows_of($answers) AS answers JOIN rows_of($queries) USING (query_id) WHERE arm = $arm
ORDER BY query_id
"""
_REFINED = """
SELECT query_id, doc_id, strips FROM rows_of($grades)
WHERE arm = $arm AND strips IS NOT NULL AND query_id IN (SELECT unnest($ids))
"""
_JUDGED = """
SELECT query_id, kind, doc_id, grade, sample, model FROM rows_of($judgements)
WHERE (arm = $arm OR arm IS NULL) AND query_id IN (SELECT unnest($ids)) ORDER BY ALL
"""
Row = dict[str, Any]


class WrittenAnswers(NamedTuple):
    """A file that was written."""

    path: str
    rows: int
    notes: tuple[str, ...]
    """What it leaves out or assumes."""

    def __str__(self) -> str:
        """Returns it in one line."""
        return "; ".join([f"{self.path}: {self.rows:,} answers", *self.notes])


def write_answers(path: str, run: RunFolder, arm: str | None, gold: GoldAnswers | None) -> WrittenAnswers:
    """Writes a line per answered query: query, answer, contexts, citations, rewrites, gold answers, judgements.

    Args:
        path: a local file or an object on S3.
        run: a run or an ablation.
        arm: of an ablation; None: the config itself, or the first that answers.
        gold: gold answers, if there are any.

    Raises:
        ConfigError: no LLM answers, there is no such arm, or files of the run cannot be read.
        RetrieverError: the index of the documents is gone, or holds others now.
    """
    chosen, seen = _arm(run, arm), Counter[str]()
    documents, golds = _documents(run), _gold(run, gold)
    with written(path) as file, file.open("w", encoding="utf-8", newline="\n") as lines:
        for rows in _batches(run, chosen):
            for line in _lines(run, chosen, rows, documents, golds):
                seen.update(rows=1, ungolden=not line["gold_answers"], cut=bool(line.pop("cut_documents")))
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
    without = run.counts["queries"] - seen["rows"]
    notes = [f"{without:,} queries without an answer have no line"] if without else []
    notes += [f"{seen['ungolden']:,} without a gold answer"] if seen["ungolden"] else []
    notes += [f"contexts of {seen['cut']:,} are whole, of which the prompt had the beginning"] if seen["cut"] else []
    return WrittenAnswers(path, seen["rows"], tuple(notes))


def _arm(run: RunFolder, arm: str | None) -> str:
    if arm is not None and not run.is_ablation:
        raise ConfigError("argument", f"--arm {arm}: {run.storage.root} is a run, which has no arms; leave it out")
    choosing = {one["name"] for one in run.record.get("ablation", {}).get("arms", ()) if one.get("members")}
    arms = [name for name in answering(run) if name not in choosing]  # which have no answers of their own
    if not arms:
        what = f"{run.storage.root}: no LLM answers, so there are no answers to write"
        raise ConfigError("argument", f"{what}; give a run whose config has `answer`")
    if arm is not None and arm not in arms:
        raise ConfigError("argument", f"--arm {arm}: no arm of this name answers{nearest(arm, arms)}")
    return (arm or (FULL if FULL in arms else arms[0])) if run.is_ablation else RUN


def _documents(run: RunFolder) -> RunDocuments:
    try:
        return RunDocuments(run)
    except OSError as error:
        what = f"{run.storage.root}: the texts of documents cannot be read: {' '.join(str(error).split())}"
        raise RetrieverError("index-missing", f"{what}; put the index back where the run found it") from error


def _gold(run: RunFolder, gold: GoldAnswers | None) -> dict[str, list[str]]:
    """Returns query_id -> its gold answers, of all rows of the log that are the query, each once."""
    if gold is None:
        return {}
    with database(run) as connection:
        keys = counted_keys(connection, run, gold.judged).of_query
    return {one: list(dict.fromkeys(text for key in of for text in gold.answers[key])) for one, of in keys.items()}


def _batches(run: RunFolder, arm: str) -> Iterator[list[Row]]:
    given = {name: run.tables.get(name) for name in ("answers", "queries")}
    if given["answers"] is None:
        return
    with database(run) as connection:
        connection.execute("SET preserve_insertion_order = true")  # else rows come out of order
        for batch in connection.sql(_ANSWERS, params=given | {"arm": arm}).to_arrow_reader(_BATCH):
            rows = pa.Table.from_batches([batch]).to_pylist()
            yield from (rows[begin : begin + _BATCH] for begin in range(0, len(rows), _BATCH))


def _lines(
    run: RunFolder, arm: str, rows: Sequence[Row], documents: RunDocuments, golds: dict[str, list[str]]
) -> Iterator[Row]:
    """Yields the lines of some answers."""
    ids, tables = [row["query_id"] for row in rows], run.tables
    rewrites: dict[str, list[Row]] = {}
    judged: dict[str, list[Row]] = {}
    given = {"ids": ids, "arm": arm}
    with database(run) as connection:
        own = {(one.query_id, one.doc_id): one.text for one in pages(connection, run, "query_id", ids)}
        if "grades" in tables:
            found = connection.execute(_REFINED, given | {"grades": tables["grades"]}).fetchall()
            own |= {(query_id, doc_id): strips for query_id, doc_id, strips in found}
        for one in searched_rewrites(connection, run, ids, arm):
            rewrites.setdefault(one.query_id, []).append({"strategy": one.strategy, "text": one.text})
        if "judgements" in tables:
            table = connection.sql(_JUDGED, params=given | {"judgements": tables["judgements"]}).to_arrow_table()
            for judgement in table.to_pylist():
                judged.setdefault(judgement.pop("query_id"), []).append(judgement)
    shown = [[(row["query_id"], one["doc_id"]) for one in row["documents"]] for row in rows]
    wanted = sorted({pair[1] for pairs in shown for pair in pairs if pair not in own})
    texts = documents(wanted) if wanted else {}
    indexed = sorted({doc_id for pairs in shown for _, doc_id in pairs if not is_page(doc_id)})
    places = documents.places(indexed) if indexed else {}
    for row, pairs in zip(rows, shown, strict=True):
        query_id = row["query_id"]
        gold = golds.get(query_id, [])
        measured = best_overlap(without_citations(row["text"]), gold) if gold else None
        yield {
            "query_id": query_id, "arm": arm, "query": row["query"], "answer": row["text"], "cut": row["cut"],
            "model": row["model"], "cited": row["cited"],
            "contexts": [
                {"doc_id": one["doc_id"], "label": one["label"], "place": places.get(pair[1]) or None}
                | {"text": own[pair] if pair in own else texts[pair[1]]}
                for one, pair in zip(row["documents"], pairs, strict=True)
            ],
            "gold_answers": gold, "f1": measured and measured.f1, "em": measured and measured.exact,
            "rewrites": rewrites.get(query_id, []), "judgements": judged.get(query_id, []),
            "cut_documents": row["cut_documents"],
        }  # fmt: skip
