"""Reads a corpus from Parquet and writes it as memory-mapped Arrow, sorted by `doc_id`, in which rows are looked up.

Its files and columns: `retrievers/corpora/files.py`.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import RetrieverError
from retrievers.corpora.files import COLUMNS, Progress, Source, open_source, reading
from retrievers.settings import CorpusSettings

DOCUMENTS = "documents.arrow"
DOC_IDS = "doc_ids.arrow"
DUPLICATES = "duplicates.arrow"
_ROWS = 8192  # rows of a record batch on disk
_GATHER_ROWS = 16_384  # rows sorted at a time: bounds memory when the corpus is not sorted
_MODULUS = 1 << 128
_as_json = json.JSONEncoder(default=repr).encode  # json.dumps would make an encoder for every row
_MAX_STRING_BYTES = (1 << 31) - 1  # limit of Arrow's string type; large_string has none


class Written(NamedTuple):
    """Summary of a corpus that was written."""

    documents: int
    duplicates: int  # documents with the passage of an earlier one
    content: str  # hash of all rows, independent of their files and order
    columns: list[str]
    without_text: int  # documents whose text is null or blank
    without_title: int


def write_documents(
    files: Sequence[Path | Source], schema: pa.Schema, folder: Path, progress: Progress, columns: CorpusSettings = COLUMNS
) -> Written:
    """Writes DOCUMENTS (sorted by doc_id in code point order), DOC_IDS (one batch) and DUPLICATES into an empty folder.

    Texts are streamed; memory holds the doc_ids and a 16-byte hash per row. `files` and `schema` are those of
    `retrievers/corpora/files.py`; `columns` their names in the files; `progress` is called with "read", rows read, rows in
    all.

    Raises:
        RetrieverError: There are no rows, a doc_id is null or repeated (the message names it), or a file is truncated.
    """
    total = sum(pq.read_metadata(open_source(f)).num_rows for f in files)
    staged = folder / "staged.arrow"
    ids: list[pa.Array] = []
    passages = bytearray()
    content = 0
    rows = without_text = without_title = 0
    with pa.OSFile(str(staged), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for file, batch in _batches(files, schema, columns):
            if batch.column("doc_id").null_count:
                row = rows + pc.index(batch.column("doc_id").is_null(), True).as_py()
                raise RetrieverError(
                    "corpus", f"corpus {file}: a null doc_id in row {row} of the corpus (counted from 0); give every row one"
                )
            content = (content + _content_sum(batch)) % _MODULUS
            without_text += _blank(batch.column("text"))
            without_title += _blank(batch.column("title"))
            passages += b"".join(map(_passage_hash, joined(batch)))
            ids.append(batch.column("doc_id"))
            writer.write_batch(batch)
            rows += batch.num_rows
            progress("read", rows, total)
    if not rows:
        raise RetrieverError("corpus", f"corpus {', '.join(map(str, files[:3]))}: no documents in it; give another")
    large = sum(part.nbytes for part in ids) > _MAX_STRING_BYTES
    doc_ids = pa.chunked_array(ids).cast(pa.large_string() if large else pa.string()).combine_chunks()
    # Arrow compares the bytes of strings, and the order of UTF-8 is that of code points
    order = pc.sort_indices(doc_ids).to_numpy()
    doc_ids = doc_ids.take(pa.array(order))
    same = pc.equal(doc_ids[1:], doc_ids[:-1])
    if pc.any(same, min_count=0).as_py():
        name = doc_ids[pc.index(same, True).as_py()].as_py()
        where = files[0] if len(files) == 1 else files[0].parent
        raise RetrieverError("corpus", f"corpus {where}: doc_id {name!r} is there twice; keep one")
    if np.array_equal(order, np.arange(rows)):
        staged.rename(folder / DOCUMENTS)
    else:
        with pa.OSFile(str(folder / DOCUMENTS), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for table in _sorted_rows(staged, order):
                writer.write_table(table, max_chunksize=_ROWS)
        staged.unlink()
    _write_table(folder / DOC_IDS, pa.table({"doc_id": doc_ids}))
    duplicates = _duplicates(doc_ids, np.frombuffer(passages, dtype="<u8").reshape(rows, 2)[order])
    _write_table(folder / DUPLICATES, duplicates)
    digest = _content_hash(rows, content, schema)
    return Written(rows, duplicates.num_rows, digest, schema.names, without_text, without_title)


class Content(NamedTuple):
    """What the rows of a corpus are; `hash` is `Written.content`."""

    documents: int
    hash: str


def content_of(
    files: Sequence[Path | Source], schema: pa.Schema, progress: Progress, columns: CorpusSettings = COLUMNS
) -> Content:
    """Returns what `write_documents` would say of a corpus; writes nothing. Arguments and errors are those of it."""
    total = sum(pq.read_metadata(open_source(f)).num_rows for f in files)
    rows = content = 0
    for _, batch in _batches(files, schema, columns):
        content = (content + _content_sum(batch)) % _MODULUS
        rows += batch.num_rows
        progress("read", rows, total)
    return Content(rows, _content_hash(rows, content, schema))


def _content_hash(rows: int, content: int, schema: pa.Schema) -> str:
    return f"sha256:{hashlib.sha256(f'{rows} {content} {schema.names}'.encode()).hexdigest()[:32]}"


def joined(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """Returns each document's text as it is indexed, encoded and reranked: `title. text`, or the text without a title."""
    titles, texts = batch.column("title").to_pylist(), batch.column("text").to_pylist()
    return [
        f"{title}. {text or ''}" if title and not title.isspace() else text or ""
        for title, text in zip(titles, texts, strict=True)
    ]


