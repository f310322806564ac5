"""Building a local index: documents, BM25 and vectors in one folder.

    INDEX/index.json          what it is; put last, in one rename
    INDEX/data-<hash>/        documents.arrow  doc_ids.arrow  duplicates.arrow  bm25/  vectors.npy

A build works in a folder of its own inside INDEX and becomes visible with ``index.json`` alone, so a kill leaves the
old index or the new one; a reader that has the old one open keeps its mapped files.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from retrievers.analyzer import VERSION, analyzer_name, open_analyzer
from retrievers.bm25 import K1, METHOD, B, build_bm25
from retrievers.corpus import DOCUMENTS, Paths, corpus_files, corpus_schema, joined, open_arrow, write_documents
from retrievers.dense import build_vectors
from retrievers.encoder import Encoder, encoder_identity, encoder_settings
from retrievers.local import FORMAT, INDEX, damage, index_path, is_dense, local_block, read_index
from retrievers.retriever import RetrieverError, named

_PIECE = 1024  # documents handed on at a time: how often progress is told, how long a sort by length is
_LOCK = ".lock"
VECTORS = "vectors.npy"
_PACKAGES = ("bm25s", "PyStemmer", "numpy", "pyarrow", "torch", "transformers", "sentence-transformers")

Progress = Callable[[str, int, int], None]


class IndexSummary(NamedTuple):
    """What `build_local_index` did. ``built`` is False where the same index was already there."""

    built: bool
    path: Path
    documents: int
    duplicates: int
    bm25: dict[str, Any] | None
    dense: dict[str, Any] | None
    content: str
    bytes: int


class Elsewhere(NamedTuple):
    """The whole index that the new one will replace, where it does not lie in the folder that is built in."""

    entry: Mapping[str, Any]
    """Its index.json."""
    fetch: Callable[[str, Path], None]
    """Copies a file of its data to a path."""


def local_indexes(retrievers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The local indexes that a config's ``retrieve.retrievers`` names: path -> ``bm25`` and ``dense`` arguments of
    `build_local_index`. Two retrievers with one index: one index with both fields. Other kinds are left out.

    Raises:
        RetrieverError: two retrievers want different analyzers or encoders of one index.
    """
    wanted: dict[str, dict[str, Any]] = {}
    owners: dict[tuple[str, str], str] = {}  # the first retriever that wants a field of an index
    for name, block in retrievers.items():
        if block.get("kind") != "local":
            continue
        settings = local_block(name, block)
        path = settings["index"] if str(settings["index"]).startswith("s3://") else str(index_path(name, settings))
        fields = wanted.setdefault(path, {"bm25": None, "dense": None})
        field = "dense" if is_dense(settings) else "bm25"
        value = dict(settings["encoder"]) if field == "dense" else {"analyzer": settings.get("analyzer", "english")}
        first = owners.setdefault((path, field), name)
        if fields[field] not in (None, value):
            what = "encoder" if field == "dense" else "analyzer"
            raise RetrieverError(
                f"retrieve.retrievers.{name}: another retriever wants index {path} otherwise: {first} and {name} share "
                f"the index {path} but not the {what}; give each its own"
            )
        fields[field] = value
    return wanted


def build_local_index(
    path: str | Path,
    corpus_paths: Paths,
    *,
    bm25: Mapping[str, Any] | None = None,
    dense: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    device: str = "cpu",
    elsewhere: Elsewhere | None = None,
) -> IndexSummary:
    """Build the index, or find that it is there already; another one at ``path`` is replaced.

    Args:
        path: the index's folder: absent, empty or an index.
        corpus_paths: a Parquet file, a folder of them, or a list.
        bm25: None (no BM25), or ``{"analyzer": name}``.
        dense: None (no vectors), or the config's ``encoder`` block.
        progress: called with what is being done ("read", "bm25", "dense"), documents done, documents in all.
        device: where the encoder runs.
        elsewhere: an index that counts as the one that is there already.

    Raises:
        RetrieverError: what is wrong with the corpus, the model or the folder; nothing is left behind then.
    """
    if bm25 is None and dense is None:
        raise RetrieverError(f"index {path}: neither bm25 nor dense is asked for, so there is nothing to build; name one")
    target = index_path("index", {"index": str(path)})
    analyzer = analyzer_name(bm25.get("analyzer", "english")) if bm25 is not None else None
    with named(f"index {path}: encoder"):
        encoder = encoder_settings(dense) if dense is not None else None
        encoded = encoder_identity(encoder) if encoder else None
    files = corpus_files(corpus_paths)
    schema = corpus_schema(files)
    fields: dict[str, Any] = {"bm25": None, "dense": encoded}
    if analyzer:
        fields["bm25"] = {"analyzer": analyzer, "analyzer_version": VERSION, "method": METHOD, "k1": K1, "b": B}
    report = progress or (lambda what, done, total: None)
    with _own(target) as (work, old):
        written = write_documents(files, schema, work, report)
        key = json.dumps({"format": FORMAT, "corpus": written.content, **fields}, sort_keys=True)
        data = f"data-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        if old and old["data"] == data and not damage(target, old):
            return _summary(False, target, old)
        if elsewhere and elsewhere.entry["data"] == data:
            return _summary(False, target, elsewhere.entry)
        documents = work / DOCUMENTS
        if analyzer:
            build_bm25(_passages(documents), open_analyzer(analyzer), written.documents, work / "bm25", report)
        vectors, dim = work / VECTORS, None
        if encoder:
            reused = _same_vectors(target, old, written.content, fields["dense"])
            if reused:
                shutil.copyfile(reused, vectors)
            elif elsewhere and elsewhere.entry["corpus"] == written.content and elsewhere.entry["fields"]["dense"] == encoded:
                elsewhere.fetch(VECTORS, vectors)
            else:
                build_vectors(_passages(documents), Encoder(encoder, device), written.documents, vectors, report)
            dim = int(np.load(vectors, mmap_mode="r").shape[1])
        entry = {
            "format": FORMAT,
            "data": data,
            "corpus": written.content,
            "documents": written.documents,
            "duplicates": written.duplicates,
            "columns": written.columns,
            "fields": fields,
            "dim": dim,
            "encoder_name": encoder.model if encoder else None,
            "files": {str(f.relative_to(work)): f.stat().st_size for f in sorted(work.rglob("*")) if f.is_file()},
            "versions": _versions(),
        }
        _publish(target, work, data, entry)
    return _summary(True, target, entry)


