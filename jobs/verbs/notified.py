"""A job of which others are told: whom its config names, by a webhook or a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.notify.notifications import Notifications

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.verbs.caller import Caller


@contextmanager
def notified(config: Config, verb: str, caller: Caller) -> Iterator[Caller]:
    """Yields the caller whose job is told of, as the config says; what refuses or ends the body is told, too."""
    if not config.notify:
        yield caller
        return
    told = Notifications(config.notify, verb, config.name)
    try:
        yield caller._replace(told=told)
    except BaseException as error:
        told.failed(error)
        raise
