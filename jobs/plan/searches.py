"""How many searches a query may need."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.config.config import Config
from jobs.tables import ORIGINAL


def searches_of_query(config: Config, retriever: str, texts: Mapping[str, int]) -> int:
    """Returns the most searches of a query by a retriever.

    Args:
        config: the job's config.
        retriever: its name.
        texts: strategy -> its lists of a query and retriever, at most.
    """
    routed = [strategy for strategy in texts if retriever in config.retrieve.route(strategy)]
    if not config.retrieve.retrievers[retriever].together:
        every = sum(texts[strategy] for strategy in routed)
        # the original's, and those of the text that is chosen
        return every if config.rewrite.predictor is None else min(every, (ORIGINAL in routed) + 1)
    # where its texts as one have no hit, the original is searched by itself
    return min(len(routed), 2 if ORIGINAL in routed and retriever in config.joining else 1)


def all_searches(config: Config, texts: Mapping[str, int]) -> dict[str, int]:
    """Returns the most searches of a query by the name that they are counted under: a hybrid's are counted apart.

    Args:
        config: the job's config.
        texts: strategy -> its lists of a query and retriever, at most.
    """
    return {
        counted: searches_of_query(config, name, texts)
        for name, settings in config.retrieve.retrievers.items()
        for counted in settings.search_names(name)
    }
