"""The verb `index`: build every index that the config's retrievers name: in a folder, on S3, in Elasticsearch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cluster.copies import work_folder
from cluster.storage import object_at, open_file, open_storage, remote
from jobs import index_actors
from jobs.config import Config
from jobs.index_on_s3 import build_on_s3
from jobs.progress import Progress
from retrievers.corpus import Source
from retrievers.elastic_build import build_elastic_index
from retrievers.elastic_fields import elastic_indexes
from retrievers.local_build import build_local_index, local_indexes
from retrievers.retriever import RetrieverError


def index(config: Config, corpus: Sequence[str], progress: Progress) -> list[dict[str, Any]]:
    """Build each index from the corpus; the same corpus and settings again cost nothing. Says for each what was done."""
    blocks = {name: retriever.model_dump() for name, retriever in config.retrieve.retrievers.items()}
    here, there = local_indexes(blocks), elastic_indexes(blocks)  # what contradicts itself is refused before any work
    sources = [source for path in corpus for source in (corpus_objects(path) if remote(path) else [path])]
    result = []
    for folder, fields in here.items():
        show = _show(progress, folder)
        if remote(folder):
            built = build_on_s3(folder, sources, fields, show)
        else:
            built = build_local_index(folder, sources, **fields, progress=show)
        result.append({"index": folder, "documents": built.documents, "done": _done(built.built)})
    for (_, alias), wanted in there.items():
        load = index_actors.Actors(config) if wanted.dense and index_actors.wanted(config) else None
        with work_folder() as work:
            made = build_elastic_index(wanted, sources, folder=work, progress=_show(progress, alias), load=load)
        result.append({"index": f"{alias} ({made.name})", "documents": made.documents, "done": _done(made.built)})
    return result


def _show(progress: Progress, what: str) -> Callable[[str, int, int], None]:
    return lambda phase, done, total: progress.phase(f"{what}: {phase} {done:,}/{total:,}")


def _done(built: bool) -> str:
    return "built" if built else "there already, nothing to do"


def corpus_objects(url: str) -> list[str | Source]:
    """The Parquet files of a corpus on S3, to be read as streams: an object, or all *.parquet below a folder."""
    if object_at(url) is not None:
        return [_source(url)]
    storage = open_storage(url)
    found = [entry.key for entry in storage.list() if entry.key.endswith(".parquet")]
    found = [key for key in found if not key.rpartition("/")[2].startswith((".", "_"))]
    if not found:
        raise RetrieverError(f"corpus {url}: no such object, and no *.parquet below it; correct --corpus")
    return [_source(storage.url(key)) for key in found]


def _source(url: str) -> Source:
    return Source(url, lambda: open_file(url))
