"""Opens local indexes: BM25 or dense search, and the texts of documents, from memory-mapped files.

For up to some millions of documents on one machine; `local/build.py` describes the files.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from retrievers.analyzer import ANALYZE_VERSION, NAMES, open_analyzer
from retrievers.corpora.corpus import DOC_IDS, DOCUMENTS, joined, open_arrow, rows_at, rows_of
from retrievers.encoder import checked_encoder, open_encoder
from retrievers.local.bm25 import BM25Search
from retrievers.local.dense import DenseSearch
from retrievers.local.settings import LocalSettings
from retrievers.retriever import BUILD, PAGE, SOURCE, Alive, Retriever, check_built, check_planned, no_heartbeat, place_of
from retrievers.settings import FieldWeights

FORMAT = 1  # version of the files; an index of another version is refused

INDEX = "index.json"
SOURCE_NOTE = "source.json"  # beside INDEX: which files it was built from, if that is known; no part of the index
MISSING = f"build it with: {BUILD} --corpus PATH, or name its corpus in the config (corpus.path)"


class LocalDocuments:
    """The documents of a local index; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        entry = read_intact_index(path)
        try:
            self._open(path / str(entry["data"]))
        except FileNotFoundError:  # replaced between reading index.json and opening the files: read it again
            entry = read_intact_index(path)
            self._open(path / str(entry["data"]))
        self.entry: dict[str, Any] = entry
        self.data = path / str(entry["data"])

    def _open(self, data: Path) -> None:
        self._batches = open_arrow(data / DOCUMENTS)
        self.doc_ids: pa.StringArray | pa.LargeStringArray = open_arrow(data / DOC_IDS)[0].column(0)

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        """Returns the indexed text of each document, as `DocumentStore.texts`. Cost: a binary search per document."""
        return joined(self._read(doc_ids, ["title", "text"]))

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        columns = [name for name in (SOURCE, PAGE) if name in self._batches[0].schema.names]
        return list(map(place_of, self._read(doc_ids, columns).to_pylist())) if columns else [""] * len(doc_ids)

    def _read(self, doc_ids: Sequence[str], columns: list[str]) -> pa.Table:
        rows = rows_of(self.doc_ids, doc_ids)
        if None in rows:
            remedy = "build the index again from the corpus that it was built from"
            raise RetrieverError("index-other", f"index {self.path}: no document {doc_ids[rows.index(None)]!r}; {remedy}")
        return rows_at(self._batches, np.array(rows, dtype=np.int64), columns)

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        return [row is not None for row in rows_of(self.doc_ids, doc_ids)]

    def some(self, count: int) -> list[str]:
        size = len(self.doc_ids)
        rows = sorted({place * size // count for place in range(count)}) if size > count else range(size)
        return self.texts(self.doc_ids.take(pa.array(rows, pa.int64())).to_pylist())


def open_retriever(
    name: str, settings: LocalSettings, device: str = "cpu", expect_identity: Mapping[str, Any] | None = None
) -> Retriever:
    """Returns dense search where the settings have an encoder, else BM25; see `retrievers.retriever.open_retriever`."""
    documents = LocalDocuments(index_path(settings.index))
    identity = index_identity(name, settings, documents.entry, patient=expect_identity is not None)
    check_planned(f"retrieve.retrievers.{name}: index {settings.index}", expect_identity, identity)
    if settings.encoder is not None:
        encoder = open_encoder(settings.encoder, device, patient=expect_identity is not None)
        return DenseSearch(documents.data / "vectors.npy", documents.doc_ids, encoder, identity)
    analyzer = open_analyzer(identity["analyzer"])
    return BM25Search(documents.data / "bm25", documents.doc_ids, analyzer, identity)


def open_documents(name: str, settings: LocalSettings, *, patient: bool = False) -> LocalDocuments:
    """Returns the documents of an index; `name` and `patient` are not used. See `retrievers.retriever.open_documents`."""
    return LocalDocuments(index_path(settings.index))


def retriever_identity(name: str, settings: LocalSettings) -> dict[str, Any]:
    """Returns `index_identity`, after a check of the index's files; see `retrievers.retriever.retriever_identity`."""
    return index_identity(name, settings, read_intact_index(index_path(settings.index)))


def retriever_facts(name: str, settings: LocalSettings, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns facts for the run's record that are no part of the identity; see `retrievers.retriever.retriever_facts`."""
    return {"documents": read_index(index_path(settings.index))["documents"]}


def index_path(index: str) -> Path:
    """Returns the folder of an index on this machine."""
    if "://" in index:
        raise RetrieverError("storage-refused", f"index {index}: is not a local folder; give one, or s3://BUCKET/FOLDER")
    return Path(index).expanduser()


def read_index(path: Path) -> dict[str, Any]:
    """Returns the content of an index's index.json."""
    try:
        data = (path / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise RetrieverError("index-missing", f"index {path}: there is no index; {MISSING}") from None
    except OSError as e:
        raise _unreadable(path, e) from None
    return parse_index(path, data)


def parse_index(path: Path | str, data: bytes) -> dict[str, Any]:
    """Returns the content of an index.json, of its bytes; `path` is the folder or URL of the index, for messages."""
    try:
        entry: dict[str, Any] = json.loads(data.decode("utf-8"))
    except ValueError as e:
        raise _unreadable(path, e) from None
    if entry.get("format") != FORMAT:
        problem = f"has format {entry.get('format')!r}, this version reads {FORMAT}"
        raise RetrieverError("index-other", f"index {path}: {problem}; build it again: {BUILD}")
    return entry


def _unreadable(path: Path | str, error: Exception) -> RetrieverError:
    problem = f"{INDEX} cannot be read ({type(error).__name__}); build it again: {BUILD}"
    return RetrieverError("index-other", f"index {path}: {problem}")


def read_intact_index(path: Path) -> dict[str, Any]:
    """Returns `read_index` after a check of the index's files: none is missing or has another size than at the build."""
    entry = read_index(path)
    wrong = local_damage(path, entry)
    if wrong and read_index(path)["data"] != entry["data"]:  # replaced during the check
        return read_intact_index(path)
    if wrong:
        raise RetrieverError("index-other", f"index {path}: is damaged: {wrong}; build it again: {BUILD}")
    return entry


def local_damage(path: Path, entry: Mapping[str, Any]) -> str | None:
    """Returns `find_damage` of a local index."""
    data = path / str(entry["data"])
    return find_damage(entry, lambda name: (data / name).stat().st_size if (data / name).is_file() else None)


def find_damage(entry: Mapping[str, Any], size_of: Callable[[str], int | None]) -> str | None:
    """Returns the first fault of the files in index.json, by their sizes; `size_of` returns None for a missing one."""
    for name, size in entry["files"].items():
        actual = size_of(name)
        if actual != size:
            file = name.rpartition("/")[2]
            return f"{file} is missing" if actual is None else f"{file} has {actual} bytes, built with {size}"
    return None


def index_identity(name: str, settings: LocalSettings, entry: Mapping[str, Any], *, patient: bool = False) -> dict[str, Any]:
    """Returns the values that determine the hits of a retriever, after a check of its index against its settings.

    They are of the searched field alone. `entry` is the content of index.json; `patient`: see `open_encoder`.
    """
    where = f"retrieve.retrievers.{name}: index {settings.index}"
    field = "bm25" if settings.encoder is None else "dense"
    stored = entry["fields"][field]
    if stored is None:
        missing = "vectors" if field == "dense" else "BM25 field"
        raise RetrieverError("index-other", f"{where} has no {missing}; build it again with this config: {BUILD}")
    common = {"kind": "local", "field": field, "format": FORMAT, "corpus": entry["corpus"]}
    if settings.encoder is None:
        analyzer = stored["analyzer"] if settings.analyzer is None else NAMES[settings.analyzer]
        if stored["analyzer"] == analyzer and (version := stored["analyzer_version"]) != ANALYZE_VERSION:
            problem = f"{where} has version {version} of its analyzer, this program {ANALYZE_VERSION}"
            raise RetrieverError("index-other", f"{problem}; build it again: {BUILD}")
        built = {"similarity": {key: stored[key] for key in ("k1", "b")}, "fields": FieldWeights().model_dump()} | stored
        constants, weights = settings.bm25_constants.model_dump(), settings.field_weights.model_dump()
        check_built(where, built, {"analyzer": analyzer, "similarity": constants, "fields": weights})
        return {**common, **stored}
    checked_encoder(name, where, settings.encoder, stored, entry["encoder_name"], patient=patient)
    return {**common, "encoder": stored}
