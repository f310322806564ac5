"""Reader of tables: Parquet, lines of JSON, and CSV, here or on S3; text may be packed.

FORMS is the one table of formats: whatever a person gives as rows (a log, judgements, answers, a corpus) is opened here.

- Parquet: pyarrow reads it, by row groups; DuckDB refuses text that is not UTF-8.
- JSON: an object a line, whose fields are the columns, or a hit of OpenSearch or Elasticsearch that wraps it in `_source`.
- CSV: the first record names the columns, and every value is text; an empty field is null. Fields are parted by commas, in a
  `.tsv` by tabs; in a `.csv` whose header has no comma, by semicolons or tabs. A field may be in quotes, in which a quote is
  doubled (RFC 4180). A `.tsv` whose header has no quote has none (MS MARCO, AOL, `mysql -B`): each line is a record; a field
  that is quoted as CSV all the same is refused.

DuckDB reads text in order, as a stream, in some ten MB. It refuses what pyarrow takes without a word: a quote that is not
closed takes all lines behind it into one field, and `"a" b` loses its quotes. From what it cannot read on, Python reads
line by line: bytes that are not UTF-8, half a surrogate pair and a key twice are no fault, and of faults it knows the line.
"""

import csv
import errno
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.cause import one_line
from cluster.errors import UnavailableError
from cluster.http import encodable
from cluster.storage import open_file, remote
from cluster.storage.s3_duckdb import bounded_duckdb, reason
from cluster.storage.sql import file_literal, identifier, text_literal

Form = Literal["parquet", "json", "csv"]
PACKED = {".gz": "gzip", ".zst": "zstd"}  # ending of a file's name -> how it is packed
FORMS: dict[Form, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "json": tuple(f".{name}{packed}" for name in ("json", "jsonl", "ndjson") for packed in ("", *PACKED)),
    "csv": tuple(f".{name}{packed}" for name in ("csv", "tsv") for packed in ("", *PACKED)),
}
"""Form of a file -> endings of the names of such files."""
HEAD_OBJECTS, HEAD_BYTES = 1000, 1 << 20  # of lines of JSON, which tell the columns
FAULT = "\0fault"  # the column that says what is wrong with a record: no file has one of this name
LINE_BYTES = 1 << 24  # of a line or record, at most
_CSV_HEAD_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 25  # of DuckDB's CSV reader: 16 records of the longest kind, 256 MB, unless it is said
_MEMORY = "256MB"  # of DuckDB
_QUOTED = '^"([^"]|"")*""([^"]|"")*"$|^""$'  # what writers of CSV quote: a quote in a text, and an empty text
_QUOTES = "a quote that is not closed, or text behind one that is; write a quote inside quotes twice"
_ONE_A_LINE = "write an object a line, as jq -c does"
_BULK = {"index", "create", "update", "delete"}  # the actions of the bulk API
_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # others stand for bytes that are not UTF-8 (`surrogateescape`)
_WRITE_UTF8 = "is not UTF-8; write the file as UTF-8"


class TableFault(ValueError):
    """A fault of a file: its message with a remedy (`message`), and where it is (`at`, such as `, line 3`, or empty)."""

    def __init__(self, message: str, line: int | None = None) -> None:
        """`line`: from 1; None: the file as a whole."""
        super().__init__(message)
        self.message, self.at = message, "" if line is None else f", line {line:,}"


def form_of(path: str) -> Form | None:
    """Returns the form of a file of this name; None: its ending does not say it."""
    return next((form for form, endings in FORMS.items() if path.lower().endswith(endings)), None)


def unpacked(stream: BinaryIO, name: str) -> Any:
    """Returns the stream of what a file of this name holds, to be read from its start to its end."""
    codec = next((codec for ending, codec in PACKED.items() if name.lower().endswith(ending)), None)
    return stream if codec is None else pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec)


