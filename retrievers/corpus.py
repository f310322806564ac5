"""A corpus in Parquet, checked, in the order of its doc_ids, as memory-mapped Arrow.

Columns: ``doc_id`` (string or integer) and ``text``; ``title`` if there; any others are kept as they are.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retrievers.retriever import RetrieverError

DOCUMENTS = "documents.arrow"
DOC_IDS = "doc_ids.arrow"
DUPLICATES = "duplicates.arrow"
_ROWS = 8192  # rows of a record batch on disk
_GATHERED = 16_384  # rows put in order at a time: bounds memory when the corpus is not sorted
_MODULUS = 1 << 128
_as_json = json.JSONEncoder(default=repr).encode  # json.dumps makes an encoder for every row
_STRINGS = (1 << 31) - 1  # bytes that a column of strings holds; of large strings it may be more


class Source(NamedTuple):
    """A Parquet file of a corpus that is no file of this machine."""

    name: str
    open: Callable[[], BinaryIO]

    def __str__(self) -> str:
        return self.name

    @property
    def parent(self) -> str:
        """The folder that it lies in, for messages."""
        return self.name.rpartition("/")[0]


class Written(NamedTuple):
    """What lies in the folder now. ``content``: hash of all rows, whatever files and order they came in."""

    documents: int
    duplicates: int
    content: str
    columns: list[str]


Paths = str | Path | Source | Sequence[str | Path | Source]
"""Where a corpus lies: a Parquet file, a folder of them, or a list of these."""


def corpus_files(paths: Paths) -> list[Path | Source]:
    """The Parquet files of a corpus: a file, a folder (all ``*.parquet`` in it and below) or a list of these.

    Raises:
        RetrieverError: nothing there; ``s3://`` (what lies there comes as `Source`).
    """
    named = [paths] if isinstance(paths, str | Path | Source) else list(paths)
    files: list[Path | Source] = []
    for name in named:
        if isinstance(name, Source):
            files.append(name)
            continue
        if "://" in str(name):
            raise RetrieverError(f"corpus {name}: is no file or folder of this machine; give one, or s3://BUCKET/FOLDER")
        path = Path(name)
        if path.is_dir():
            found = sorted(f for f in path.rglob("*.parquet") if not f.name.startswith((".", "_")))
            if not found:
                raise RetrieverError(f"corpus {path}: the folder holds no *.parquet file; give another")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise RetrieverError(f"corpus {path}: no such file or folder; correct --corpus")
    if not files:
        raise RetrieverError("corpus: no path given; give --corpus a file or folder")
    return files


def _opened(file: Path | Source) -> Path | BinaryIO:
    return file.open() if isinstance(file, Source) else file


def corpus_schema(files: Sequence[Path | Source]) -> pa.Schema:
    """The columns of the corpus, checked in every file: doc_id, title, text, then the others.

    Raises:
        RetrieverError: not Parquet, truncated, a column missing or of another type; which file, what it has.
    """
    others: list[pa.Schema] = []
    for file in files:
        try:
            schema = pq.read_schema(_opened(file))
        except ConnectionError:  # of a Source: nothing is wrong with the corpus
            raise
        except (pa.ArrowException, OSError) as e:
            raise RetrieverError(f"corpus {file}: cannot be read as Parquet: {_line(e)}; copy it again") from None
        for column, kinds in _KINDS.items():
            if column not in schema.names:
                if column == "title":
                    continue
                there = ", ".join(schema.names) or "none"
                raise RetrieverError(f"corpus {file}: no column {column!r}; it has: {there}; rename one")
            kind = schema.field(column).type
            if not any(check(kind) for check in kinds) and not pa.types.is_null(kind):
                allowed = "string or integer" if column == "doc_id" else "string"
                raise RetrieverError(f"corpus {file}: column {column!r} must be {allowed}, found {kind}; convert it")
        rest = [f for f in schema if f.name not in ("doc_id", "title", "text")]
        others.append(pa.schema([pa.field(f.name, _plain(f.type)) for f in rest]))
    try:
        rest_schema = pa.unify_schemas(others, promote_options="permissive")
    except pa.ArrowException as e:
        raise RetrieverError(
            f"corpus {files[0].parent}: its files differ in a column's type: {_line(e)}; convert them"
        ) from None
    return pa.schema([(name, pa.string()) for name in ("doc_id", "title", "text")] + list(rest_schema))


def write_documents(
    files: Sequence[Path | Source], schema: pa.Schema, folder: Path, progress: Callable[[str, int, int], None]
) -> Written:
    """Write DOCUMENTS (sorted by doc_id in code point order), DOC_IDS (one batch) and DUPLICATES into ``folder``.

    Texts are read once as a stream and never held whole; doc_ids and a 16-byte hash per row are.

    Raises:
        RetrieverError: no rows; a null or repeated doc_id (named); a file that breaks off.
    """
    total = sum(pq.read_metadata(_opened(f)).num_rows for f in files)
    staged = folder / "staged.arrow"
    ids: list[pa.Array] = []
    passages = bytearray()
    content = 0
    rows = 0
    with pa.OSFile(str(staged), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for file, batch in _batches(files, schema):
            if batch.column("doc_id").null_count:
                row = rows + pc.index(batch.column("doc_id").is_null(), True).as_py()
                raise RetrieverError(
                    f"corpus {file}: a null doc_id in row {row} of the corpus (counted from 0); give every row one"
                )
            content = (content + _content(batch)) % _MODULUS
            passages += b"".join(map(_passage_hash, joined(batch)))
            ids.append(batch.column("doc_id"))
            writer.write_batch(batch)
            rows += batch.num_rows
            progress("read", rows, total)
    if not rows:
        raise RetrieverError(f"corpus {', '.join(map(str, files[:3]))}: no documents in it; give another")
    large = sum(part.nbytes for part in ids) > _STRINGS
    doc_ids = pa.chunked_array(ids).cast(pa.large_string() if large else pa.string()).combine_chunks()
    # Arrow compares strings byte by byte; in UTF-8 that is the order of code points
    order = pc.sort_indices(doc_ids).to_numpy()
    doc_ids = doc_ids.take(pa.array(order))
    same = pc.equal(doc_ids[1:], doc_ids[:-1])
    if pc.any(same, min_count=0).as_py():
        name = doc_ids[pc.index(same, True).as_py()].as_py()
        where = files[0] if len(files) == 1 else files[0].parent
        raise RetrieverError(f"corpus {where}: doc_id {name!r} is there twice; keep one")
    if np.array_equal(order, np.arange(rows)):
        staged.rename(folder / DOCUMENTS)
    else:
        with pa.OSFile(str(folder / DOCUMENTS), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for table in _gather(staged, order):
                writer.write_table(table, max_chunksize=_ROWS)
        staged.unlink()
    _write_table(folder / DOC_IDS, pa.table({"doc_id": doc_ids}))
    duplicates = _duplicates(doc_ids, np.frombuffer(passages, dtype="<u8").reshape(rows, 2)[order])
    _write_table(folder / DUPLICATES, duplicates)
    digest = hashlib.sha256(f"{rows} {content} {schema.names}".encode()).hexdigest()[:32]
    return Written(rows, duplicates.num_rows, f"sha256:{digest}", schema.names)


def joined(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """The text of each document as it is indexed, embedded and reranked: ``title. text``, or the text alone."""
    titles, texts = batch.column("title").to_pylist(), batch.column("text").to_pylist()
    return [
        f"{title}. {text or ''}" if title and not title.isspace() else text or ""
        for title, text in zip(titles, texts, strict=True)
    ]


def open_arrow(path: Path) -> list[pa.RecordBatch]:
    """The record batches of an Arrow IPC file, memory-mapped: nothing is read until it is looked at."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


