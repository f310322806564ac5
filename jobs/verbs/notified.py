"""A job of which others are told: whom its config names, by a webhook or a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from jobs.notify.notifications import Notifications

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.notify.message import Leading
    from jobs.verbs.caller import Caller


class Closed(Protocol):
    """A job that has come to its end, as far as it is told of."""

    @property
    def leading(self) -> Leading | None:
        """Returns its first measure; None if nothing was measured."""

    @property
    def usd(self) -> float | None:
        """Returns what it has cost, in USD; None if that is not known."""


@contextmanager
def notified(config: Config, verb: str, caller: Caller) -> Iterator[Caller]:
    """Yields the caller whose job is told of, as the config says; what refuses or ends the body is told, too."""
    if not config.notify:
        yield caller
        return
    told = Notifications(config.notify, verb, config.name, parts=verb == "ablate" and bool(config.ablate.sets))
    try:
        yield caller._replace(told=told)
    except BaseException as error:
        told.failed(error)
        raise
