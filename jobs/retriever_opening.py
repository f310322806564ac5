"""What workers open a retriever with: the config's block, and what is known of the run that they work for.

The requests that Elasticsearch may get from the whole job at a time (``max_in_flight``) are shared out among all workers
that ask it: those that retrieve, and those that rerank if the documents' texts are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cluster.session import Pool, PoolWish
from jobs.config import Config
from jobs.part import ConfigError
from jobs.retriever_config import Elastic, Local


def opened(retriever: Local | Elastic, index: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """The settings of a worker, one of so many that share the requests in flight.

    An alias is resolved once per run: all workers, those that start late included, search the concrete index that the plan
    found (``index``: its identity).
    """
    settings = retriever.model_dump()
    if isinstance(retriever, Elastic):
        share = max(1, retriever.max_in_flight // workers)
        settings |= {"index": index.get("index", retriever.index), "in_flight": share}
    return settings


def asking(config: Config) -> list[str]:
    """The pools whose workers ask Elasticsearch. Texts to rerank come from the first retriever's index."""
    elastic = [isinstance(retriever, Elastic) for retriever in config.retrieve.retrievers.values()]
    return ["retrieve"] * any(elastic) + ["rerank"] * (elastic[0] and config.rerank.kind != "none")


def capped(config: Config, wanted: Mapping[str, PoolWish]) -> dict[str, PoolWish]:
    """The wishes; a pool that is sized to what is there has no more workers than there are requests for."""
    names = asking(config)
    unset = [name for name in names if wanted[name].workers is None]
    left = _requests(config) - sum(wanted[name].workers or 0 for name in names)
    return {**wanted, **{name: replace(wanted[name], most=max(1, left // len(unset))) for name in unset}}


def check_shares(config: Config, pools: Mapping[str, Pool]) -> None:
    """ConfigError where there are more workers than requests for them."""
    names = asking(config)
    workers = sum(pools[name].workers for name in names)
    if names and workers > _requests(config):
        raise ConfigError(
            f"cluster: {workers} workers cannot share {_requests(config)} requests in flight "
            f"({', '.join(f'{name} {pools[name].workers}' for name in names)}); "
            "take fewer workers, or raise max_in_flight of the retrievers"
        )


def _requests(config: Config) -> int:
    """In flight at a time: of the retriever that may have the fewest."""
    found = [one.max_in_flight for one in config.retrieve.retrievers.values() if isinstance(one, Elastic)]
    return min(found, default=0)
