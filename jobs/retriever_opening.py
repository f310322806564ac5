"""What workers open a retriever with: the config's block, and what is known of the run that they work for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.part import ConfigError
from jobs.retriever_config import Elastic, Local


def opened(retriever: Local | Elastic, index: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """The settings of a worker.

    An alias is resolved once per run: all workers, those that start late included, search the concrete index that the plan
    found (``index``: its identity). The requests that the job may have in flight are shared out among its ``workers``.

    Raises ConfigError: there are more workers than requests for them.
    """
    settings = retriever.model_dump()
    if isinstance(retriever, Elastic):
        if workers > retriever.max_in_flight:
            raise ConfigError(
                f"cluster.retrieve.workers: {workers} workers cannot share {retriever.max_in_flight} requests in flight; "
                "take fewer workers, or raise max_in_flight of the retriever"
            )
        settings |= {"index": index.get("index", retriever.index), "in_flight": retriever.max_in_flight // workers}
    return settings