def _blank(column: pa.Array) -> int:
    """Returns how many texts are null or white space."""
    return int(pc.sum(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)).as_py())


def sampled(documents: Path, most: int) -> list[str]:
    """Returns the joined texts of documents at equal distances, at most so many, of a file of `write_documents`."""
    batches = open_arrow(documents)
    step = -(-sum(batch.num_rows for batch in batches) // most)
    found, row = [], 0
    for batch in batches:
        rows = range(-row % step, batch.num_rows, step)
        found += joined(batch.select(["title", "text"]).take(pa.array(rows, pa.int64())))
        row += batch.num_rows
    return found


def open_arrow(path: Path) -> list[pa.RecordBatch]:
    """Returns the record batches of an Arrow IPC file, memory-mapped: data are read at first access."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


def _batches(
    files: Sequence[Path | Source], schema: pa.Schema, columns: CorpusSettings
) -> Iterator[tuple[Path | Source, pa.RecordBatch]]:
    for file in files:
        with reading(file), pq.ParquetFile(open_source(file), pre_buffer=False, buffer_size=1 << 20) as parquet:
            for batch in parquet.iter_batches(batch_size=_ROWS):
                if batch.num_rows:
                    yield file, _cast(batch, schema, columns.read_as)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, read_as: Mapping[str, str | None]) -> pa.RecordBatch:
    names = [read_as.get(f.name, f.name) for f in schema]
    columns = [
        batch.column(name).cast(f.type) if name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for name, f in zip(names, schema, strict=True)
    ]
    cast = pa.record_batch(columns, schema=schema)
    cast.validate(full=True)  # a string that is not UTF-8 is found here, not where it is first read
    return cast


def _sorted_rows(staged: Path, order: np.ndarray) -> Iterator[pa.Table]:
    """Yields the staged rows in the given order, `_GATHER_ROWS` at a time; each table reads a source batch once."""
    batches = open_arrow(staged)
    ends = np.cumsum([b.num_rows for b in batches])
    for start in range(0, len(order), _GATHER_ROWS):
        chosen = order[start : start + _GATHER_ROWS].astype(np.int64)
        by_row = np.argsort(chosen)
        rows = chosen[by_row]
        source = np.searchsorted(ends, rows, side="right")
        parts = []
        for i in np.unique(source):
            local = rows[source == i] - (ends[i] - batches[i].num_rows)
            parts.append(batches[i].take(pa.array(local)))
        yield pa.Table.from_batches(parts).combine_chunks().take(pa.array(np.argsort(by_row)))


def group_equal_hashes(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups equal hashes of 16 bytes, shape (n, 2), uint64.

    Returns:
        An order of the rows, shape (n,), in which equal hashes are adjacent, the smallest row first; and a mask of the
        positions in this order that begin a group, shape (n,), bool.
    """
    order = np.lexsort((np.arange(len(hashes)), hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, new


def _duplicates(doc_ids: pa.StringArray | pa.LargeStringArray, hashes: np.ndarray) -> pa.Table:
    """Returns the documents whose passage an earlier document has: doc_id, same_as (the first document with it)."""
    order, new = group_equal_hashes(hashes)
    first = order[np.flatnonzero(new)][np.cumsum(new) - 1]
    later = np.flatnonzero(~new)
    later = later[np.argsort(order[later])]
    return pa.table({"doc_id": doc_ids.take(pa.array(order[later])), "same_as": doc_ids.take(pa.array(first[later]))})


def _passage_hash(text: str) -> bytes:
    """Returns the hash of a passage's normal form: NFKC, casefold, white space collapsed."""
    plain = " ".join((text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold().split())
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _content_sum(batch: pa.RecordBatch) -> int:
    """Returns the sum of the rows' hashes, which is independent of their order and files."""
    names = batch.schema.names
    total = 0
    for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
        line = _as_json(row)
        total += int.from_bytes(hashlib.blake2b(line.encode(), digest_size=16).digest(), "big")
    return total


def _write_table(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def rows_of(sorted_ids: pa.StringArray | pa.LargeStringArray, doc_ids: Sequence[str]) -> Iterator[int | None]:
    """Yields the row of each document, None for one that is not there. Cost: a binary search per document."""
    ids = _Strings(sorted_ids)
    for doc_id in doc_ids:
        row = bisect_left(ids, doc_id.encode("utf-8", "surrogatepass"))
        yield row if row < len(ids) and sorted_ids[row].as_py() == doc_id else None


class _Strings(Sequence[bytes]):
    """A string array as a sequence of UTF-8 bytes, whose order is that of code points."""

    def __init__(self, array: pa.StringArray | pa.LargeStringArray) -> None:
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        self._offsets = np.frombuffer(offsets, dtype=width)[array.offset :]
        self._data = memoryview(data or b"")
        self._length = len(array)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: Any) -> Any:
        return bytes(self._data[self._offsets[i] : self._offsets[i + 1]])