def lines_of(path: str, etag: str | None = None) -> Iterator[bytes]:
    """Yields the lines of a file of text, here or on S3, each but the last with its end.

    Raises TableFault for a line longer than LINE_BYTES, and what its reader raises.
    """
    with open_file(path, etag) as opened, io.BufferedReader(unpacked(opened, path), 1 << 16) as stream:
        while line := stream.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise TableFault(f"has a line longer than {LINE_BYTES >> 20} MiB; look for a line break that is missing")
            yield line


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of the lines of a file, here or on S3, that are not blank.

    Raises TableFault if a line is not UTF-8, or as of `lines_of`.
    """
    for number, raw in enumerate(lines_of(path), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise TableFault(f"is not UTF-8 text ({error.reason}); convert it", number) from error
        if line.strip():
            yield number, line


class ParquetTable:
    """A Parquet file, here or on S3, or in memory."""

    head = ()

    def __init__(self, path: str | pa.NativeFile, etag: str | None = None) -> None:
        try:
            source = open_file(path, etag) if isinstance(path, str) and remote(path) else path
            self._file = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
        except (OSError, pa.ArrowException) as error:
            if _passes(error):
                raise
            line = one_line(error).rstrip(".")
            raise TableFault(f"cannot be read as Parquet: {line}; copy it again, or convert it, e.g. to CSV") from error
        self.names = self._file.schema_arrow.names
        self.types = dict(zip(self.names, self._file.schema_arrow.types, strict=True))
        self.sizes = [self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups)]

    def batches(
        self, columns: Sequence[str], rows: int, *, groups: Sequence[int] | None = None, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yields columns as the file has them, `rows` at a time, of all row groups or some; without columns yields all."""
        read = sum(self.sizes[: groups[0]]) if groups else 0
        try:
            for batch in self._file.iter_batches(rows, row_groups=groups, columns=list(columns) or self.names):
                yield batch
                read += len(batch)
        except (OSError, pa.ArrowException) as error:
            if _passes(error):
                raise
            raise TableFault(f"damaged at or after row {read:,}: {one_line(error)}; copy it again") from error


class TextTable(NamedTuple):
    """A file of CSV, or of lines of JSON."""

    path: str  # here or on S3
    etag: str | None  # the only version of an object that may be read
    names: list[str]  # of the columns
    has_rows: bool
    row_bytes: int  # about as many as a row of a log takes, for the size of parts only
    head: Sequence[tuple[int, dict[str, Any]]] = ()  # line and object of the first objects of JSON; empty: it is CSV
    wrapped: bool = False  # in `_source`
    delimiter: str = ","  # between fields of CSV
    quote: str = '"'  # around fields of CSV; empty: there are no quotes
    types: Mapping[str, pa.DataType] = MappingProxyType({})  # none: a column has the type that it is asked for as

    def batches(
        self, columns: Sequence[str], rows: int, *, lists: Sequence[str] = (), any_bytes: bool = False, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yields columns of a file as text, `rows` at a time, in its order.

        Without `columns` batches have one column of nulls. Values of JSON that are no text are their JSON; those of the
        columns `lists` are read as lists of text, what is no list as a list of one. With `any_bytes` texts need not be UTF-8,
        and an empty field in quotes is null, too; of a record with more or fewer fields than the header, or a line that is no
        object, all is null but FAULT, a column that comes where there may be such.

        Raises TableFault if a record is too long, has a wrong quote, or, without `any_bytes`, another fault; or if the file
        is cut off.
        """
        read = 0
        try:
            for batch in self._selected(columns, lists, any_bytes, rows):
                self._check_unquoted(batch, read)
                yield batch
                read += len(batch)
            return
        except (duckdb.Error, OSError, pa.ArrowException) as error:  # Arrow's reader passes DuckDB's errors on as its own
            reason(error)  # the storage may be away
        try:
            lists, names = lists if self.head else (), [*columns, *([FAULT] if any_bytes else [])]
            records = islice(self.records(columns, lists, any_bytes), read, None)
            while some := list(islice(records, rows)):
                texts = [_texts(values, name in lists) for name, values in zip(names, zip(*some, strict=True), strict=True)]
                batch = pa.record_batch(texts, names)
                self._check_unquoted(batch, read)
                yield batch
                read += len(batch)
        except (OSError, pa.ArrowException) as error:
            raise TableFault(f"{reason(error)}; correct it, or export it again") from error

    def records(self, columns: Sequence[str], lists: Sequence[str] = (), any_bytes: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yields columns of each record as bytes, or lists of bytes, by Python, which says in which line a fault is.

        With `any_bytes` what is wrong with a record stands behind them, or None; else it is raised, as by `batches`.
        """
        errors: Any = "surrogateescape" if any_bytes else "strict"
        for number, record in self._rows_of_json() if self.head else self._rows_of_csv():
            if isinstance(record, TableFault):
                if not any_bytes:
                    raise record
                yield (*[None] * len(columns), f"line {number:,}: {record.message}".encode())
                continue
            try:
                values = [_encoded(record.get(name), name in lists, errors) for name in columns]
            except UnicodeEncodeError as error:
                raise TableFault(_WRITE_UTF8, number) from error
            yield (*values, None) if any_bytes else tuple(values)

    def _rows_of_json(self) -> Iterator[tuple[int, Mapping[str, Any] | TableFault]]:
        """Yields line and fields of each object, or what is wrong with the line; of a key twice, the last value holds."""
        for number, line in enumerate(lines_of(self.path, self.etag), 1):
            if line.strip():
                try:
                    yield number, _object(number, line, self.wrapped)
                except TableFault as fault:
                    yield number, fault

    def _rows_of_csv(self) -> Iterator[tuple[int, Mapping[str, Any] | TableFault]]:
        """Yields line and fields of each record, whose empty fields are null, or what is wrong with it.

        Raises TableFault for a wrong quote, which may have taken any number of lines.
        """
        lines = (raw.decode("utf-8-sig", "surrogateescape") for raw in lines_of(self.path, self.etag))
        records = _csv_records(lines, self.delimiter, self.quote)
        next(records)
        while True:
            number = records.line_num + 1
            try:
                fields = next(records)
            except StopIteration:
                return
            except csv.Error:
                raise TableFault(_QUOTES, number) from None
            if len(fields) == len(self.names):
                yield number, {name: field or None for name, field in zip(self.names, fields, strict=True)}
            elif fields:  # of several lines, a quote may be wrong
                remedy = "put a field in quotes" if self.quote else "name the file .csv, if its fields are in quotes"
                what = f"has {len(fields):,} fields, and the header {len(self.names):,}"
                fault = TableFault(f"{what}; correct it, or {remedy}", number)
                if records.line_num > number:
                    raise fault
                yield number, fault
            elif len(self.names) == 1:
                yield number, {self.names[0]: None}

    def _selected(
        self, columns: Sequence[str], lists: Sequence[str], nulls_in_quotes: bool, rows: int
    ) -> Iterator[pa.RecordBatch]:
        if not self.head:  # columns are named by their place, since names may repeat, or differ in case alone
            picked, table = [f"c{self.names.index(name)}" for name in columns], self._csv(nulls_in_quotes)
        else:
            picked = [_as_list(name) if name in lists else f"{identifier(name)}->>'$'" for name in columns]
            table = self._json(columns)
        select = ", ".join(picked) or "NULL AS nothing"  # a row per record even where no column is wanted
        with bounded_duckdb(_MEMORY, 1, ordered=True) as connection:
            for batch in connection.sql(f"SELECT {select} FROM {table}").to_arrow_reader(rows):
                yield batch.rename_columns(list(columns)) if columns else batch

    def _csv(self, nulls_in_quotes: bool) -> str:
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.names)))
        return (
            f"read_csv({file_literal(self.path)}, auto_detect = false, header = true, delim = '{self.delimiter}', "
            f"quote = '{self.quote}', escape = '{self.quote}', strict_mode = true, columns = {{{columns}}}, nullstr = '', "
            f"allow_quoted_nulls = {nulls_in_quotes}, max_line_size = {LINE_BYTES}, buffer_size = {_BUFFER_BYTES}, "
            "hive_partitioning = false)"
        )

    def _json(self, columns: Sequence[str]) -> str:
        fields = ", ".join(f"{text_literal(name)}: 'JSON'" for name in columns) or "'_id': 'JSON'"
        if self.wrapped and columns:
            inside = ", ".join(f"{identifier(name)} JSON" for name in columns)
            fields = f"'_source': {text_literal(f'STRUCT({inside})')}"
        # unless it is said that lines are records, DuckDB takes a line for the value of a column that is alone
        table = f"read_json({file_literal(self.path)}, format = 'newline_delimited', records = true, columns = {{{fields}}})"
        return f"(SELECT unnest(_source) FROM {table})" if self.wrapped and columns else table

    def _check_unquoted(self, batch: pa.RecordBatch, first: int) -> None:
        """Refuses a field that is quoted as CSV in a file without quotes; `first`: records before the batch."""
        if self.quote:
            return
        for column in batch.columns:
            at = pc.index(pc.match_substring_regex(column.cast(pa.binary()), _QUOTED), True).as_py()
            if at >= 0:
                message = "has a field in the quotes of CSV; name the file .csv, or write it without quotes"
                raise TableFault(message, first + at + 2)