@contextmanager
def _own(target: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The folder to build in and what index.json says now, under a lock; sweeps what killed builds left.

    The lock is the kernel's: it goes with the process that holds it.
    """
    made = not target.exists()
    if target.exists() and not target.is_dir():
        raise RetrieverError(f"index {target}: there is a file of this name; give the index a folder")
    if not made and not (target / INDEX).exists() and any(not _ours(f.name) for f in target.iterdir()):
        raise RetrieverError(f"index {target}: the folder is not empty and not an index; give another folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        lock = open(target / _LOCK, "a+")  # noqa: SIM115 - closed below
    except OSError as e:
        raise RetrieverError(f"index {target}: cannot be written: {e.strerror}; give it another folder") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RetrieverError(f"index {target}: is being built by another process; wait for it") from None
        old = _readable(target)
        _sweep(target, keep=old["data"] if old else None)
        work = target / f".building-{os.getpid()}"
        work.mkdir()
        try:
            yield work, old
        except ConnectionError:  # of a corpus that is elsewhere
            raise
        except OSError as e:
            raise RetrieverError(
                f"index {target}: cannot be written: {e.strerror or e}; free space there, or give it another folder"
            ) from e
        finally:
            shutil.rmtree(work, ignore_errors=True)
            if not (target / INDEX).exists():
                (target / _LOCK).unlink(missing_ok=True)
                if made:
                    shutil.rmtree(target, ignore_errors=True)
    finally:
        lock.close()


def _readable(target: Path) -> dict[str, Any] | None:
    """index.json, None where there is none that can be read: it is about to be replaced anyway."""
    try:
        return read_index(target)
    except RetrieverError:
        return None


def _publish(target: Path, work: Path, data: str, entry: dict[str, Any]) -> None:
    """Everything to the disk, the data folder to its name, then index.json in one rename, then the old data away."""
    for name in entry["files"]:
        _sync(work / name)
    shutil.rmtree(target / data, ignore_errors=True)  # damaged, or left by a build killed right here
    work.rename(target / data)
    new = target / f"{INDEX}.new"
    new.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _sync(new)
    os.replace(new, target / INDEX)
    _sync(target)
    _sweep(target, keep=data)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _ours(name: str) -> bool:
    return name.startswith((".building-", "data-", f"{INDEX}.new")) or name == _LOCK


def _sweep(target: Path, keep: str | None) -> None:
    for path in target.iterdir():
        if path.name in (_LOCK, keep) or not _ours(path.name):
            continue
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _passages(documents: Path) -> Iterator[list[str]]:
    for batch in open_arrow(documents):
        for start in range(0, batch.num_rows, _PIECE):
            yield joined(batch.slice(start, _PIECE))


def _same_vectors(target: Path, old: dict[str, Any] | None, content: str, identity: dict[str, Any]) -> Path | None:
    """The vectors of the index that is being replaced, where they are those of this corpus and this encoder."""
    if old and old["corpus"] == content and old["fields"]["dense"] == identity and not damage(target, old):
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


def _summary(built: bool, target: Path, entry: Mapping[str, Any]) -> IndexSummary:
    size = sum(entry["files"].values())
    fields = entry["fields"]
    return IndexSummary(
        built, target, entry["documents"], entry["duplicates"], fields["bm25"], fields["dense"], entry["corpus"], size
    )
