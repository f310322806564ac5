"""Reader of CSV: the first record names the columns, and every value is text, as it is written.

Fields are parted by commas, in a `.tsv` by tabs; in a `.csv` whose header has no comma, by semicolons or tabs. A field may be
in quotes, in which a quote is doubled (RFC 4180); one that is empty is null. A `.tsv` whose header has no quote has none (MS
MARCO, AOL, `mysql -B`): each line is a record, and a quote is a character; a field that is quoted as CSV all the same is
refused. DuckDB reads the columns that are wanted, in order, as a stream, and refuses what pyarrow takes without a word: a quote
that is not closed takes all lines behind it into one field, and `"a" b` loses its quotes. Where text need not be UTF-8, Python
reads from the row on that DuckDB refuses.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import UnavailableError
from cluster.storage import open_file
from cluster.storage.packed import PACKED, unpacked
from cluster.storage.s3_duckdb import bounded_duckdb, reason
from cluster.storage.sql import file_literal

CSV_ENDINGS = tuple(f".{name}{packed}" for name in ("csv", "tsv") for packed in ("", *PACKED))
RECORD_BYTES = 1 << 24  # of a record, at most
_HEAD_BYTES = 1 << 16  # read of a file to see its header
_BUFFER_BYTES = 1 << 25  # of DuckDB: 16 records of the longest kind, 256 MB, unless it is said
_MEMORY = "256MB"  # of DuckDB
_NOT_UTF8 = "Invalid unicode"
_QUOTED = '^"([^"]|"")*""([^"]|"")*"$|^""$'  # what writers of CSV quote: a quote in a text, and an empty text
_QUOTES = "a quote that is not closed, or text behind one that is; write a quote inside quotes twice"


class CsvHeader(NamedTuple):
    """Header of a file: its first record.

    Attributes:
        names: Of the columns.
        delimiter: Between fields.
        has_rows: Whether records follow.
        quote: Around fields; empty: there are no quotes.
    """

    names: tuple[str, ...]
    delimiter: str
    has_rows: bool
    quote: str = '"'

    @property
    def remedy(self) -> str:
        """Returns what to do about a record with too many or too few fields."""
        return "put a field in quotes" if self.quote else "name the file .csv, if its fields are in quotes"


class CsvFault(ValueError):
    """A fault of a file, with its remedy.

    Attributes:
        at: Where in the file, such as `, line 3`; it may be empty.
        words: The message.
    """

    def __init__(self, words: str, line: int | None = None) -> None:
        """`line`: from 1; None: the file as a whole."""
        super().__init__(words)
        self.words, self.at = words, "" if line is None else f", line {line:,}"


def csv_header(path: str, etag: str | None = None) -> CsvHeader | None:
    """Returns the header of a file, here or on S3; None: the file is empty.

    Args:
        path: A path, or s3://BUCKET/KEY.
        etag: The only version of an object that may be read.

    Raises:
        CsvFault: Its first record cannot be one.
        OSError: It cannot be read.
    """
    with open_file(path, etag) as opened:
        stream, head = unpacked(opened, path), b""
        while len(head) < _HEAD_BYTES and (piece := stream.read(_HEAD_BYTES)):
            head += piece
    if not head.strip():
        return None
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CsvFault("is UTF-16; write it as UTF-8")
    text = head.decode("utf-8-sig", "surrogateescape")
    delimiter = _delimiter(path, text)
    quote = "" if _is_tsv(path) and '"' not in re.split(r"\r|\n", text, maxsplit=1)[0] else '"'
    records = _reader(io.StringIO(text, newline=""), delimiter, quote)
    try:
        names = next(records)
    except csv.Error:
        raise CsvFault(_QUOTES, 1) from None
    if not any(name.strip() for name in names):
        raise CsvFault("is blank; let it name the columns", 1)
    if any("\ud800" <= character <= "\udfff" for name in names for character in name):
        raise CsvFault("is not UTF-8; write the file as UTF-8", 1)
    try:
        follows = any(records)
    except csv.Error:  # told when it is read, with its line
        follows = True
    return CsvHeader(tuple(names), delimiter, follows or len(head) >= _HEAD_BYTES, quote)


def _reader(text: io.TextIOBase, delimiter: str, quote: str) -> Any:
    return csv.reader(text, delimiter=delimiter, strict=True, quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE)


def _is_tsv(path: str) -> bool:
    return re.search(r"\.tsv(\.\w+)?$", path.lower()) is not None


def _delimiter(path: str, text: str) -> str:
    if _is_tsv(path):
        return "\t"
    first = re.sub(r'"[^"]*"', "", re.split(r"\r|\n", text, maxsplit=1)[0])
    return next((one for one in (",", ";", "\t") if one in first), ",")


def csv_batches(
    path: str, header: CsvHeader, columns: Sequence[str], rows: int, *, etag: str | None = None, any_bytes: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields columns of a file as text, `rows` at a time, in its order.

    Args:
        path: As for `csv_header`.
        header: Of the file.
        columns: Names; without any, batches have one column of nulls.
        rows: At a time.
        etag: As for `csv_header`; DuckDB opens the object as it is.
        any_bytes: Texts need not be UTF-8, and an empty field in quotes is null, too; else it is the empty text.

    Raises:
        CsvFault: A record has more or fewer fields than the header, or a wrong quote, or is too long, or not UTF-8.
        OSError: It cannot be read to its end.
    """
    places = [header.names.index(name) for name in columns]
    read = 0
    with bounded_duckdb(_MEMORY, 1, ordered=True) as connection:
        try:
            table = _table(path, header, nulls_in_quotes=any_bytes)
            picked = ", ".join(f"c{place}" for place in places) or "NULL AS nothing"
            for batch in connection.sql(f"SELECT {picked} FROM {table}").to_arrow_reader(rows):
                _check_unquoted(batch, header, read)
                yield batch.rename_columns(list(columns)) if columns else batch
                read += len(batch)
            return
        except (duckdb.Error, OSError, pa.ArrowException) as error:  # Arrow's reader passes DuckDB's errors on as its own
            if not (any_bytes and _NOT_UTF8 in str(error)):
                raise _fault(error, header) from error
    yield from _by_python(path, etag, header, places, rows, read)