def _batches(files: Sequence[Path | Source], schema: pa.Schema) -> Iterator[tuple[Path | Source, pa.RecordBatch]]:
    for file in files:
        try:
            with pq.ParquetFile(_opened(file), pre_buffer=False, buffer_size=1 << 20) as parquet:
                for batch in parquet.iter_batches(batch_size=_ROWS):
                    if batch.num_rows:
                        yield file, _cast(batch, schema)
        except ConnectionError:  # of a Source: nothing is wrong with the corpus
            raise
        except (pa.ArrowException, OSError) as e:
            raise RetrieverError(f"corpus {file}: cannot be read as Parquet: {_line(e)}; copy it again") from None


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    cast = pa.record_batch(columns, schema=schema)
    cast.validate(full=True)  # a string that is not UTF-8 is found here, not where it is first read
    return cast


def _gather(staged: Path, order: np.ndarray) -> Iterator[pa.Table]:
    """The staged rows in the given order, some thousands at a time; each source batch is touched once per piece."""
    batches = open_arrow(staged)
    ends = np.cumsum([b.num_rows for b in batches])
    for start in range(0, len(order), _GATHERED):
        wanted = order[start : start + _GATHERED].astype(np.int64)
        by_row = np.argsort(wanted)
        rows = wanted[by_row]
        source = np.searchsorted(ends, rows, side="right")
        parts = []
        for i in np.unique(source):
            local = rows[source == i] - (ends[i] - batches[i].num_rows)
            parts.append(batches[i].take(pa.array(local)))
        yield pa.Table.from_batches(parts).combine_chunks().take(pa.array(np.argsort(by_row)))


def in_kinds(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 16-byte hashes, shape (n, 2), in an order in which equal ones are neighbours, the first of them first; and
    which places of that order have such a first one."""
    order = np.lexsort((np.arange(len(hashes)), hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, new


def _duplicates(doc_ids: pa.StringArray | pa.LargeStringArray, hashes: np.ndarray) -> pa.Table:
    """Documents with the same passage as an earlier one: doc_id, same_as (the first of them by doc_id)."""
    order, new = in_kinds(hashes)
    first = order[np.flatnonzero(new)][np.cumsum(new) - 1]
    later = np.flatnonzero(~new)
    later = later[np.argsort(order[later])]
    return pa.table({"doc_id": doc_ids.take(pa.array(order[later])), "same_as": doc_ids.take(pa.array(first[later]))})


def _passage_hash(text: str) -> bytes:
    """A passage's text as the eye sees it: NFKC, no case, white space collapsed."""
    plain = " ".join((text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold().split())
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _content(batch: pa.RecordBatch) -> int:
    """Sum of the rows' hashes: the same for the same rows in any order, any split into files."""
    names = batch.schema.names
    total = 0
    for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
        line = _as_json(row)
        total += int.from_bytes(hashlib.blake2b(line.encode(), digest_size=16).digest(), "big")
    return total


def _write_table(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(_plain(kind)) or pa.types.is_large_string(_plain(kind)))


def _plain(kind: pa.DataType) -> pa.DataType:
    """A dictionary type as the type of its values: record batches then need no shared dictionaries."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.string() if pa.types.is_string_view(kind) else kind


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "doc_id": (_is_text, pa.types.is_integer),
    "text": (_is_text,),
    "title": (_is_text,),
}
