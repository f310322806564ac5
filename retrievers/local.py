"""The local index, opened: BM25 or dense search, and the documents' texts, from memory-mapped files.

Good for up to some millions of documents on one machine; `local_build` has the layout.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from retrievers.analyzer import analyzer_name, open_analyzer
from retrievers.bm25 import BM25Search
from retrievers.corpus import DOC_IDS, DOCUMENTS, DUPLICATES, joined, open_arrow
from retrievers.dense import DenseSearch
from retrievers.encoder import Encoder, encoder_identity, encoder_settings
from retrievers.retriever import Alive, Retriever, RetrieverError, named, unknown, unwatched

FORMAT = 1
"""Of the folder; an index of another format is refused."""

INDEX = "index.json"
BUILD = "dmqr index CONFIG --corpus PATH"


class LocalDocuments:
    """The documents of a local index; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            RetrieverError: no index there, or a damaged one.
        """
        self.path = path
        entry = checked_index(path)
        try:
            self._open(path / str(entry["data"]))
        except FileNotFoundError:  # replaced between reading index.json and opening the files: read it again
            entry = checked_index(path)
            self._open(path / str(entry["data"]))
        self.entry: dict[str, Any] = entry
        self.data = path / str(entry["data"])

    def _open(self, data: Path) -> None:
        self._batches = open_arrow(data / DOCUMENTS)
        self._ends = np.cumsum([batch.num_rows for batch in self._batches])
        self.doc_ids: pa.StringArray = open_arrow(data / DOC_IDS)[0].column(0)
        self._duplicates = open_arrow(data / DUPLICATES)

    def __len__(self) -> int:
        return len(self.doc_ids)

    def texts(self, doc_ids: Sequence[str], alive: Alive = unwatched) -> list[str]:
        """The indexed text of each document. Cost: a binary search per document, no table of ids in memory.

        Raises:
            RetrieverError: a ``doc_id`` is not in the index.
        """
        found = [""] * len(doc_ids)
        places: dict[int, list[tuple[int, int]]] = {}
        for place, row in enumerate(self.rows(doc_ids)):
            batch = int(np.searchsorted(self._ends, row, side="right"))
            start = int(self._ends[batch]) - self._batches[batch].num_rows
            places.setdefault(batch, []).append((place, row - start))
        for batch, wanted in places.items():
            part = self._batches[batch].select(["title", "text"]).take(pa.array([row for _, row in wanted]))
            for (place, _), text in zip(wanted, joined(part), strict=True):
                found[place] = text
        return found

    def rows(self, doc_ids: Sequence[str]) -> list[int]:
        """The row number of each document.

        Raises:
            RetrieverError: a ``doc_id`` is not in the index.
        """
        ids = _Strings(self.doc_ids)
        rows = []
        for doc_id in doc_ids:
            row = bisect_left(ids, doc_id.encode("utf-8", "surrogatepass"))
            if row == len(ids) or self.doc_ids[row].as_py() != doc_id:
                raise RetrieverError(
                    f"index {self.path}: no document {doc_id!r}; build the index again from the corpus that it was built from"
                )
            rows.append(row)
        return rows

    @cached_property
    def duplicates(self) -> dict[str, str]:
        """doc_id -> the first doc_id (by code point) with the same normalised passage; only those that have one."""
        return {
            doc_id: first
            for batch in self._duplicates
            for doc_id, first in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        }


class _Strings(Sequence[bytes]):
    """A string array as a sequence of UTF-8: bytes sort as code points do."""

    def __init__(self, array: pa.StringArray) -> None:
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, dtype=np.int32)[array.offset :]
        self._data = memoryview(data or b"")
        self._length = len(array)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: Any) -> Any:
        return bytes(self._data[self._offsets[i] : self._offsets[i + 1]])


def open_retriever(
    name: str, settings: Mapping[str, Any], device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """`retrievers.retriever.open_retriever` for ``kind: local``: BM25, or dense search where ``encoder`` is given.

    Raises:
        RetrieverError: no index; damaged; of another encoder or analyzer; replaced since ``expect_identity`` was noted.
    """
    block = local_block(name, settings)
    documents = LocalDocuments(index_path(name, block))
    identity = identity_of(name, block, documents.entry)
    if expect_identity is not None and dict(expect_identity) != identity:
        raise RetrieverError(
            f"retrieve.retrievers.{name}: index {block['index']} was replaced since this run was planned "
            f"({differences(expect_identity, identity)}); start a new run, or put the old index back"
        )
    if is_dense(block):
        encoder = Encoder(encoder_settings(block["encoder"]), device, block["encoder"].get("batch_size"))
        return DenseSearch(documents.data / "vectors.npy", documents.doc_ids, encoder, identity)
    analyzer = open_analyzer(identity["analyzer"])
    return BM25Search(documents.data / "bm25", documents.doc_ids, analyzer, identity)


def open_documents(name: str, settings: Mapping[str, Any]) -> LocalDocuments:
    """`retrievers.retriever.open_documents` for ``kind: local``.

    Raises:
        RetrieverError: no index there, or a damaged one.
    """
    return LocalDocuments(index_path(name, local_block(name, settings)))


def retriever_identity(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`retrievers.retriever.retriever_identity` for ``kind: local``.

    Raises:
        RetrieverError: no index; damaged; of another encoder or analyzer.
    """
    block = local_block(name, settings)
    return identity_of(name, block, checked_index(index_path(name, block)))


