"""Builds local indexes: documents, BM25 and vectors in one folder.

    INDEX/index.json          description; written last, by an atomic rename
    INDEX/data-<hash>/        documents.arrow  doc_ids.arrow  bm25/  vectors.npy

A build writes to a temporary folder in INDEX and becomes visible with the rename of `index.json`, so that a killed build
leaves the old index or the new one. Readers that have the old index open keep its mapped files. A lock, which the kernel
releases when a process ends, keeps other builds out.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import RetrieverError
from retrievers.analysis.detection import SAMPLE, corpus_analyzer, other_language
from retrievers.analyzer import ANALYZE_VERSION, NAMES, open_analyzer
from retrievers.corpora.builds import BuildInputs, IndexBuild, shared_indexes
from retrievers.corpora.corpus import Built, read_corpus
from retrievers.corpora.files import COLUMNS, Paths, Progress
from retrievers.encoder import encoder_identity, open_encoder
from retrievers.kinds import RetrieverSettings
from retrievers.local.bm25 import METHOD, build_bm25
from retrievers.local.dense import build_vectors
from retrievers.local.index import FORMAT, INDEX, SOURCE_NOTE, index_path, local_damage, read_index
from retrievers.local.settings import LocalSettings
from retrievers.retriever import error_context
from retrievers.settings import AnyEncoderSettings, Bm25Settings, CorpusSettings, FieldWeights

OF_THE_CORPUS = "of the corpus"  # in place of an analyzer: the one for the language that the corpus is in


class IndexFields(NamedTuple):
    """The fields of a local index: BM25 with an analyzer, vectors of an encoder; None without the field."""

    analyzer: str | None = None
    encoder: AnyEncoderSettings | None = None
    similarity: Bm25Settings = Bm25Settings()
    weights: FieldWeights = FieldWeights()


def local_indexes(retrievers: Mapping[str, RetrieverSettings]) -> dict[str, IndexFields]:
    """Returns the fields of each local index of a config's `retrieve.retrievers`, by its path; raises as `shared_indexes`.

    Of two retrievers with BM25 that share an index one may leave the analyzer to the other.
    """
    indexes = shared_indexes(retrievers, LocalSettings, _path, _differing)
    return {path: _fields([*sharing.values()]) for path, sharing in indexes.items()}


def _path(settings: LocalSettings) -> str:
    return settings.index if settings.index.startswith("s3://") else str(index_path(settings.index))


def _differing(first: LocalSettings, second: LocalSettings) -> str | None:
    if (first.encoder is None) != (second.encoder is None):
        return None
    if first.encoder != second.encoder:
        return "encoder"
    if first.analyzer and second.analyzer and NAMES[first.analyzer] != NAMES[second.analyzer]:
        return "analyzer"
    if first.bm25_constants != second.bm25_constants:
        return "similarity"
    return "fields" if first.field_weights != second.field_weights else None


def _fields(sharing: list[LocalSettings]) -> IndexFields:
    encoder = next((one.encoder for one in sharing if one.encoder is not None), None)
    bm25 = [one for one in sharing if one.encoder is None]
    if not bm25:
        return IndexFields(encoder=encoder)
    named = next((NAMES[one.analyzer] for one in bm25 if one.analyzer), OF_THE_CORPUS)
    return IndexFields(named, encoder, bm25[0].bm25_constants, bm25[0].field_weights)


VECTORS = "vectors.npy"


class Elsewhere(NamedTuple):
    """The index that the new one will replace, if it is not in the folder of the build, but in object storage."""

    entry: Mapping[str, Any]  # its index.json
    fetch: Callable[[str, Path], None]  # copies a file of its data to a path


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> list[IndexBuild]:
    """Returns the indexes of local retrievers; raises as `local_indexes`."""
    indexes = local_indexes(retrievers).items()
    return [IndexBuild(folder, folder, partial(_build, folder, fields), folder=folder) for folder, fields in indexes]


def _build(
    own: str, fields: IndexFields, given: BuildInputs, folder: Path | None = None, elsewhere: Elsewhere | None = None
) -> Built:
    return build_local_index(
        folder or own, given.sources, fields, progress=given.progress, elsewhere=elsewhere, columns=given.columns,
        replace=given.replace,
    )  # fmt: skip


def build_local_index(
    path: str | Path,
    corpus_paths: Paths,
    fields: IndexFields,
    *,
    progress: Progress = lambda phase, done, total: None,
    elsewhere: Elsewhere | None = None,
    columns: CorpusSettings = COLUMNS,
    replace: bool = True,
) -> Built:
    """Builds an index, unless the same one exists already; replaces another one at `path`. After an error no new files remain.

    `elsewhere` is an index that is not at `path`, which the new one will replace. Other arguments are those of `BuildInputs`.
    """
    target = index_path(str(path))
    encoder = fields.encoder
    with error_context(f"index {path}: encoder"):
        dense = encoder_identity(encoder) if encoder else None
    identities: dict[str, Any] = {"bm25": None, "dense": dense}
    with build_folder(target) as (work, old):
        if old and not replace:
            raise RetrieverError("run-held", f"index {target}: another process has built it meanwhile; start again")
        corpus = read_corpus(corpus_paths, work, progress, columns)
        analyzer, notes = fields.analyzer, list[str]()
        if analyzer:
            sample = corpus.sample(SAMPLE)
            if fields.analyzer == OF_THE_CORPUS:
                analyzer, why, _ = corpus_analyzer(sample)
                notes.append(f"analyzer {analyzer}: {why}")
            elif looks := other_language(analyzer, sample):
                notes.append(f"warning: {looks}")
            if not fields.weights.text and corpus.without_title == corpus.documents:
                problem = "fields.text is 0 and no document of the corpus has a title, so BM25 would find nothing"
                remedy = "give text a weight, or name corpus.title_column"
                raise RetrieverError("corpus", f"index {path}: {problem}; {remedy}")
            constants = {"method": METHOD, **fields.similarity.model_dump()}
            identities["bm25"] = {"analyzer": analyzer, "analyzer_version": ANALYZE_VERSION, **constants}
            if fields.weights != FieldWeights():  # weights of 1 are left out
                identities["bm25"]["fields"] = fields.weights.model_dump()
                if corpus.without_title == corpus.documents:
                    notes.append("no document has a title, so fields.title changes nothing")
                elif corpus.without_title:
                    notes.append(f"{corpus.without_title:,} documents have no title")
        key = json.dumps({"format": FORMAT, "corpus": corpus.content, **identities}, sort_keys=True)
        data = f"data-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        there = elsewhere.entry if elsewhere else None if old is None or local_damage(target, old) else old
        if there and there["data"] == data:
            return corpus.there(notes)
        if analyzer:
            analyze = open_analyzer(analyzer, documents=True)
            build_bm25(corpus, analyze, work / "bm25", progress, fields.similarity, fields.weights)
        vectors = work / VECTORS
        if encoder:
            if not there or (there["corpus"], there["fields"]["dense"]) != (corpus.content, dense):
                build_vectors(corpus, open_encoder(encoder), vectors, progress)
            elif elsewhere:
                elsewhere.fetch(VECTORS, vectors)
            else:
                shutil.copyfile(target / str(there["data"]) / VECTORS, vectors)
        entry = {
            "format": FORMAT,
            "data": data,
            "corpus": corpus.content,
            "documents": corpus.documents,
            "fields": identities,
            "encoder_name": encoder.model if encoder else None,
            "files": {str(f.relative_to(work)): f.stat().st_size for f in sorted(work.rglob("*")) if f.is_file()},
        }
        publish(target, work, data, entry)
    before = elsewhere.entry if elsewhere else old
    replaced = before["documents"] if before and before["corpus"] != corpus.content else None
    return corpus.built(replaced=replaced, notes=notes)


_LOCK = ".lock"


@contextmanager
def build_folder(target: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yields a temporary folder and the current index.json, under a lock; removes the files of killed builds."""
    is_new = not target.exists()
    if target.exists() and not target.is_dir():
        raise RetrieverError("storage-refused", f"index {target}: there is a file of this name; give the index a folder")
    if not is_new and not (target / INDEX).exists() and any(not _is_index_file(f.name) for f in target.iterdir()):
        problem = f"the folder has other files and no index; name another one, such as {target}/mine"
        raise RetrieverError("storage-refused", f"index {target}: {problem}")
    try:
        target.mkdir(parents=True, exist_ok=True)
        lock = open(target / _LOCK, "a+")  # noqa: SIM115 - closed below
    except OSError as e:
        problem = f"cannot be written: {e.strerror}; give it another folder"
        raise RetrieverError("storage-refused", f"index {target}: {problem}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.path.samestat(os.fstat(lock.fileno()), os.stat(target / _LOCK))  # else a build that failed removed it
        except OSError:
            held = False
        if not held:
            raise RetrieverError("run-held", f"index {target}: is being built by another process; wait for it")
        old = None
        with suppress(RetrieverError):  # missing, or damaged: it will be replaced
            old = read_index(target)
        _remove_others(target, keep=old["data"] if old else None)
        work = target / f".building-{os.getpid()}"
        work.mkdir()
        try:
            yield work, old
        except ConnectionError:  # of a corpus in object storage
            raise
        except OSError as e:
            problem = f"cannot be written: {e.strerror or e}; free space there, or give it another folder"
            raise RetrieverError("storage-refused", f"index {target}: {problem}") from e
        finally:
            shutil.rmtree(work, ignore_errors=True)
            if not (target / INDEX).exists():
                _remove_others(target, keep=None)
                (target / _LOCK).unlink(missing_ok=True)
                if is_new:
                    with suppress(OSError):  # another build may have begun there
                        target.rmdir()
    finally:
        lock.close()


def is_being_built(path: Path) -> bool:
    """Returns True if a process builds the index in this folder; one that was killed does not."""
    try:
        with open(path / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def publish(target: Path, work: Path, data: str, entry: dict[str, Any]) -> None:
    """Syncs all files, renames the data folder, replaces index.json atomically, and removes the old data."""
    for name in entry["files"]:
        _sync(work / name)
    shutil.rmtree(target / data, ignore_errors=True)  # damaged, or of a build that was killed at this point
    work.rename(target / data)
    new = target / f"{INDEX}.new"
    new.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _sync(new)
    os.replace(new, target / INDEX)
    _sync(target)
    _remove_others(target, keep=data)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_index_file(name: str) -> bool:
    return name.startswith((".building-", "data-", f"{INDEX}.new")) or name in (_LOCK, SOURCE_NOTE)


def _remove_others(target: Path, keep: str | None) -> None:
    for path in target.iterdir():
        if path.name in (_LOCK, keep) or not _is_index_file(path.name):
            continue
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
