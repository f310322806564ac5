"""What builds the missing indexes of configs that name their corpora, before a verb works through a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.job.prepare import Ready
    from jobs.verbs.caller import Caller


def building(caller: Caller, verb: str) -> Ready:
    """Returns what builds them, and says so where the caller's log of this verb goes."""

    def ready(configs: Sequence[Config]) -> None:
        from jobs.index.missing import known_corpora, ready_indexes

        if known_corpora(configs):
            with caller.watched(verb, "") as (progress, _):
                ready_indexes(configs, progress)

    return ready