def local_block(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config block of ``kind: local``, its keys checked.

    Raises:
        RetrieverError: an unknown key; no index; both encoder and analyzer.
    """
    allowed = ("kind", "index", "analyzer", "encoder")
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in allowed:
            raise RetrieverError(f"retrieve.retrievers.{name}: {unknown('key', key, allowed)}")
    if not given.get("index"):
        raise RetrieverError(f"retrieve.retrievers.{name}: no index is named; give it a folder")
    if "encoder" in given and "analyzer" in given:
        raise RetrieverError(f"retrieve.retrievers.{name}: either analyzer (BM25) or encoder (dense), not both; make two of it")
    return given


def is_dense(block: Mapping[str, Any]) -> bool:
    """Whether a block searches with vectors."""
    return "encoder" in block


def index_path(name: str, block: Mapping[str, Any]) -> Path:
    """The folder that a block's ``index`` names.

    Raises:
        RetrieverError: it is no folder of this machine (``s3://``).
    """
    if "://" in str(block["index"]):
        raise RetrieverError(f"{name}: index {block['index']}: is no folder of this machine; give one, or s3://BUCKET/FOLDER")
    return Path(str(block["index"])).expanduser()


def read_index(path: Path) -> dict[str, Any]:
    """What index.json says.

    Raises:
        RetrieverError: there is none; not readable; of another format.
    """
    try:
        data = (path / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise RetrieverError(f"index {path}: there is no index; build it with: {BUILD}") from None
    except OSError as e:
        raise RetrieverError(f"index {path}: {INDEX} cannot be read ({type(e).__name__}); build it again: {BUILD}") from None
    return parse_index(path, data)


def parse_index(path: Path | str, data: bytes) -> dict[str, Any]:
    """`read_index` of the bytes of index.json, wherever they lay.

    Raises:
        RetrieverError: not readable; of another format.
    """
    try:
        entry: dict[str, Any] = json.loads(data.decode("utf-8"))
    except ValueError as e:
        raise RetrieverError(f"index {path}: {INDEX} cannot be read ({type(e).__name__}); build it again: {BUILD}") from None
    if entry.get("format") != FORMAT:
        raise RetrieverError(
            f"index {path}: has format {entry.get('format')!r}, this version reads {FORMAT}; build it again: {BUILD}"
        )
    return entry


def checked_index(path: Path) -> dict[str, Any]:
    """`read_index`, and every file of it there and whole.

    Raises:
        RetrieverError: as `read_index`; a file is missing or shorter than it was built.
    """
    entry = read_index(path)
    wrong = damage(path, entry)
    if wrong and read_index(path)["data"] != entry["data"]:  # replaced while it was looked at
        return checked_index(path)
    if wrong:
        raise RetrieverError(f"index {path}: is damaged: {wrong}; build it again: {BUILD}")
    return entry


def damage(path: Path, entry: Mapping[str, Any]) -> str | None:
    """What is wrong with the files of an index, or None. Sizes are compared, contents are not."""
    data = path / str(entry["data"])
    return damaged(entry, lambda name: (data / name).stat().st_size if (data / name).is_file() else None)


def damaged(entry: Mapping[str, Any], size_of: Callable[[str], int | None]) -> str | None:
    """`damage` of files wherever they lie: ``size_of`` gives a file's bytes, None where it is missing."""
    for name, size in entry["files"].items():
        found = size_of(name)
        if found != size:
            file = name.rpartition("/")[2]
            return f"{file} is missing" if found is None else f"{file} has {found} bytes, built with {size}"
    return None


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> str:
    """Where two identities differ: ``key: old then, new now``, joined by commas."""
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found.append(differences(old, new, f"{prefix}{key}."))
        elif old != new:
            found.append(f"{prefix}{key}: {old!r} then, {new!r} now")
    return ", ".join(part for part in found if part)


def identity_of(name: str, block: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the hits, checked against what the block asks for. Of an index with two fields, only this one's
    settings count: another encoder beside it changes nothing about BM25."""
    where = f"retrieve.retrievers.{name}: index {block['index']}"
    field = "dense" if is_dense(block) else "bm25"
    stored = entry["fields"][field]
    if stored is None:
        missing = "vectors" if field == "dense" else "BM25 field"
        raise RetrieverError(f"{where} has no {missing}; build it again with this config: {BUILD}")
    same = {"kind": "local", "field": field, "format": FORMAT, "corpus": entry["corpus"]}
    if field == "bm25":
        wanted = analyzer_name(block.get("analyzer", "english"))
        if stored["analyzer"] != wanted:
            raise RetrieverError(
                f"{where} was built with analyzer {stored['analyzer']!r}, the config asks for {wanted!r}; "
                f"set analyzer: {stored['analyzer']}, or build it again: {BUILD}"
            )
        return {**same, **stored}
    with named(f"retrieve.retrievers.{name}.encoder"):
        settings = encoder_settings(block["encoder"])
        encoder = encoder_identity(settings)
    if encoder != stored:
        differ = ", ".join(f"{k} {stored.get(k)!r} against {v!r}" for k, v in encoder.items() if v != stored.get(k))
        raise RetrieverError(
            f"{where} was built with encoder {entry['encoder_name']}, the config asks for {settings.model} "
            f"({differ}); set the encoder it was built with, or build it again: {BUILD}"
        )
    return {**same, "encoder": stored}
