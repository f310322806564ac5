"""The reader of a filled sheet: each filled row is checked against the run that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from cluster.errors import ConfigError, nearest
from cluster.storage.csv_file import CsvFault, csv_header, padded_records
from cluster.storage.spreadsheet import unguarded
from jobs.log.judgements import MAX_GRADE
from jobs.measure.judged_rows import database
from jobs.review.review import TO_FILL
from jobs.runs.folder import RunFolder
from rewriters.guards.overrides import STATUSES
from rewriters.normalise import normalise

NEEDED = ("query_id", "query", "strategy", "text", "original", "served", "status", "relevance", "original_relevance")
_READ = ("row", "context", "note")  # where the sheet has them
_GRADES = {"relevance": "served", "original_relevance": "original"}  # column -> that of its document


class Verdict(NamedTuple):
    """A row whose `status` is filled in.

    Attributes:
        place: What errors call the row.
        query: As the run shows it.
        strategy: Of the pool.
        text: That is approved, pinned or banned; "": the strategy is banned.
        status: One of `STATUSES`.
        note: What the person says of it.
    """

    place: str
    query: str
    strategy: str
    text: str
    status: str
    note: str


class FilledGrade(NamedTuple):
    """A document whose relevance is filled in.

    Attributes:
        place: What errors call the row.
        query_id: Of the query.
        query: As the run shows it.
        in_conversation: Whether it has earlier turns.
        doc_id: Of the document.
        grade: From 0 on.
    """

    place: str
    query_id: str
    query: str
    in_conversation: bool
    doc_id: str
    grade: int


class FilledSheet(NamedTuple):
    """What a person has filled in.

    Attributes:
        rows: All rows.
        empty: Of them those with nothing filled in.
        verdicts: On rewrites.
        grades: Of documents.
    """

    rows: int
    empty: int
    verdicts: list[Verdict]
    grades: list[FilledGrade]


def read_filled(path: str, run: RunFolder) -> FilledSheet:
    """Returns what is filled in in a sheet of a run, here or on S3. Rows may stand in any order, and some be left out.

    Raises:
        ConfigError: The file cannot be read, lacks a column, names what is not the run's, or a filled cell is wrong.
    """
    rows, filled = 0, []
    for number, row in enumerate(_rows(path), start=1):
        rows += 1
        if row["query_id"] and not row["query"]:
            raise _wrong(f"{path}: record {number}", "has a query_id and no query; leave both columns as they were")
        if any(row.get(name, "").strip() for name in TO_FILL):
            filled.append((f"row {row['row']}" if row.get("row", "").strip() else f"record {number}", row))
    asked = _asked(run, {row["query_id"] for _, row in filled})
    verdicts: list[Verdict] = []
    grades: list[FilledGrade] = []
    for place, row in filled:
        where = f"{path}: {place}"
        query, in_conversation = _query(where, row, asked)
        if (status := row["status"].strip().casefold()) and (problem := _problem(status, row, in_conversation)):
            raise _wrong(where, problem)
        if status:
            strategy, text = (" ".join(row[name].split()) for name in ("strategy", "text"))
            verdicts.append(Verdict(place, query, strategy, text, status, row.get("note", "").strip()))
        for column, document in _GRADES.items():
            if cell := row[column].strip():
                grade = _grade(where, column, cell)
                if not row[document]:
                    raise _wrong(where, f"has {column} {grade}, and no document in column {document!r}; leave it empty")
                grades.append(FilledGrade(place, row["query_id"], query, in_conversation, row[document], grade))
        if not status and row.get("note", "").strip() and not any(row[column].strip() for column in _GRADES):
            raise _wrong(where, "has a note alone; write a status or a relevance, too, or remove the note")
    _check_documents(run, path, grades)
    return FilledSheet(rows, rows - len(filled), verdicts, grades)


def _rows(path: str) -> Iterator[Mapping[str, str]]:
    """Yields the rows of a sheet: column -> text."""
    try:
        header = csv_header(path)
        if header is None:
            raise _wrong(path, "is empty; give the sheet that `dmqr review RUN` has written")
        names = [unguarded(name) for name in header.names]
        for name in NEEDED:
            if name not in names:
                raise _wrong(path, f"has no column {name!r}{nearest(name, names)}; keep the columns of the sheet")
            if names.count(name) > 1:
                raise _wrong(path, f"has the column {name!r} twice; keep one")
        wanted = [*NEEDED, *(name for name in _READ if name in names)]
        places = [names.index(name) for name in wanted]
        for record in padded_records(path, header):
            yield dict(zip(wanted, (unguarded(record[place]) for place in places), strict=True))
    except CsvFault as fault:
        raise _wrong(f"{path}{fault.at}", fault.words) from fault
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}; give another file") from error


def _asked(run: RunFolder, query_ids: set[str]) -> dict[str, tuple[str, bool]]:
    """Returns query_id -> the query, and whether it has earlier turns, of those that the run has."""
    if not query_ids:
        return {}
    context = "context IS NOT NULL" if run.config.log.context_column is not None else "false"
    with database(run) as connection:
        connection.register("wanted", pa.table({"query_id": pa.array(sorted(query_ids), pa.string())}))
        rows = connection.execute(
            f"SELECT query_id, query, {context} FROM rows_of($files) SEMI JOIN wanted USING (query_id)",
            {"files": run.tables["queries"]},
        ).fetchall()
    return {query_id: (query, after) for query_id, query, after in rows}


def _query(where: str, row: Mapping[str, str], asked: Mapping[str, tuple[str, bool]]) -> tuple[str, bool]:
    """Returns the query of a row as the run shows it, and whether it has earlier turns."""
    if row["query_id"] not in asked:
        shown = row["query_id"][:80]
        raise _wrong(
            where, f"query_id {shown!r} is none of the run's; give the run of this sheet, or leave the column as it was"
        )
    query, in_conversation = asked[row["query_id"]]
    if normalise(row["query"]) != normalise(query):
        words = f"the query is {row['query'][:80]!r}, and its query_id is that of {query[:80]!r}"
        raise _wrong(where, f"{words}; leave both columns as they were")
    return query, in_conversation


def _problem(status: str, row: Mapping[str, str], in_conversation: bool) -> str:
    if status not in STATUSES:
        return f"unknown status {status[:80]!r}{nearest(status, STATUSES)}"
    if in_conversation:
        return "the query has earlier turns, and overrides hold for queries without; leave the status empty"
    if not row["strategy"].strip():
        return f"is {status} without a strategy; write the name of one of the run's"
    return ""


def _grade(where: str, column: str, cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and int(cell) <= MAX_GRADE):
        raise _wrong(where, f"{column} is {cell[:80]!r}; write a whole number, 0 for a document that is not relevant")
    return int(cell)


def _check_documents(run: RunFolder, path: str, grades: Sequence[FilledGrade]) -> None:
    """Checks that the run has found the graded documents for their queries: a spreadsheet may have changed an id."""
    if not grades:
        return
    pairs = sorted({(one.query_id, one.doc_id) for one in grades})
    query_ids, doc_ids = zip(*pairs, strict=True)
    tables = [file for table in ("results", "runs") for file in run.tables.get(table, ())]
    with database(run) as connection:
        connection.register("graded", pa.table({"query_id": pa.array(query_ids), "doc_id": pa.array(doc_ids)}))
        rows = (
            connection.execute(
                "SELECT DISTINCT query_id, doc_id FROM rows_by_name($files) SEMI JOIN graded USING (query_id, doc_id)",
                {"files": tables},
            ).fetchall()
            if tables
            else []
        )
    found = set(rows)
    for one in grades:
        if (one.query_id, one.doc_id) not in found:
            words = f"document {one.doc_id[:80]!r} is none that the run has found for the query"
            raise _wrong(f"{path}: {one.place}", f"{words}; leave the column as it was")


def _wrong(where: str, problem: str) -> ConfigError:
    return ConfigError("review-sheet", f"{where}: {problem}")
