"""The strategies of a config as far as they can be read from here, and the lists of the original that some of them read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cluster.errors import ConfigError, RewriterError
from jobs.config.config import Config
from jobs.config.step_checks import check_original
from retrievers.kinds import RetrieverSettings
from rewriters.pool import Entry, load
from rewriters.strategy import Strategy


def readable(entry: Entry) -> Strategy | None:
    """Returns a strategy of the config; None if it cannot be read from here."""
    with suppress(RewriterError):
        return load(entry, context=True)
    return None


def read_by(config: Config, strategy: Strategy) -> list[str]:
    """Returns the names of the retrievers whose lists of the original a strategy reads; []: it reads none."""
    if strategy.reads is None:
        return []
    return list(strategy.reads.by) or [next((name for name in config.retrieve.retrievers if _fits(config, name)), "")]


def reading(config: Config) -> list[Strategy]:
    """Returns the strategies that read lists of the original, without those that cannot be read from here."""
    read = map(readable, config.rewrite.strategies if config.rewrite.planned else ())
    return [one for one in read if one is not None and one.reads is not None]


def check_reads(config: Config, pool: Sequence[Strategy]) -> None:
    """Checks that what strategies read is there: lists of the original alone, as deep as they are read.

    Raises:
        ConfigError: It is not.
    """
    for one in pool:
        where = f"rewrite.strategies: strategy {one.name!r}"
        for name in read_by(config, one):
            try:
                check_original(config, f"{where}: reads.by", name, "")
            except ValueError as error:
                why = f"{where}: reads lists of the original, and no retriever has one of it alone; name another retriever"
                raise ConfigError("config-value", str(error) if name else why) from error
        if one.reads is not None and one.reads.documents > config.retrieve.depth:
            words = f"reads {one.reads.documents} documents of a list, and retrieve.depth is {config.retrieve.depth}"
            raise ConfigError("config-value", f"{where}: {words}; raise it, or read fewer")


def searched_first(config: Config) -> list[RetrieverSettings]:
    """Returns the retrievers that are searched before rewriting: by the gate, and for strategies that read lists.

    Strategies that cannot be read from here are left out. Where retrievers have other names than the config says, as in that of
    an ablation's pools, it may be any of them.
    """
    rewrite, retrievers = config.rewrite, config.retrieve.retrievers
    names = [] if rewrite.gated is None else [rewrite.gated.by]
    names += [name for one in reading(config) for name in read_by(config, one)]
    found = [retrievers[name] for name in dict.fromkeys(names) if name in retrievers]
    return found if len(found) == len(set(names)) else list(retrievers.values())


def _fits(config: Config, name: str) -> bool:
    try:
        check_original(config, "", name, "")
    except ValueError:
        return False
    return True
