"""Builds local indexes: documents, BM25 and vectors in one folder.

    INDEX/index.json          description; written last, by an atomic rename
    INDEX/data-<hash>/        documents.arrow  doc_ids.arrow  duplicates.arrow  bm25/  vectors.npy

How a killed build, or two builds, leave the folder: `retrievers/local/build_folder.py`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.errors import RetrieverError
from retrievers.analysis.detection import SAMPLE, Told, corpus_analyzer, other_language
from retrievers.analyzer import ANALYZE_VERSION, analyzer_name, open_analyzer
from retrievers.corpora.builds import Built
from retrievers.corpora.corpus import DOCUMENTS, Written, open_arrow, sampled, write_documents
from retrievers.corpora.files import COLUMNS, Paths, Progress, corpus_files, corpus_schema, doc_id_type
from retrievers.encoder import encoder_identity, open_encoder
from retrievers.local.bm25 import bm25_formula, build_bm25, weighted_documents
from retrievers.local.build_folder import build_folder, publish
from retrievers.local.dense import build_vectors
from retrievers.local.fields import OF_THE_CORPUS, IndexFields
from retrievers.local.index import FORMAT, index_path, local_damage
from retrievers.retriever import error_context
from retrievers.settings import CorpusSettings

_BATCH_DOCUMENTS = 1024  # per call of analyzer and encoder, and between two calls of progress
VECTORS = "vectors.npy"
_PACKAGES = ("bm25s", "PyStemmer", "numpy", "pyarrow", "torch", "transformers", "FlagEmbedding")


class Elsewhere(NamedTuple):
    """The index that the new one will replace, if it is not in the folder of the build, but in object storage."""

    entry: Mapping[str, Any]
    """Its index.json."""
    fetch: Callable[[str, Path], None]
    """Copies a file of its data to a path."""


def build_local_index(
    path: str | Path,
    corpus_paths: Paths,
    fields: IndexFields,
    *,
    progress: Progress | None = None,
    device: str = "cpu",
    elsewhere: Elsewhere | None = None,
    columns: CorpusSettings = COLUMNS,
    replace: bool = True,
) -> Built:
    """Builds an index, unless the same one exists already; replaces another one at `path`.

    Args:
        path: Folder of the index: missing, empty or an index.
        corpus_paths: A Parquet file, a folder of them, or a list.
        fields: The fields to build.
        progress: Called with the step ("read", "bm25", "dense"), documents done, documents in all.
        device: Of the encoder: "cpu" or "cuda:0".
        elsewhere: An existing index that is not at `path`.
        columns: Of the corpus.
        replace: Whether it may replace an index; else one at `path` was built by another process meanwhile.

    Raises:
        RetrieverError: Corpus, model or folder cannot be used; no new files remain.
    """
    if fields == IndexFields():
        raise RetrieverError(
            "config-value", f"index {path}: neither bm25 nor dense is asked for, so there is nothing to build; name one"
        )
    target = index_path(str(path))
    encoder = fields.encoder
    with error_context(f"index {path}: encoder"):
        dense = encoder_identity(encoder) if encoder else None
    files = corpus_files(corpus_paths)
    schema = corpus_schema(files, columns)
    identities: dict[str, Any] = {"bm25": None, "dense": dense}
    report = progress or (lambda what, done, total: None)
    with build_folder(target) as (work, old):
        if old and not replace:
            raise RetrieverError("run-held", f"index {target}: another process has built it meanwhile; start again")
        written = write_documents(files, schema, work, report, columns)
        told = _analyzer(fields.analyzer, work / DOCUMENTS)
        looks = other_language(told.analyzer, sampled(work / DOCUMENTS, SAMPLE)) if told and told.why is None else None
        if told:
            if not fields.weights.text and written.without_title == written.documents:
                raise RetrieverError(
                    "corpus",
                    f"index {path}: fields.text is 0 and no document of the corpus has a title, so BM25 would find nothing; "
                    "give text a weight, or name corpus.title_column",
                )
            formula = bm25_formula(fields.similarity, fields.weights)
            identities["bm25"] = {"analyzer": told.analyzer, "analyzer_version": ANALYZE_VERSION, **formula}
        key = json.dumps({"format": FORMAT, "corpus": written.content, **identities}, sort_keys=True)
        data = f"data-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        if old and old["data"] == data and not local_damage(target, old):
            return _summary(False, old, written, None, told, looks)
        if elsewhere and elsewhere.entry["data"] == data:
            return _summary(False, elsewhere.entry, written, None, told, looks)
        documents = work / DOCUMENTS
        if told:
            analyzer = open_analyzer(told.analyzer, documents=True)
            weighted = (weighted_documents(part, fields.weights) for part in _parts(documents))
            build_bm25(weighted, analyzer, written.documents, work / "bm25", report, fields.similarity)
        vectors, dim = work / VECTORS, None
        if encoder:
            reused = _same_vectors(target, old, written.content, identities["dense"])
            if reused:
                shutil.copyfile(reused, vectors)
            elif elsewhere and elsewhere.entry["corpus"] == written.content and elsewhere.entry["fields"]["dense"] == dense:
                elsewhere.fetch(VECTORS, vectors)
            else:
                build_vectors(_parts(documents), open_encoder(encoder, device), written.documents, vectors, report)
            dim = int(np.load(vectors, mmap_mode="r").shape[1])
        entry = {
            "format": FORMAT,
            "data": data,
            "corpus": written.content,
            "documents": written.documents,
            "duplicates": written.duplicates,
            "columns": written.columns,
            "doc_id_type": doc_id_type(files, columns),
            "fields": identities,
            "language": told.why if told else None,
            "dim": dim,
            "encoder_name": encoder.model if encoder else None,
            "files": {str(f.relative_to(work)): f.stat().st_size for f in sorted(work.rglob("*")) if f.is_file()},
            "versions": _versions(),
        }
        publish(target, work, data, entry)
    return _summary(True, entry, written, elsewhere.entry if elsewhere else old, told, looks)


def _parts(documents: Path) -> Iterator[pa.RecordBatch]:
    for batch in open_arrow(documents):
        for start in range(0, batch.num_rows, _BATCH_DOCUMENTS):
            yield batch.slice(start, _BATCH_DOCUMENTS)


def _analyzer(wanted: str | None, documents: Path) -> Told | None:
    """Returns the analyzer of BM25, and why where the corpus tells it; None without BM25."""
    if wanted is None:
        return None
    if wanted != OF_THE_CORPUS:
        return Told(analyzer_name(wanted), None)
    return corpus_analyzer(sampled(documents, SAMPLE))


def _same_vectors(target: Path, old: dict[str, Any] | None, content: str, identity: dict[str, Any]) -> Path | None:
    """Returns the vectors of the index to be replaced if they are of the same corpus and encoder."""
    if old and old["corpus"] == content and old["fields"]["dense"] == identity and not local_damage(target, old):
        return target / str(old["data"]) / VECTORS
    return None


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _summary(
    built: bool,
    entry: Mapping[str, Any],
    written: Written,
    before: Mapping[str, Any] | None,
    told: Told | None,
    looks: str | None,
) -> Built:
    notes, bm25 = [], entry["fields"]["bm25"]
    if bm25 is not None and "fields" in bm25 and written.without_title:
        every = written.without_title == written.documents
        several = f"{written.without_title:,} documents have no title"
        notes.append("no document has a title, so fields.title changes nothing" if every else several)
    if told is not None and told.why is not None:
        notes.append(f"analyzer {told.analyzer}: {told.why}")
    if looks is not None:
        notes.append(f"warning: {looks}")
    replaced = before["documents"] if before and before["corpus"] != entry["corpus"] else None
    return Built(built, written.documents, written.without_text, replaced, notes)
