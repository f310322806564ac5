"""The strategies of a config as far as they can be read from here, and the retrievers that are searched before rewriting."""

from __future__ import annotations

from contextlib import suppress

from cluster.errors import RewriterError
from jobs.config.config import Config
from retrievers.kinds import RetrieverSettings
from rewriters.pool import Entry, load
from rewriters.strategy import Strategy


def readable(entry: Entry) -> Strategy | None:
    """Returns a strategy of the config; None if it cannot be read from here."""
    with suppress(RewriterError):
        return load(entry, context=True)
    return None


def searched_first(config: Config) -> list[RetrieverSettings]:
    """Returns the retrievers that are searched before rewriting, by the gate.

    Where retrievers have other names than the config says, as in that of an ablation's pools, it may be any of them.
    """
    gate, retrievers = config.rewrite.gated, config.retrieve.retrievers
    if gate is None:
        return []
    return [retrievers[gate.by]] if gate.by in retrievers else list(retrievers.values())
