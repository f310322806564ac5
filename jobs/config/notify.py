"""The section `notify` of the config."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from cluster.settings import Settings

Event = Literal["end", "failure", "limit", "interruption", "outage"]


class NotifySettings(Settings):
    """Notifications of `run` and `ablate` by apprise (docs/operations.md, Notifications)."""

    urls_env: str
    """The environment variable that holds URLs of apprise, separated by white space."""
    events: Annotated[list[Event], Field(min_length=1)] = ["failure", "limit", "interruption"]
    """Events that are sent. failure: the job failed or was refused; limit: one of `limits` stopped it; interruption: Ctrl-C or
    SIGTERM; end: it finished; outage: a server has not answered for a minute, and answers again."""

    @field_validator("urls_env")
    @classmethod
    def _named(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("not the name of an environment variable (not shown, it may be a URL); put the URLs into one")
        return name
