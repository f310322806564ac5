"""Columns of a corpus as the text by which documents are filtered.

A value is compared whole, as text, the same in local indexes and in Elasticsearch: 7, true, 2026-01-31. A document whose column
is a list has each of its items; one whose column is null is found by no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import RetrieverError, nearest
from retrievers.retriever import Only

_COMPARED = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_integer, pa.types.is_boolean,
    pa.types.is_date32, pa.types.is_null,
)  # fmt: skip


def check_columns(where: str, columns: Sequence[str], fields: Iterable[str]) -> None:
    """Checks that a corpus or index, which `where` names, has the columns that documents are filtered by.

    Raises:
        RetrieverError: It lacks one.
    """
    kept = [name for name in columns if name not in ("doc_id", "title", "text")]
    for field in fields:
        if field not in kept:
            has = f"it has: {', '.join(kept)}" if kept else "it has none"
            raise RetrieverError(
                "index-other",
                f"{where}: no column {field!r} to filter by (retrieve.filters); {has}{nearest(field, kept)}; build it from a "
                "corpus with that column, or name another",
            )


def check_schema(where: str, schema: pa.Schema, fields: Sequence[str]) -> None:
    """Checks that a corpus or index, which `where` names, has the columns that documents are filtered by, of a fit type.

    Raises:
        RetrieverError: It lacks one, or the values of one have no text, such as structs.
    """
    check_columns(where, schema.names, fields)
    for field in fields:
        _check_type(field, schema.field(field).type)


def filter_texts(field: str, column: pa.Array) -> pa.Array:
    """Returns a column of documents as text, or as lists of text where it holds lists; `field` is its name, for messages.

    Raises:
        RetrieverError: Its values have no text, such as structs.
    """
    _check_type(field, column.type)
    return column.cast(pa.large_list(pa.large_string()) if _listed(column.type) else pa.large_string())


def _listed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _check_type(field: str, kind: pa.DataType) -> None:
    """Raises RetrieverError if the values of a column of this type are not compared as text."""
    inside = kind.value_type if _listed(kind) else kind
    inside = inside.value_type if pa.types.is_dictionary(inside) else inside
    # Of the others the text depends on how they are written: bytes, floats, the unit and zone of a time.
    if not any(one(inside) for one in _COMPARED):
        raise RetrieverError(
            "index-other",
            f"retrieve.filters.{field}: the corpus's column holds {kind}, and a filter compares text, whole numbers, true or "
            "false, dates, or lists of these; convert it",
        )


class FilterColumn:
    """One column of a corpus, for the rows with a value."""

    def __init__(self, field: str, parts: Iterable[pa.Array]) -> None:
        """Reads the column, as `filter_texts`; memory: 4 bytes per document, or per item of lists, and the distinct values."""
        rows: list[np.ndarray] = []
        texts: list[pa.Array] = []
        self._documents = 0
        for part in parts:
            found = filter_texts(field, part)
            own = np.arange(len(found))
            if pa.types.is_large_list(found.type):
                own, found = pc.list_parent_indices(found).to_numpy(), pc.list_flatten(found)
            rows.append(own + self._documents)
            texts.append(found)
            self._documents += len(part)
        encoded = pa.chunked_array(texts, pa.large_string()).combine_chunks().dictionary_encode()
        self._codes: np.ndarray = encoded.indices.fill_null(-1).to_numpy()
        self._rows = np.concatenate([*rows, np.empty(0, np.int64)])
        self._values = {value: code for code, value in enumerate(encoded.dictionary.to_pylist())}

    def mask(self, value: str) -> np.ndarray:
        """Returns which documents have the value, shape (documents,), bool."""
        found = np.zeros(self._documents, dtype=bool)
        code = self._values.get(value)
        if code is not None:
            found[self._rows[self._codes == code]] = True
        return found


class Filters:
    """The filters of a corpus; columns are read when they are first asked for."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Keeps the documents, in row order; reads nothing."""
        self._batches = batches
        self._columns: dict[str, FilterColumn] = {}

    def mask(self, only: Only) -> np.ndarray | None:
        """Returns which documents pass all filters, shape (documents,), bool; None: there are no filters.

        Raises:
            RetrieverError: A column is missing, or cannot be compared.
        """
        found: np.ndarray | None = None
        for field, value in only:
            if field not in self._columns:
                check_columns("the index", self._batches[0].schema.names, [field])
                self._columns[field] = FilterColumn(field, (batch.column(field) for batch in self._batches))
            mask = self._columns[field].mask(value)
            found = mask if found is None else found & mask
        return found
