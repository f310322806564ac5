"""The verb `index`: builds the indexes of the config's retrievers in a folder, on S3 or in Elasticsearch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cluster.errors import RetrieverError
from cluster.storage import object_at, open_file, open_storage, remote
from cluster.storage.copies import work_folder
from jobs.config.config import Config
from jobs.index import actors as index_actors
from jobs.index.on_s3 import build_on_s3
from jobs.terminal.live_display import LiveDisplay
from retrievers.corpora.files import Source, corpus_files, corpus_schema
from retrievers.corpora.filters import check_columns
from retrievers.elastic.build import ElasticSummary, build_elastic_index
from retrievers.elastic.fields import elastic_indexes
from retrievers.kinds import all_indexed
from retrievers.local.build import IndexSummary, build_local_index
from retrievers.local.fields import local_indexes


def index(config: Config, corpus: Sequence[str], progress: LiveDisplay) -> list[dict[str, Any]]:
    """Builds every index of the config from the corpus, unless it exists with the same corpus and settings.

    Args:
        config: the job's config.
        corpus: paths and URLs of the corpus's Parquet files or folders.
        progress: shows the progress.

    Returns:
        For each index `index` (its place), `documents` (their number), `without_text` (those whose text is null or blank),
        `replaced` (documents of the index of another corpus in whose place it is; None: of none) and `done` (it all in words).

    Raises:
        RetrieverError: the corpus cannot be read, or an index cannot be built.
    """
    retrievers, filters = all_indexed(config.retrieve.retrievers), list(config.retrieve.filters)
    local, elastic = local_indexes(retrievers), elastic_indexes(retrievers, filters)  # refuse contradictions before any work
    sources = [source for path in corpus for source in (corpus_objects(path) if remote(path) else [path])]
    if filters:
        check_columns(f"corpus {corpus[0]}", corpus_schema(corpus_files(sources), config.corpus).names, filters)
    result = []
    for folder, fields in local.items():
        show = _show(progress, folder)
        if remote(folder):
            built = build_on_s3(folder, sources, fields, show, config.corpus)
        else:
            built = build_local_index(folder, sources, fields, progress=show, columns=config.corpus)
        result.append({"index": folder, "documents": built.documents} | _done(built))
    for (_, alias), mapping in elastic.items():
        encodes = mapping.dense and mapping.encoder.loaded
        load = index_actors.ActorLoader(config) if encodes and index_actors.uses_actors(config) else None
        with work_folder() as work:
            show = _show(progress, alias)
            summary = build_elastic_index(mapping, sources, folder=work, progress=show, load=load, columns=config.corpus)
        result.append({"index": f"{alias} ({summary.name})", "documents": summary.documents} | _done(summary))
    return result


def _show(progress: LiveDisplay, what: str) -> Callable[[str, int, int], None]:
    return lambda phase, done, total: progress.phase(f"{what}: {phase} {done:,}/{total:,}")


def _done(summary: IndexSummary | ElasticSummary) -> dict[str, Any]:
    words = "built" if summary.built else "exists already, nothing to do"
    if summary.replaced is not None:
        words += f", in place of the index of another corpus ({summary.replaced:,} documents)"
    if summary.without_text:
        words += f"; {summary.without_text:,} documents have no text"
    if isinstance(summary, IndexSummary) and summary.bm25 is not None:
        if "fields" in summary.bm25 and summary.without_title:
            words += f"; {_untitled(summary)}"
        if summary.language is not None:
            words += f"; analyzer {summary.bm25['analyzer']}: {summary.language}"
    if summary.looks is not None:
        words += f"; warning: {summary.looks}"
    return {"done": words, "without_text": summary.without_text, "replaced": summary.replaced}


def _untitled(summary: IndexSummary) -> str:
    if summary.without_title == summary.documents:
        return "no document has a title, so fields.title changes nothing"
    return f"{summary.without_title:,} documents have no title"


def corpus_objects(url: str) -> list[str | Source]:
    """Returns the Parquet files of a corpus on S3, to be read as streams: an object, or all *.parquet below a folder.

    Raises:
        RetrieverError: there are none.
    """
    if object_at(url) is not None:
        return [_source(url)]
    storage = open_storage(url)
    found = [entry.key for entry in storage.list() if entry.key.endswith(".parquet")]
    found = [key for key in found if not key.rpartition("/")[2].startswith((".", "_"))]
    if not found:
        raise RetrieverError("corpus-missing", f"corpus {url}: no such object, and no *.parquet below it; correct --corpus")
    return [_source(storage.url(key)) for key in found]


def _source(url: str) -> Source:
    return Source(url, lambda: open_file(url))
