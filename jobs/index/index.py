"""The verb `index`: builds the indexes of the config's retrievers in a folder, on S3 or in Elasticsearch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.storage import remote
from cluster.storage.copies import work_folder
from jobs.config.config import Config
from jobs.index import actors as index_actors
from jobs.index.on_s3 import build_on_s3
from jobs.index.sources import passages
from jobs.terminal.live_display import LiveDisplay
from retrievers.corpora.files import Source, corpus_files, corpus_schema
from retrievers.corpora.filters import check_columns
from retrievers.elastic.build import ElasticSummary, build_elastic_index
from retrievers.elastic.fields import Fields, elastic_indexes
from retrievers.hybrid.settings import all_indexed
from retrievers.local.build import IndexSummary, build_local_index
from retrievers.local.fields import IndexFields, local_indexes
from retrievers.settings import EncoderSettings


def index(config: Config, corpus: Sequence[str], progress: LiveDisplay) -> list[dict[str, Any]]:
    """Builds every index of the config from the corpus, unless it exists with the same corpus and settings.

    Args:
        config: the job's config.
        corpus: paths and URLs of the corpus: Parquet files, documents (text, Markdown, HTML, PDF), and folders of either.
        progress: shows the progress.

    Returns:
        For each index `index` (its place), `documents` (their number), `without_text` (those whose text is null or blank),
        `replaced` (documents of the index of another corpus in whose place it is; None: of none) and `done` (it all in words).

    Raises:
        RetrieverError: the corpus cannot be read, or an index cannot be built.
    """
    retrievers = all_indexed(config.retrieve.retrievers)
    # refuse contradictions before any work
    local, elastic = local_indexes(retrievers), elastic_indexes(retrievers, list(config.retrieve.filters))
    with work_folder() as folder:
        prepared = passages(corpus, config.corpus, folder, _show(progress, "corpus"))
        result = _built(config, corpus, prepared.sources, local, elastic, progress)
    notes = "".join(f"; {note}" for note in prepared.notes)
    return [one | {"done": f"{one['done']}{notes}"} for one in result]


def _built(
    config: Config,
    corpus: Sequence[str],
    sources: Sequence[str | Source],
    local: Mapping[str, IndexFields],
    elastic: Mapping[tuple[str, str], Fields],
    progress: LiveDisplay,
) -> list[dict[str, Any]]:
    """Builds the indexes from Parquet files."""
    filters = list(config.retrieve.filters)
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
        encodes = mapping.dense and isinstance(mapping.encoder, EncoderSettings)
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
