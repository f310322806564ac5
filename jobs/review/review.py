"""The review of a plain run: its rows worth a look, and how many documents its queries find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.errors import ConfigError
from cluster.storage import is_there
from cluster.storage.spreadsheet import ENCODING, Cell, write_rows
from cluster.storage.whole_file import written
from jobs.measure.evaluate.traffic import traffic_thirds
from jobs.measure.judged_rows import database
from jobs.measure.list_portions import lists_known
from jobs.measure.query_context import asked_with, filter_columns
from jobs.review.choice import REASONS, BestCandidates, collect
from jobs.review.portions import check_plain, review_portions, why_unknown
from jobs.review.recall import Recall, RecallRow, recall_values
from jobs.runs.documents import texts_of
from jobs.runs.folder import RunFolder
from jobs.runs.rewrites import searched_rewrites
from jobs.terminal.formats import shortened

ROWS, LOW = 200, 10
TO_FILL = ("status", "relevance", "original_relevance", "note")
"""Columns that a person fills; the last ones of the sheet."""
MOST_TEXT = 2000  # characters of a document; a cell of a spreadsheet has 32,767 at most
_TEXTS = 500  # documents whose texts are read at a time


@dataclass(frozen=True)
class ReviewRow:
    """A row of the sheet.

    Attributes:
        reasons: Keys of `REASONS`.
        filters: Column of the log -> the value by which documents are filtered.
        change: Of the first documents, from 0 to 1 (`jobs/review/choice.py`); None: not known.
        strategy: Of the rewrite; "": the row is of the query.
        text: The rewrite; "": there is none.
        original: The first document of the original alone; "": there is none, or it is not known.
        served: The first document of the results; "": there is none.
        original_text: Its text; None: texts were not asked for.
        served_text: Likewise.
    """

    reasons: tuple[str, ...]
    query_id: str
    query: str
    context: str
    filters: dict[str, str]
    log_count: int
    change: float | None
    strategy: str
    text: str
    original: str
    served: str
    original_text: str | None = None
    served_text: str | None = None


@dataclass(frozen=True)
class Review:
    """What of a run is worth a look.

    Attributes:
        rows: The chosen ones, those first that move most of the traffic.
        found: All rows, also those that were not chosen.
        counts: Reason -> rows that have it; a row may have several.
        settled: Queries that are left out, since a rewrite that a person has approved moves them.
        recall: How many documents queries find, by traffic.
        low: Fewer documents are few.
        least: The reranker's score from which on a document counts there; None: every document counts.
        unknown: Why the lists of the original alone are not known; None: they are.
        without_text: Why texts of documents cannot be read; None: they can, or were not asked for.
        context: Whether the sheet has a column of earlier turns.
        columns: Of the log, by whose values documents are filtered.
        documents: Whether the sheet has the texts of documents.
    """

    rows: list[ReviewRow]
    found: int
    counts: dict[str, int]
    settled: int
    recall: list[RecallRow]
    low: int
    least: float | None
    unknown: str | None
    without_text: str | None
    context: bool
    columns: list[str]
    documents: bool

    def values(self) -> dict[str, Any]:
        """Returns the counts as JSON-able values."""
        written = {reason: sum(reason in row.reasons for row in self.rows) for reason in self.counts}
        return {
            "rows": {"found": self.found, "written": len(self.rows), "left_out": self.found - len(self.rows)},
            "reasons": {reason: {"found": n, "written": written[reason]} for reason, n in self.counts.items()},
            "settled": self.settled,
            "recall": {"low": self.low, "least_score": self.least, "traffic": [recall_values(row) for row in self.recall]},
            "unknown": self.unknown,
            "without_text": self.without_text,
        }


def review_run(
    run: RunFolder,
    rows: int = ROWS,
    low: int = LOW,
    least: float | None = None,
    *,
    documents: bool = False,
    phase: Callable[[str], object] = lambda words: None,
) -> Review:
    """Returns the review of the committed part of a run.

    Args:
        run: A plain run.
        rows: That are chosen at most; 0: none, the counts alone.
        low: A query that finds fewer documents, but some, has a low recall.
        least: A document counts as found from this score of the reranker on; None: every document does.
        documents: Whether to read the texts of the first documents.
        phase: Is told how far it is.

    Raises:
        ConfigError: It is an ablation, has no reranker whose scores could be compared, or its files cannot be read.
    """
    check_plain(run)
    if least is not None and run.config.rerank.kind == "none":
        what = f"--least-score {least:g}: {run.storage.root} has no reranker, whose scores it would be compared with"
        raise ConfigError("argument", f"{what}; leave it out")
    candidates, recall = BestCandidates(rows), Recall.of(run, low, least)
    with database(run) as connection:
        for done in review_portions(connection, run):
            phase(f"review {done:,}/{len(run.manifests):,} shards")
            collect(connection, run, candidates)
            recall.add(connection)
        thirds = traffic_thirds(connection, run)
        chosen = candidates.chosen()
        ids = sorted({one.place[0] for one in chosen})
        texts = {one[:3]: one.text for one in searched_rewrites(connection, run, ids, "run")} if ids else {}
    beside = asked_with(run, ids)
    found = [
        ReviewRow(
            one.reasons, one.place[0], one.query, beside[one.place[0]].context or "", dict(beside[one.place[0]].filters),
            -one.unasked, one.change, one.place[1], texts.get(one.place, ""), one.original or "", one.served or "",
        )
        for one in chosen
    ]  # fmt: skip
    why = None
    if documents:
        found, why = _with_texts(run, found)
    counts = {reason: candidates.counts[reason] for reason in REASONS if candidates.counts[reason]}
    unknown = None if lists_known(run) else why_unknown(run)
    with_context = run.config.log.context_column is not None
    return Review(
        found, candidates.every, counts, candidates.settled, recall.rows(thirds), recall.low, least, unknown, why,
        with_context, filter_columns(run), documents,
    )  # fmt: skip


def _with_texts(run: RunFolder, rows: Sequence[ReviewRow]) -> tuple[list[ReviewRow], str | None]:
    """Returns the rows with the texts of their documents, as far as they are known, and why others are not."""
    wanted = sorted({doc_id for row in rows for doc_id in (row.original, row.served) if doc_id})
    texts: dict[str, str] = {}
    why: str | None = None
    for begin in range(0, len(wanted), _TEXTS):
        more, reason = texts_of(run, wanted[begin : begin + _TEXTS])
        texts |= more
        why = why or reason
    short = {doc_id: shortened(" ".join(text.split()), MOST_TEXT) for doc_id, text in texts.items()}
    return [replace(row, original_text=short.get(row.original, ""), served_text=short.get(row.served, "")) for row in rows], why


def check_out(path: str) -> None:
    """Checks where a sheet is to be written: it may be there already, filled in.

    Raises:
        ConfigError: It is no CSV, or is there.
    """
    if not path.lower().endswith(".csv"):
        raise ConfigError("argument", f"--out {path}: is no CSV; give a name that ends in .csv")
    if is_there(path):
        what = f"--out {path}: is there, perhaps filled in, and is not overwritten"
        raise ConfigError("argument", f"{what}; give another name or remove it")


def sheet_columns(found: Review) -> tuple[list[str], list[list[Cell]]]:
    """Returns the names of a sheet's columns but for those to fill in, and its rows."""
    filters = [f"filter {name}" for name in found.columns]
    names = ["row", "reasons", "query_id", "query", *["context"] * found.context, *filters, "log_count", "change"]
    names += ["strategy", "text", "original", *["original_text"] * found.documents]
    names += ["served", *["served_text"] * found.documents]

    def cells(number: int, row: ReviewRow) -> list[Cell]:
        first: list[Cell] = [number, ", ".join(row.reasons), row.query_id, row.query]
        first += [row.context] * found.context
        first += [row.filters.get(name, "") for name in found.columns]
        first += [row.log_count, row.change, row.strategy, row.text]
        first += [row.original, *[row.original_text] * found.documents]
        return [*first, row.served, *[row.served_text] * found.documents]

    return names, [cells(number, row) for number, row in enumerate(found.rows, start=1)]


def write_sheet(path: str, found: Review) -> None:
    """Writes the rows as CSV that a spreadsheet opens, to a local file or an object on S3.

    Raises:
        OSError: It cannot be written.
    """
    names, rows = sheet_columns(found)
    empty: list[Cell] = [None] * len(TO_FILL)
    with written(path) as file, file.open("w", encoding=ENCODING, newline="") as stream:
        write_rows(stream, [*names, *TO_FILL], (row + empty for row in rows))
