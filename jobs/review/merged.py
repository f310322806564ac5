"""What is made of a filled sheet: a file of overrides, and judgements, each added to what is there."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage import is_there, open_file, remote
from cluster.storage.whole_file import written
from jobs.job.strategies import readable
from jobs.log.judgements import read_qrels
from jobs.log.sets.names import set_name
from jobs.review.filled import FilledGrade, Verdict
from jobs.runs.folder import RunFolder
from rewriters.guards.files import guard_file
from rewriters.guards.overrides import COLUMNS, Overrides, check_override_ending, override_rows
from rewriters.normalise import normalise
from rewriters.pool import shipped

SheetKey = Literal["query_id", "query"]
_NOTE = "note"
_QUERY_ID = re.compile("[0-9a-f]{32}")


class MergedFile(NamedTuple):
    """A file with what was added to it.

    Attributes:
        path: Of the file.
        added: Rows, or judgements.
        known: That were there already.
        data: The whole file.
        notes_left: Notes of rows that were added and that the file has no place for: a CSV without a column `note`.
    """

    path: str
    added: int
    known: int
    data: bytes
    notes_left: int = 0


def merged_overrides(path: str, verdicts: Sequence[Verdict], run: RunFolder, sheet: str) -> MergedFile:
    """Returns a file of overrides with those of a sheet; rows that are there stay as they are written.

    Args:
        path: Of the file, Parquet, CSV or JSON lines, here or on S3; it need not be there.
        verdicts: On rewrites.
        run: Whose strategies they may name.
        sheet: Names it in errors.

    Raises:
        RewriterError: The file is none of overrides, or rows contradict each other.
    """
    where = f"--overrides {path}"
    check_override_ending(path, where)
    before = _read(path)
    old = override_rows(guard_file("--overrides", path, open_file)) if before else pa.table({name: [] for name in COLUMNS})
    of_sheet = {normalise(one.query) for one in verdicts}
    known = {
        (normal, strategy, normalise(text or ""), status)
        for batch in old.to_batches(1 << 14)
        for query, strategy, text, status in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        if (normal := normalise(query or "")) in of_sheet
    }
    new: list[Verdict] = []
    for one in verdicts:
        key = (normalise(one.query), one.strategy, normalise(one.text), one.status)
        if key not in known:
            known.add(key)
            new.append(one)
    rows = [[getattr(one, name) for one in new] for name in COLUMNS]
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    both = pa.concat_tables([old.cast(schema), pa.table(rows, schema)])

    def row_name(number: int) -> str:
        return f"row {number} of {path}" if number <= old.num_rows else f"{new[number - old.num_rows - 1].place} of {sheet}"

    entries = run.config.rewrite.strategies if run.config.rewrite.planned else ()
    texts = {one.name: one.n for one in map(readable, entries) if one is not None}
    Overrides(both, texts, {*run.config.rewrite.planned, *shipped()}, where, row_name)
    data, kept = _with_overrides(path, before, new)
    notes = 0 if kept else sum(bool(one.note) for one in new)
    return MergedFile(path, len(new), len(verdicts) - len(new), data, notes)


def _with_overrides(path: str, before: bytes, new: Sequence[Verdict]) -> tuple[bytes, bool]:
    """Returns the bytes of a file of overrides with further rows, and whether notes are in it: a CSV may lack the column."""
    columns = [*COLUMNS, _NOTE]
    rows = [one._asdict() for one in new]
    ending = path.rpartition(".")[2].lower()
    if ending == "parquet":
        table = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in columns]))
        if before:
            old = pq.read_table(io.BytesIO(before))
            schema = old.schema.remove_metadata()
            fields = [pa.field(name, pa.string()) for name in columns if name not in schema.names]
            every = pa.schema([*schema, *fields])
            mine = [table.column(f.name).cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in every]
            theirs = [old.column(f.name) if f.name in schema.names else pa.nulls(old.num_rows, f.type) for f in every]
            table = pa.concat_tables([pa.table(theirs, schema=every), pa.table(mine, schema=every)])
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        return sink.getvalue(), True
    if ending == "jsonl":
        lines = [
            json.dumps({name: row[name] for name in columns if name != _NOTE or row[name]}, ensure_ascii=False) for row in rows
        ]
        return _ended(before) + "".join(f"{line}\n" for line in lines).encode(), True
    sink_text = io.StringIO(newline="")
    names = columns
    if before:
        with pa.csv.open_csv(io.BytesIO(before), parse_options=pa.csv.ParseOptions(newlines_in_values=True)) as reader:
            names = reader.schema.names
    writer = csv.writer(sink_text, lineterminator="\r\n" if b"\r\n" in before else "\n")
    if not before:
        writer.writerow(names)
    writer.writerows([row.get(name, "") if name in columns else "" for name in names] for row in rows)
    return _ended(before) + sink_text.getvalue().encode(), _NOTE in names


def merged_judgements(path: str, grades: Sequence[FilledGrade], run: RunFolder, sheet: str, key: SheetKey) -> MergedFile:
    """Returns a file of judgements with the grades of a sheet; lines that are there stay as they are written.

    Args:
        path: Of the file, here or on S3; it need not be there.
        grades: Of documents.
        run: Whose queries they are of.
        sheet: Names it in errors.
        key: What the file names: ids of queries, or their texts.

    Raises:
        ConfigError: The file holds no judgements by this key, the run reads it by another, or two grades of a document
            contradict each other.
    """
    where = f"--qrels {path}"
    if set_name(path) is not None:
        raise ConfigError("argument", f"{where}: is a data set, to which nothing can be added; name a file")
    if key == "query" and run.config.retrieve.filters:
        what = f"--key query: with retrieve.filters one text is several queries of {run.storage.root}"
        raise ConfigError("argument", f"{what}; leave it out, and judge by query_id (evaluate.key)")
    another = f"give another file, and judge by it with evaluate.key: {key}"
    if _is_file(path, run.config.evaluate.qrels) and key != run.config.evaluate.key:
        what = f"the run has it judge by {run.config.evaluate.key} (evaluate.key), by which lines of a {key} would never count"
        raise ConfigError("judgements", f"{where}: {what}; {another}")
    before = _read(path)
    known = read_qrels(path, "--qrels", key).grades if before.strip() else {}
    if key == "query_id" and (no_id := next((name for name in known if not _QUERY_ID.fullmatch(name)), None)) is not None:
        what = f"judges {no_id[:80]!r}, which is no query_id: lines of the sheet would never count beside it"
        raise ConfigError("judgements", f"{where}: {what}; {another}")
    places: dict[tuple[str, str], tuple[str, int]] = {
        (name, doc_id): (path, grade) for name, of in known.items() for doc_id, grade in of.items()
    }
    lines: dict[str, None] = {}
    for one in grades:
        if key == "query" and one.in_conversation:
            what = f"{sheet}: {one.place}: the query has earlier turns, and texts alone do not name it"
            raise ConfigError("review-sheet", f"{what}; leave out --key query")
        name = one.query_id if key == "query_id" else normalise(one.query)
        for what, value in (("document", one.doc_id), ("query", name)):
            if value != "".join(value.splitlines()) or "\t" in value:
                words = f"{what} {value[:80]!r} has a tab or a line's end, which judgements cannot hold"
                raise ConfigError("review-sheet", f"{sheet}: {one.place}: {words}; leave the relevance empty")
        place, grade = places.setdefault((name, one.doc_id), (f"{one.place} of {sheet}", one.grade))
        if grade != one.grade:
            words = f"document {one.doc_id[:80]!r} has the grade {one.grade}, and in {place} for the same query {grade}"
            raise ConfigError("review-sheet", f"{sheet}: {one.place}: {words}; keep one")
        if place != path:
            lines[f"{name}\t{one.doc_id}\t{one.grade}\n"] = None
    return MergedFile(path, len(lines), len(grades) - len(lines), _ended(before) + "".join(lines).encode())


def _is_file(path: str, other: str | None) -> bool:
    """Returns whether two paths, here or on S3, are of one file."""
    if other is None or remote(path) or remote(other):
        return path == other
    return Path(path).resolve() == Path(other).resolve()


def write_merged(files: Sequence[MergedFile]) -> None:
    """Writes files to which something was added; raises OSError."""
    for one in files:
        if one.added:
            with written(one.path) as file:
                file.write_bytes(one.data)


def _read(path: str) -> bytes:
    """Returns the bytes of a file, here or on S3; none where there is none."""
    if not is_there(path):
        return b""
    with open_file(path) as file:
        return file.read()


def _ended(data: bytes) -> bytes:
    """Returns lines, the last one with its end."""
    return data if not data or data.endswith(b"\n") else data + b"\n"
