"""Builds local indexes: documents, BM25 and vectors in one folder.

    INDEX/index.json          description; written last, by an atomic rename
    INDEX/data-<hash>/        documents.arrow  doc_ids.arrow  bm25/  vectors.npy

How a killed build, or two builds, leave the folder: `retrievers/local/build_folder.py`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import RetrieverError
from retrievers.analysis.detection import SAMPLE, corpus_analyzer, other_language
from retrievers.analyzer import ANALYZE_VERSION, open_analyzer
from retrievers.corpora.builds import BuildInputs, Built
from retrievers.corpora.corpus import DOCUMENTS, sampled, slices, write_documents
from retrievers.corpora.files import COLUMNS, Paths, Progress, corpus_files, corpus_schema, doc_id_type
from retrievers.encoder import encoder_identity, open_encoder
from retrievers.kinds import RetrieverSettings
from retrievers.local.bm25 import bm25_formula, build_bm25, weighted_documents
from retrievers.local.build_folder import build_folder, publish
from retrievers.local.dense import build_vectors
from retrievers.local.fields import OF_THE_CORPUS, IndexFields, local_indexes
from retrievers.local.index import FORMAT, index_path, local_damage
from retrievers.retriever import error_context
from retrievers.settings import CorpusSettings, FieldWeights

VECTORS = "vectors.npy"


class Elsewhere(NamedTuple):
    """The index that the new one will replace, if it is not in the folder of the build, but in object storage."""

    entry: Mapping[str, Any]
    """Its index.json."""
    fetch: Callable[[str, Path], None]
    """Copies a file of its data to a path."""


class FolderBuild:
    """An index in a folder; `retrievers.corpora.builds.IndexBuild`."""

    encodes = False

    def __init__(self, folder: str, fields: IndexFields) -> None:
        self.name = self.place = self.folder = folder
        self._fields = fields

    def build(self, given: BuildInputs) -> Built:
        """Builds the index in its folder."""
        return self.build_in(self.folder, given)

    def build_in(self, folder: str | Path, given: BuildInputs, elsewhere: Elsewhere | None = None) -> Built:
        """Builds the index in another folder of this machine; `elsewhere` is the one that it will replace."""
        return build_local_index(
            folder, list(given.sources), self._fields, progress=given.progress, elsewhere=elsewhere, columns=given.columns,
            replace=given.replace,
        )  # fmt: skip


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> list[FolderBuild]:
    """Returns the indexes of local retrievers; raises as `local_indexes`."""
    return [FolderBuild(folder, fields) for folder, fields in local_indexes(retrievers).items()]


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
    """Builds an index, unless the same one exists already; replaces another one at `path`. After an error no new files remain.

    The encoder runs on `device`, "cpu" or "cuda:0"; `elsewhere` is an index that is not at `path`, and that the new one will
    replace. Other arguments are those of `BuildInputs`.
    """
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
        analyzer, notes = fields.analyzer, list[str]()
        if analyzer:
            sample = sampled(work / DOCUMENTS, SAMPLE)
            if fields.analyzer == OF_THE_CORPUS:
                analyzer, why, _ = corpus_analyzer(sample)
                notes.append(f"analyzer {analyzer}: {why}")
            elif looks := other_language(analyzer, sample):
                notes.append(f"warning: {looks}")
            if not fields.weights.text and written.without_title == written.documents:
                words = "fields.text is 0 and no document of the corpus has a title, so BM25 would find nothing"
                remedy = "give text a weight, or name corpus.title_column"
                raise RetrieverError("corpus", f"index {path}: {words}; {remedy}")
            formula = bm25_formula(fields.similarity, fields.weights)
            identities["bm25"] = {"analyzer": analyzer, "analyzer_version": ANALYZE_VERSION, **formula}
            if fields.weights != FieldWeights() and written.without_title == written.documents:
                notes.append("no document has a title, so fields.title changes nothing")
            elif fields.weights != FieldWeights() and written.without_title:
                notes.append(f"{written.without_title:,} documents have no title")
        key = json.dumps({"format": FORMAT, "corpus": written.content, **identities}, sort_keys=True)
        data = f"data-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        there = elsewhere.entry if elsewhere else None if old is None or local_damage(target, old) else old
        if there and there["data"] == data:
            return Built(False, written.documents, written.without_text, None, notes)
        if analyzer:
            weighted = (weighted_documents(part, fields.weights) for part in slices(work / DOCUMENTS))
            build_bm25(
                weighted, open_analyzer(analyzer, documents=True), written.documents, work / "bm25", report, fields.similarity
            )
        vectors = work / VECTORS
        if encoder:
            if not there or (there["corpus"], there["fields"]["dense"]) != (written.content, dense):
                build_vectors(slices(work / DOCUMENTS), open_encoder(encoder, device), written.documents, vectors, report)
            elif elsewhere:
                elsewhere.fetch(VECTORS, vectors)
            else:
                shutil.copyfile(target / str(there["data"]) / VECTORS, vectors)
        entry = {
            "format": FORMAT,
            "data": data,
            "corpus": written.content,
            "documents": written.documents,
            "doc_id_type": doc_id_type(files, columns),
            "fields": identities,
            "encoder_name": encoder.model if encoder else None,
            "files": {str(f.relative_to(work)): f.stat().st_size for f in sorted(work.rglob("*")) if f.is_file()},
        }
        publish(target, work, data, entry)
    before = elsewhere.entry if elsewhere else old
    replaced = before["documents"] if before and before["corpus"] != written.content else None
    return Built(True, written.documents, written.without_text, replaced, notes)
