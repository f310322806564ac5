"""The verb `index`: build every local index that the config's retrievers name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.config import Config
from jobs.progress import Progress
from retrievers.local_build import build_local_index, local_indexes


def index(config: Config, corpus: Sequence[str], progress: Progress) -> list[dict[str, Any]]:
    """Build each index from the corpus; the same corpus and settings again cost nothing. Says for each what was done."""
    blocks = {name: retriever.model_dump() for name, retriever in config.retrieve.retrievers.items()}
    result = []
    for folder, fields in local_indexes(blocks).items():

        def show(phase: str, done: int, total: int, folder: str = folder) -> None:
            progress.phase(f"{folder}: {phase} {done:,}/{total:,}")

        built = build_local_index(folder, corpus, **fields, progress=show)
        done = "built" if built.built else "there already, nothing to do"
        result.append({"index": folder, "documents": built.documents, "done": done})
    return result
