"""Columns of the log that become variables of prompts, as text: the context, and values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.log.check import is_list

TURNS = "\n"  # joins the turns of a context
ITEMS = "; "  # joins the items of a value


def contexts(column: pa.Array, most: int) -> pa.BinaryArray:
    """Returns each row's context, maybe null, maybe not UTF-8; of a long one only what `newest` keeps.

    Args:
        column: text, or lists of text: the turns, oldest first.
        most: code points that are kept.
    """
    texts = _joined(column, TURNS) if is_list(column.type) else column.cast(pa.string()).cast(pa.binary())
    long = pc.fill_null(pc.greater(pc.binary_length(texts), most), False)
    if not pc.any(long).as_py():
        return texts
    return pc.replace_with_mask(texts, long, pa.array([_newest_of(raw, most) for raw in texts.filter(long).to_pylist()]))


def newest(context: str, most: int) -> str:
    """Returns the newest `most` code points of a context.

    A long conversation is cut, not rejected: its query was asked all the same, and mostly about what was said last.
    """
    return context[-most:]


def values(column: pa.Array) -> pa.StringArray:
    """Returns each row's value as text, maybe null; bytes that are not UTF-8 become U+FFFD, since no id is made of them."""
    if is_list(column.type):
        texts = _joined(column, ITEMS).view(pa.string())
    elif isinstance(column.type, pa.UuidType):
        texts = pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.string())
    else:
        texts = column.cast(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raws = texts.view(pa.binary()).to_pylist()
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in raws], pa.string())
    return texts


def _joined(lists: pa.Array, separator: str) -> pa.BinaryArray:
    """Returns the items of each list joined; null items are left out, and a list without items is null."""
    own, number = np.flatnonzero(lists.is_valid()), len(lists)
    inside = lists.type.value_type
    inside = pa.string() if pa.types.is_string_view(inside) else inside  # as Polars writes them; Arrow takes no views
    lists = lists.cast(pa.large_list(inside)).take(pa.array(own))  # of any kind; a null list may span items
    items, rows = lists.flatten().cast(pa.string()).cast(pa.binary()), pc.list_parent_indices(lists)
    items, rows = items.filter(items.is_valid()), rows.filter(items.is_valid())
    lengths = np.bincount(own[rows.to_numpy()], minlength=number)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), pa.scalar(separator.encode()))
    return pc.if_else(pa.array(lengths > 0), joined, pa.scalar(None, pa.binary()))


def _newest_of(raw: bytes, most: int) -> bytes:
    try:
        return newest(raw.decode(), most).encode()
    except UnicodeDecodeError:
        return raw  # its row will be rejected
