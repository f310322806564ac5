"""The verb `index`: build every local index that the config's retrievers name."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.config import Config, ConfigError, Retriever
from jobs.progress import Progress
from retrievers.local_build import build_local_index


def index(config: Config, corpus: Sequence[str], progress: Progress) -> list[str]:
    """Build each index from the corpus; the same corpus and settings again cost nothing. Returns a line for each."""
    folders: dict[str, list[tuple[str, Retriever]]] = {}
    for name, retriever in config.retrieve.retrievers.items():
        folders.setdefault(retriever.index, []).append((name, retriever))
    lines = []
    for folder, retrievers in folders.items():
        bm25 = _only("analyzer", folder, [(n, r.analyzer) for n, r in retrievers if r.encoder is None])
        encoder = _only("encoder", folder, [(n, r.encoder) for n, r in retrievers if r.encoder is not None])

        def show(phase: str, done: int, total: int, folder: str = folder) -> None:
            progress.phase(f"{folder}: {phase} {done:,}/{total:,}")

        built = build_local_index(
            folder,
            corpus,
            bm25={"analyzer": bm25} if bm25 else None,
            dense=encoder.model_dump() if encoder else None,  # type: ignore[attr-defined]
            progress=show,
        )
        done = "built" if built.built else "there already, nothing to do"
        lines.append(f"{folder}: {built.documents:,} documents, {done}")
    return lines


def _only(what: str, folder: str, wanted: list[tuple[str, object]]) -> object:
    """The one setting that all retrievers of an index share."""
    if not wanted:
        return None
    first, setting = wanted[0]
    for name, other in wanted[1:]:
        if other != setting:
            raise ConfigError(
                f"retrieve.retrievers: {first} and {name} share the index {folder} but not the {what}; give each its own"
            )
    return setting
