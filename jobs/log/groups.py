"""The group-by of phase one of dedup: rows by their text, and by context and filter values where the log has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.log.judge import NULL, RAW_SHOWN, Rejection, judge_all, judge_contexts, normal_forms
from rewriters.normalise import ID_BYTES, filtered_id, id_bytes

Ints = npt.NDArray[Any]


class Groups(NamedTuple):
    """Distinct texts with their ids; the group behind the last one has the rows whose text is null."""

    codes: Ints  # (rows,) number of each row's group
    raws: pa.BinaryArray
    contexts: pa.BinaryArray | None  # null where there is none; None: the log has no contexts
    digests: npt.NDArray[np.uint8]  # (groups, 16); zeros of a rejected group
    rejections: dict[int, Rejection]  # by number of the group


def group_rows(rows: pa.Table, max_chars: int, filters: Sequence[tuple[str, str]] = ()) -> Groups:
    """Returns the groups of rows, a table as of `rows_schema`.

    Queries have at most `max_chars` code points; values of `filters` (field, column) are of their identity.
    """
    codes, raws = encode(rows.column("text"))
    digests, rejections = judge_all(raws, max_chars)
    rejections[len(raws)] = NULL
    texts = Groups(codes, raws, None, digests, rejections)
    groups = _with_contexts(texts, rows.column("context")) if "context" in rows.column_names else texts
    return _with_filters(groups, rows, filters) if filters else groups


def encode(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Returns codes, shape (rows,), and the distinct values that they number; a null's code is the number of values."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(), encoded.dictionary


def _with_contexts(texts: Groups, column: pa.ChunkedArray) -> Groups:
    """Returns the groups of (text, context); a context that is blank in normal form is none."""
    codes, contexts = encode(column)
    none = len(contexts)
    normalised, unusable = judge_contexts(contexts)
    blank = [place for place, context in enumerate(normalised) if not context and place not in unusable]
    codes = np.where(np.isin(codes, blank), none, codes)
    pairs, of_row = np.unique(texts.codes.astype(np.int64) * (none + 1) + codes, return_inverse=True)
    text, context = np.divmod(pairs, none + 1)

    bad = np.isin(text, list(texts.rejections)) | np.isin(context, list(unusable))
    rejections = {
        pair: texts.rejections.get(int(text[pair])) or unusable[int(context[pair])] for pair in np.flatnonzero(bad).tolist()
    }
    rejections[len(pairs)] = NULL
    digests = np.concatenate([texts.digests, np.zeros((1, ID_BYTES), np.uint8)])[text]
    digests[bad] = 0
    after = np.flatnonzero(~bad & (context != none))
    number, place = np.unique(text[after], return_inverse=True)
    queries = normal_forms(texts.raws.take(pa.array(number)).cast(pa.string())).to_pylist()
    ids = [
        id_bytes(queries[one], normalised[other]) for one, other in zip(place.tolist(), context[after].tolist(), strict=True)
    ]
    digests[after] = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, ID_BYTES)
    return Groups(
        of_row,
        texts.raws.take(pa.array(text, mask=text == len(texts.raws))),
        contexts.take(pa.array(context, mask=context == none)),
        digests,
        rejections,
    )


def _with_filters(groups: Groups, rows: pa.Table, filters: Sequence[tuple[str, str]]) -> Groups:
    """Returns the groups of (group, filter values); without a value a row is rejected: it would be searched unfiltered."""
    encoded = [encode(rows.column(f"value.{column}")) for _, column in filters]
    keys = groups.codes.astype(np.int64)
    for codes, values in encoded:
        _, keys = np.unique(keys * (len(values) + 1) + codes, return_inverse=True)
    _, firsts, of_row = np.unique(keys, return_index=True, return_inverse=True)
    group = groups.codes[firsts]
    told = [
        [values[code].as_py() if code < len(values) else None for code in codes[firsts].tolist()] for codes, values in encoded
    ]
    digests, rejections = np.zeros((len(firsts), ID_BYTES), np.uint8), {len(firsts): NULL}
    for place, (number, *values) in enumerate(zip(group.tolist(), *told, strict=True)):
        if number in groups.rejections:
            rejections[place] = groups.rejections[number]
        elif None in values:
            raw = groups.raws[number].as_py().decode("utf-8", "replace")[:RAW_SHOWN]
            message = f"column {filters[values.index(None)][1]!r} is null, and retrieve.filters needs its value"
            rejections[place] = Rejection("no_filter", message, raw)
        else:
            only = dict(zip((field for field, _ in filters), values, strict=True))
            digests[place] = np.frombuffer(filtered_id(groups.digests[number].tobytes(), only), np.uint8)
    null = group == len(groups.raws)
    contexts = None if groups.contexts is None else groups.contexts.take(pa.array(group, mask=null))
    return Groups(of_row, groups.raws.take(pa.array(group, mask=null)), contexts, digests, rejections)
