"""The verb `index`: build every index that the config's retrievers name, in a folder or in Elasticsearch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs import index_actors
from jobs.config import Config
from jobs.progress import Progress
from retrievers.elastic_build import build_elastic_index
from retrievers.elastic_fields import elastic_indexes
from retrievers.local_build import build_local_index, local_indexes


def index(config: Config, corpus: Sequence[str], progress: Progress) -> list[dict[str, Any]]:
    """Build each index from the corpus; the same corpus and settings again cost nothing. Says for each what was done."""
    blocks = {name: retriever.model_dump() for name, retriever in config.retrieve.retrievers.items()}
    here, there = local_indexes(blocks), elastic_indexes(blocks)  # what contradicts itself is refused before any work
    result = []
    for folder, fields in here.items():
        built = build_local_index(folder, corpus, **fields, progress=_show(progress, folder))
        result.append({"index": folder, "documents": built.documents, "done": _done(built.built)})
    for (_, alias), wanted in there.items():
        load = index_actors.Actors(config) if wanted.dense and index_actors.wanted(config) else None
        made = build_elastic_index(wanted, corpus, progress=_show(progress, alias), load=load)
        result.append({"index": f"{alias} ({made.name})", "documents": made.documents, "done": _done(made.built)})
    return result


def _show(progress: Progress, what: str) -> Callable[[str, int, int], None]:
    return lambda phase, done, total: progress.phase(f"{what}: {phase} {done:,}/{total:,}")


def _done(built: bool) -> str:
    return "built" if built else "there already, nothing to do"