def count_rows(path: str, header: CsvHeader) -> int:
    """Returns the number of records behind the header, all of which are read.

    Raises:
        CsvFault, OSError: As for `csv_batches`.
    """
    with bounded_duckdb(_MEMORY, 1, ordered=True) as connection:
        try:
            (found,) = connection.execute(f"SELECT count(*) FROM {_table(path, header)}").fetchone() or (0,)
        except duckdb.Error as error:
            raise _fault(error, header) from error
    return int(found)


def _check_unquoted(batch: pa.RecordBatch, header: CsvHeader, first: int) -> None:
    """Refuses a field that is quoted as CSV in a file without quotes; `first`: records before the batch."""
    if header.quote:
        return
    for column in batch.columns:
        if pa.types.is_string(column.type) and (at := pc.index(pc.match_substring_regex(column, _QUOTED), True).as_py()) >= 0:
            raise CsvFault("has a field in the quotes of CSV; name the file .csv, or write it without quotes", first + at + 2)


def _table(path: str, header: CsvHeader, *, nulls_in_quotes: bool = False) -> str:
    """Returns SQL of a file's columns, which are named by their place, since names may repeat, or differ in case alone."""
    columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(header.names)))
    settings = {
        "auto_detect": "false",
        "header": "true",
        "delim": f"'{header.delimiter}'",
        "quote": f"'{header.quote}'",
        "escape": f"'{header.quote}'",
        "strict_mode": "true",
        "columns": f"{{{columns}}}",
        "nullstr": "''",
        "allow_quoted_nulls": str(nulls_in_quotes).lower(),
        "max_line_size": str(RECORD_BYTES),
        "buffer_size": str(_BUFFER_BYTES),
        "hive_partitioning": "false",
    }
    given = ", ".join(f"{name} = {value}" for name, value in settings.items())
    return f"read_csv({file_literal(path)}, {given})"


def _fault(error: Exception, header: CsvHeader) -> CsvFault:
    """Returns what DuckDB refuses.

    Raises:
        UnavailableError: The storage did not answer.
    """
    text = str(error)
    if isinstance(error, UnavailableError) or "UnavailableError" in text:
        reason(error)
    found = re.search(r"on Line: (\d+)", text)
    line = int(found[1]) if found else None
    if fields := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text):
        words = f"has {int(fields[2]):,} fields, and the header {int(fields[1]):,}; correct it, or {header.remedy}"
        return CsvFault(words, line)
    if "unterminated quote" in text:
        return CsvFault(_QUOTES, line)
    if _NOT_UTF8 in text:
        return CsvFault("is not UTF-8; write the file as UTF-8", line)
    if "Maximum line size" in text:
        return CsvFault(f"is longer than {RECORD_BYTES >> 20} MiB; look for a quote that is not closed", line)
    return CsvFault(f"{reason(error)}; correct it, or export it again", line)


def _by_python(
    path: str, etag: str | None, header: CsvHeader, places: Sequence[int], rows: int, first: int
) -> Iterator[pa.RecordBatch]:
    """Yields `csv_batches` from that record on, from 0 behind the header; bytes that are not UTF-8 are in them as they are."""
    csv.field_size_limit(RECORD_BYTES)
    with open_file(path, etag) as opened:
        text = io.TextIOWrapper(unpacked(opened, path), "utf-8-sig", "surrogateescape", newline="")
        found = islice(_records(_reader(text, header.delimiter, header.quote), header), first + 1, None)
        while some := list(islice(found, rows)):
            texts = ([record[place].encode("utf-8", "surrogateescape") or None for record in some] for place in places)
            arrays = [pa.array(one, pa.binary()).view(pa.string()) for one in texts]
            names = [header.names[place] for place in places]
            batch = pa.record_batch(arrays or [pa.nulls(len(some))], names or ["nothing"])
            _check_unquoted(batch, header, first)
            yield batch
            first += len(batch)


def _records(reader: Any, header: CsvHeader) -> Iterator[list[str]]:
    """Yields the records of a file, the header first, as DuckDB counts them.

    A blank line is none, unless there is one column: then it is an empty field.
    """
    fields = len(header.names)
    try:
        for record in reader:
            if len(record) == fields:
                yield record
            elif record:
                words = f"has {len(record):,} fields, and the header {fields:,}; correct it, or {header.remedy}"
                raise CsvFault(words, reader.line_num)
            elif fields == 1:
                yield [""]
    except csv.Error:
        raise CsvFault(_QUOTES, reader.line_num) from None
