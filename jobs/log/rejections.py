"""Validation of the log's texts as queries, their query_ids, and the group-by of phase one of dedup."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewriters.normalise import ID_BYTES, PLAIN, id_bytes, normalise

REASONS = {
    "empty": "null or only white space",
    "too_long": "over {max_chars:,} characters",
    "not_utf8": "not UTF-8",
    "malformed": "no record of the file's form",
}
RAW_SHOWN = 200  # code points of a rejected text kept in errors/


class Rejection(NamedTuple):
    """The reason for rejecting a text; `raw` is its beginning, None for a null text."""

    reason: str  # a key of REASONS
    message: str
    raw: str | None


def rejected_words(counts: Mapping[str, int]) -> str:
    """Returns '10 rejected (7 empty, 3 too_long)', by the counts of a plan; "" where nothing was rejected."""
    why = ", ".join(f"{n:,} {reason}" for reason in REASONS if (n := counts.get(f"rejected_{reason}", 0)))
    return f"{counts['rejected']:,} rejected" + (f" ({why})" if why else "") if counts["rejected"] else ""


def judge(text: str, max_chars: int, context: str = "") -> bytes | Rejection:
    """Returns the 16 bytes whose hex form is the text's query_id after these earlier turns, or why the text is rejected."""
    if len(text) > max_chars and not text.isspace():
        message = f"the query has {len(text):,} characters, log.max_chars is {max_chars:,}"
        return Rejection("too_long", message, text[:RAW_SHOWN])
    normalised = normalise(text)
    if not normalised:
        message = "the query is only white space" if text else "the query is empty"
        return Rejection("empty", message, text[:RAW_SHOWN])
    return id_bytes(normalised, normalise(context))


def judge_all(texts: pa.BinaryArray, max_chars: int) -> tuple[npt.NDArray[np.uint8], dict[int, Rejection]]:
    """Returns the ids of texts, shape (texts, 16) bytes, and index -> rejection; a rejected text has an id of zeros.

    Texts are as read from a file: maybe not valid UTF-8 (lone surrogates are invalid, too).
    """
    raws = texts.to_numpy(zero_copy_only=False)
    plain = pc.and_(_plain(texts), pc.less_equal(pc.binary_length(texts), max_chars)).to_numpy(zero_copy_only=False)
    digests = np.zeros((len(raws), ID_BYTES), np.uint8)
    hashed = b"".join([sha256(raw).digest() for raw in raws[plain]])
    digests[plain] = np.frombuffer(hashed, np.uint8).reshape(-1, 2 * ID_BYTES)[:, :ID_BYTES]
    judged = {index: _judge_raw(raws[index], max_chars) for index in np.flatnonzero(~plain).tolist()}
    ids = {index: entry for index, entry in judged.items() if isinstance(entry, bytes)}
    digests[list(ids)] = np.frombuffer(b"".join(ids.values()), np.uint8).reshape(-1, ID_BYTES)
    return digests, {index: entry for index, entry in judged.items() if isinstance(entry, Rejection)}


def judge_contexts(contexts: pa.BinaryArray) -> tuple[list[str], dict[int, Rejection]]:
    """Returns contexts in normal form ("": there is none), and index -> rejection of those that are not UTF-8."""
    normalised, rejections = [], {}
    for index, raw in enumerate(contexts.to_pylist()):
        try:
            normalised.append(normalise(raw.decode()))
        except UnicodeDecodeError as error:
            normalised.append("")
            rejections[index] = _not_utf8("context", raw, error)
    return normalised, rejections


def hex_ids(digests: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Returns query_ids of 32 hex digits from ids, shape (n, 16) bytes; hex order is byte order."""
    offsets = np.arange(len(digests) + 1, dtype=np.int32) * (2 * ID_BYTES)
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(digests.tobytes().hex().encode()))


def normal_forms(queries: pa.StringArray) -> pa.StringArray:
    """Returns each query normalised by `normalise`."""
    odd = pc.invert(_plain(queries))
    return pc.replace_with_mask(queries, odd, pa.array(map(normalise, queries.filter(odd).to_pylist()), pa.string()))


def _plain(texts: pa.Array) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, rf"\A{PLAIN}\z")


def _judge_raw(raw: bytes, max_chars: int) -> bytes | Rejection:
    try:
        return judge(raw.decode(), max_chars)
    except UnicodeDecodeError as error:
        return _not_utf8("query", raw, error)


def _not_utf8(what: str, raw: bytes, error: UnicodeDecodeError) -> Rejection:
    shown = raw.decode("utf-8", "replace")[:RAW_SHOWN]
    return Rejection("not_utf8", f"the {what} is not UTF-8 (byte {error.start:,})", shown)


Ints = npt.NDArray[Any]


class Groups(NamedTuple):
    """Rows by their query: a text, after earlier turns where the log has contexts."""

    codes: Ints  # (rows,) number of each row's group
    digests: npt.NDArray[np.uint8]  # (groups, 16); of a rejected group no id
    rejections: dict[int, Rejection]  # by number of the group
    contexts: pa.BinaryArray | None = None  # of each row, null where it is blank; None: the log has none


def group_rows(rows: pa.Table, max_chars: int) -> Groups:
    """Returns the groups of rows, a table as of `rows_schema`; queries have at most `max_chars` code points."""
    codes, raws = encode(rows.column("text"))
    digests, rejections = judge_all(raws, max_chars)
    rejections[len(raws)] = Rejection("empty", "the query is null", None)
    texts = Groups(codes, np.concatenate([digests, np.zeros((1, ID_BYTES), np.uint8)]), rejections)
    return _with_contexts(texts, raws, rows.column("context")) if "context" in rows.column_names else texts


def encode(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Returns codes, shape (rows,), and the distinct values that they number; a null's code is the number of values."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(), encoded.dictionary


def _with_contexts(texts: Groups, raws: pa.BinaryArray, column: pa.ChunkedArray) -> Groups:
    """Returns the groups of (text, context); a context that is blank in normal form is none."""
    codes, contexts = encode(column)
    none = len(contexts)
    normalised, unusable = judge_contexts(contexts)
    blank = [number for number, context in enumerate(normalised) if not context and number not in unusable]
    codes = np.where(np.isin(codes, blank), none, codes)
    pairs, of_row = np.unique(texts.codes.astype(np.int64) * (none + 1) + codes, return_inverse=True)
    text, context = np.divmod(pairs, none + 1)

    bad = np.isin(text, list(texts.rejections)) | np.isin(context, list(unusable))
    rejections = {
        pair: texts.rejections.get(int(text[pair])) or unusable[int(context[pair])] for pair in np.flatnonzero(bad).tolist()
    }
    digests = texts.digests[text]
    after = np.flatnonzero(~bad & (context != none))
    number, position = np.unique(text[after], return_inverse=True)
    queries = normal_forms(raws.take(pa.array(number)).cast(pa.string())).to_pylist()
    ids = [
        id_bytes(queries[query], normalised[turns])
        for query, turns in zip(position.tolist(), context[after].tolist(), strict=True)
    ]
    digests[after] = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, ID_BYTES)
    return Groups(of_row, digests, rejections, contexts.take(pa.array(codes, mask=codes == none)))
