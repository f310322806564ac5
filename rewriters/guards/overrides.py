"""Overrides: rewrites that people approved, pinned or banned; they win over the LLM.

A file in Parquet, CSV or JSON lines with the columns `query`, `strategy`, `text` and `status`; others are ignored. A row holds
for a query with the same normal form and without earlier turns:

- approved: the text replaces the LLM's, where the strategy is selected for the query;
- pinned: the same, and the strategy is used even where it is not selected;
- banned: the text is never searched for the query, whichever strategy writes it; with an empty text the strategy is never
  used for the query.

Rows stay in Arrow; a query is found by the hash of its normal form. A million rows: 15 s to read and check on
a core that others share, 96 MB; a query is found in 0.1 ms.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from cluster.cause import one_line
from cluster.errors import RewriterError, nearest
from rewriters.guards.files import GuardFile
from rewriters.normalise import normalise

COLUMNS = ("query", "strategy", "text", "status")
STATUSES = ("approved", "pinned", "banned")
_BATCH = 1 << 14  # rows that are Python values at a time
Row = tuple[Any, Any, Any, Any]
_SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])


class Override(NamedTuple):
    """A row."""

    strategy: str
    text: str
    status: str


class Overrides:
    """The rows of a file, by query."""

    def __init__(
        self,
        table: pa.Table,
        texts: Mapping[str, int],
        known: Set[str],
        where: str,
        row_name: Callable[[int], str] = "row {}".format,
    ) -> None:
        """Checks and indexes the rows.

        Args:
            table: With COLUMNS, all text.
            texts: Strategy of the pool -> the most texts that it may have.
            known: All strategies that a row may name; those that are not in the pool have no effect.
            where: Names the file in errors.
            row_name: What errors call a row, by its number from 1.

        Raises:
            RewriterError: A row is wrong.
        """
        keys = np.empty(table.num_rows, np.uint64)
        for number, (query, strategy, text, status) in enumerate(_rows(table)):
            normal = normalise(query or "")
            if problem := _problem(normal, strategy, text, status, known):
                raise _wrong(f"{where}: {row_name(number + 1)}", problem)
            keys[number] = _hash(normal)
        order = np.argsort(keys, kind="stable")
        self._keys, self._table = keys[order], table.take(pa.array(order)).combine_chunks()
        numbered = zip(self._keys.tolist(), (order + 1).tolist(), _rows(self._table), strict=True)
        for _, of_query in groupby(numbered, itemgetter(0)):
            _check_together(where, [(number, row) for _, number, row in of_query], texts, row_name)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return int(self._table.num_rows)

    def of(self, query: str) -> list[Override]:
        """Returns the rows of a query, in the order of the file."""
        normal = normalise(query)
        key = np.uint64(_hash(normal))
        low, high = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        rows = _rows(self._table.slice(low, high - low)) if high > low else ()
        return [Override(strategy, text or "", status) for other, strategy, text, status in rows if normalise(other) == normal]


@lru_cache(maxsize=2)
def load_overrides(file: GuardFile, texts: tuple[tuple[str, int], ...], known: tuple[str, ...]) -> Overrides:
    """Returns the overrides of a file that can be read; see `Overrides`."""
    return Overrides(override_rows(file), dict(texts), set(known), file.where)


def override_rows(file: GuardFile) -> pa.Table:
    """Returns COLUMNS of a file of overrides, as text; rows are not checked.

    Raises:
        RewriterError: The file cannot be read.
    """
    ending = file.path.rpartition(".")[2].lower()
    check_override_ending(file.path, file.where)
    data = file.read()
    try:
        table = _READERS[ending](data)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        why = one_line(error, 200)
        raise RewriterError("guard-file", f"{file.where}: is no {ending} file with rows: {why}; correct it") from error
    for name in COLUMNS:
        if name not in table.column_names:
            raise RewriterError(
                "guard-file", f"{file.where}: has no column {name!r}{nearest(name, table.column_names)}; add it"
            )
    return table.select(COLUMNS).cast(_SCHEMA)


def check_override_ending(path: str, where: str) -> None:
    """Checks the name of a file of overrides; raises RewriterError."""
    if path.rpartition(".")[2].lower() not in _READERS:
        raise RewriterError("guard-file", f"{where}: should end in .parquet, .csv or .jsonl; convert it")


def _csv(data: io.BytesIO) -> pa.Table:
    texts = {name: pa.string() for name in COLUMNS}
    return pa.csv.read_csv(
        data,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=texts, strings_can_be_null=False),
    )


def _jsonl(data: io.BytesIO) -> pa.Table:
    options = pa.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore", newlines_in_values=False)
    return pa.json.read_json(data, parse_options=options)


_READERS: dict[str, Any] = {"parquet": pa.parquet.read_table, "csv": _csv, "jsonl": _jsonl}


def _problem(query: str, strategy: str | None, text: str | None, status: str | None, known: Set[str]) -> str:
    """Returns the fault of one row, or ""."""
    if not query:
        return "has no query; write one, or remove the row"
    if strategy not in known:
        return f"unknown strategy {strategy!r}{nearest(strategy or '', known)}"
    if status not in STATUSES:
        return f"unknown status {status!r}{nearest(status or '', STATUSES)}"
    if status != "banned" and not (text or "").strip():
        return f"is {status} without a text; write one, or ban the strategy"
    return ""


def _check_together(
    where: str, rows: Sequence[tuple[int, Row]], texts: Mapping[str, int], row_name: Callable[[int], str]
) -> None:
    """Checks the rows of one query, with their numbers."""
    seen: dict[tuple[str, str], int] = {}
    statuses: dict[str, tuple[str, int]] = {}
    used: dict[str, list[int]] = {}
    banned: dict[str, int] = {}
    for number, (_, strategy, text, status) in rows:
        place, same = f"{where}: {row_name(number)}", normalise(text or "")
        if (first := seen.setdefault((strategy, same), number)) != number:
            raise _wrong(place, f"has the query, strategy and text of {row_name(first)}; keep one")
        if not same:
            banned[strategy] = number
            continue
        other, first = statuses.setdefault(same, (status, number))
        if other != status and "banned" in (other, status):
            raise _wrong(place, f"is {status}, and {row_name(first)} with the same query and text is {other}; keep one")
        if status != "banned":
            used.setdefault(strategy, []).append(number)
    for strategy, numbers in used.items():
        if strategy in banned:
            raise _wrong(
                f"{where}: {row_name(numbers[0])}", f"{row_name(banned[strategy])} bans its strategy for this query; keep one"
            )
        if len(numbers) > (most := texts.get(strategy, len(numbers))):
            line = f"is one of {len(numbers)} texts for its query, and strategy {strategy!r} has {most}; keep {most}"
            raise _wrong(f"{where}: {row_name(numbers[most])}", line)


def _rows(table: pa.Table) -> Iterator[Row]:
    """Yields the rows, some at a time."""
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


def _wrong(place: str, problem: str) -> RewriterError:
    return RewriterError("guard-file", f"{place}: {problem}")


def _hash(normalised: str) -> int:
    return int.from_bytes(hashlib.blake2b(normalised.encode("utf-8", "surrogatepass"), digest_size=8).digest())