def _encoded(value: Any, as_list: bool, errors: Literal["strict", "surrogateescape"]) -> Any:
    """Returns a value as bytes, one of JSON that is no text as its JSON; as a list where it is read as one."""
    if as_list:
        return [_encoded(item, False, errors) for item in (value if isinstance(value, list) else [value])]
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if errors == "surrogateescape":  # half a surrogate pair, as exporters write of a text that was cut in an emoji
        text = _LONE.sub(lambda half: half[0].encode("utf-8", "surrogatepass").decode("utf-8", errors), text)
    return text.encode("utf-8", errors)


def _texts(values: Sequence[Any], as_lists: bool) -> pa.Array:
    """Returns bytes, or lists of bytes, as texts, which need not be UTF-8."""
    if as_lists:
        return pa.array(values, pa.list_(pa.binary())).view(pa.list_(pa.string()))
    return pa.array(values, pa.binary()).view(pa.string())


def _csv_records(lines: Iterable[str], delimiter: str, quote: str) -> Any:
    csv.field_size_limit(LINE_BYTES)
    quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    return csv.reader(lines, delimiter=delimiter, strict=True, quoting=quoting)  # type: ignore[arg-type]


def _as_list(name: str) -> str:
    column = identifier(name)
    return f"CASE WHEN json_type({column}) = 'ARRAY' THEN {column}->>'$[*]' ELSE [{column}->>'$'] END"


