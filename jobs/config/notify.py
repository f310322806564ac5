"""The section `notify` of the config: who is told what becomes of a job."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.settings import Settings

Event = Literal["end", "failure", "limit", "interruption", "outage"]
EVENTS: list[Event] = ["end", "failure", "limit", "interruption", "outage"]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NotifySettings(Settings):
    """Who is told what becomes of `run` and `ablate`: a webhook or a command (docs/notifications.md)."""

    webhook_env: str | None = None
    """The environment variable that has the address to which messages are posted; the address is a secret."""
    command: Annotated[list[str], Field(min_length=1)] | None = None
    """In place of a webhook a program and its arguments, without a shell; the message is on its standard input."""
    format: Literal["json", "slack"] = "json"
    """Of what a webhook is sent. json: the message; slack: `{"text": ...}`, which Slack and Mattermost take."""
    events: Annotated[list[Event], Field(min_length=1)] = EVENTS
    """What is told. end: it is finished; failure: it failed or was refused; limit: one of `limits` has stopped it;
    interruption: Ctrl-C or SIGTERM; outage: it has waited for a service for `outage_minutes`, and that this answers again."""
    outage_minutes: Annotated[float, Field(gt=0)] = 5
    """How long a service (an LLM's server, Elasticsearch, S3, ...) is away before that is told. S3 is waited for 2 minutes in
    all."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10
    """Longest time of a delivery; one that fails is tried once more."""

    @model_validator(mode="after")
    def _one_way(self) -> NotifySettings:
        if (self.webhook_env is None) == (self.command is None):
            raise ValueError("should have either webhook_env or command; name one of them")
        if self.command is not None and self.format != "json":
            raise ValueError("format: is of webhooks; a command gets the JSON; remove it")
        if self.command is not None and not self.command[0]:
            raise ValueError("command: its first word is the program, and is empty; name the program")
        if self.webhook_env is not None and not _VARIABLE.fullmatch(self.webhook_env):
            raise ValueError(
                "webhook_env: is no name of an environment variable (not shown, it may be the address itself); put the "
                "address into a variable, and name that"
            )
        return self

    @property
    def shown(self) -> str:
        """Returns what it is called in the log: the variable, or the program."""
        return self.webhook_env or (self.command or [""])[0]