def _object(number: int, line: bytes, wrapped: bool = False) -> dict[str, Any]:
    """Returns the object of a line, or what it wraps; text that is not UTF-8 has half surrogates."""
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        begins = line[:40].decode("utf-8", "replace").strip()
        whole = begins in ("{", "[")
        what = "an object or array over several lines" if whole else f"no JSON: it begins with {begins!r}"
        raise TableFault(f"{what}; {_ONE_A_LINE}", number) from error
    if not isinstance(value, dict):
        kind = "array" if isinstance(value, list) else "value"
        raise TableFault(f"a JSON {kind}, wanted an object; {_ONE_A_LINE}", number)
    if isinstance(value.get("hits"), dict) and "hits" in value["hits"]:
        raise TableFault(f"a whole answer of a search; {_ONE_A_LINE}: jq -c '.hits.hits[]'", number)
    if len(value) == 1 and _BULK.issuperset(value) and isinstance(next(iter(value.values())), dict):
        raise TableFault("an action of the bulk API; export the documents alone", number)
    inside = (value.get("_source") or {}) if wrapped else value
    if not isinstance(inside, dict):
        raise TableFault(f"a JSON value in _source, wanted an object; {_ONE_A_LINE}", number)
    return inside


def _passes(error: Exception) -> bool:  # it is no fault of the file
    return isinstance(error, UnavailableError) or getattr(error, "errno", None) == errno.ESTALE


def _open_json(path: str, etag: str | None) -> TextTable | None:
    names: dict[str, None] = {}
    head: list[tuple[int, dict[str, Any]]] = []
    wrapped, read = None, 0
    for number, line in enumerate(lines_of(path, etag), 1):
        read += len(line)
        if not line.strip():
            continue
        try:
            fields = _object(number, line)
        except TableFault:
            if wrapped is None:
                raise  # the file is none of JSON lines
            continue
        inside = isinstance(fields.get("_source"), dict)
        if wrapped not in (None, inside):
            raise TableFault("some objects are wrapped in _source, some are not; write all in one way", number)
        wrapped, own = inside, fields["_source"] if inside else fields
        head.append((number, own))
        names |= dict.fromkeys(map(encodable, own))
        if len(head) == HEAD_OBJECTS or read > HEAD_BYTES:
            break
    return None if wrapped is None else TextTable(path, etag, list(names), True, 1 << 10, head, wrapped)


def _open_csv(path: str, etag: str | None) -> TextTable | None:
    lines, head = lines_of(path, etag), b""
    while len(head) < _CSV_HEAD_BYTES and (line := next(lines, b"")):
        head += line
    if not head.strip():
        return None
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TableFault("is UTF-16; write it as UTF-8")
    text = head.decode("utf-8-sig", "surrogateescape")
    first, is_tsv = re.split(r"\r|\n", text, maxsplit=1)[0], re.search(r"\.tsv(\.\w+)?$", path.lower()) is not None
    plain = re.sub(r'"[^"]*"', "", first)
    delimiter = "\t" if is_tsv else next((mark for mark in (",", ";", "\t") if mark in plain), ",")
    quote = "" if is_tsv and '"' not in first else '"'
    records = _csv_records(io.StringIO(text, newline=""), delimiter, quote)
    try:
        names = next(records)
    except csv.Error:
        raise TableFault(_QUOTES, 1) from None
    if not any(name.strip() for name in names):
        raise TableFault("is blank; let it name the columns", 1)
    if any("\ud800" <= character <= "\udfff" for name in names for character in name):
        raise TableFault(_WRITE_UTF8, 1)
    has_rows = bool(text[len(first) :].strip())
    return TextTable(path, etag, names, has_rows, 1 << 6, delimiter=delimiter, quote=quote)


_OPENERS: dict[Form, Any] = {"parquet": ParquetTable, "json": _open_json, "csv": _open_csv}


def open_table(path: str, etag: str | None = None) -> ParquetTable | TextTable | None:
    """Opens a table, whose first rows, or footer, tell its columns; None: a text that is empty.

    The ending of the path says how it holds rows, else it is Parquet; `etag` is the only version of an object that may be
    read.

    Raises:
        TableFault: It cannot be such a table, or cannot be read.
        UnavailableError: The storage does not answer.
        OSError: With ESTALE, it is another version.
    """
    try:
        return _OPENERS[form_of(path) or "parquet"](path, etag)
    except (OSError, pa.ArrowException) as error:
        if _passes(error):
            raise
        why = one_line(getattr(error, "strerror", None) or error, 200)
        raise TableFault(f"cannot be read ({why}); make it readable") from error
