"""Failures of requests to Elasticsearch: those after which the same request is sent again, and those that are final."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.errors import RetrieverError
from cluster.http import encodable
from cluster.outages import Transient

BUSY = (429, 502, 503, 504)
"""Statuses, of a request or of an item, after which the same may succeed later."""


class ServerUnavailable(Transient):
    """The server was not reached, was too busy, or broke off: the same request may succeed later.

    Attributes:
        overloaded: The server lacked resources for the request; a smaller one may succeed.
        of_item: One search may have caused it.
    """

    def __init__(self, message: str, *, overloaded: bool = False, of_item: bool = False) -> None:
        super().__init__(message, "Elasticsearch")
        self.overloaded, self.of_item = overloaded, of_item


class RequestRefused(RetrieverError):
    """The server understood a request and will not do it.

    Attributes:
        status: The HTTP status.
        kind: Elasticsearch's type of error.
        said: Kind and reason.
    """

    def __init__(self, where: str, status: int, kind: str, reason: str) -> None:
        self.status, self.kind = status, kind
        self.said = f"{kind}: {reason}" if reason else kind
        super().__init__("elastic-refused", f"{where}: {self.said}; correct the config")


def body_words(content: Any) -> tuple[str, str]:
    """Returns type and reason of the body of an error answer."""
    error = content.get("error") if isinstance(content, dict) else None
    return error_words(error) if isinstance(error, dict) else ("", encodable(str(error or "")))


def error_words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Returns type and reason of an error object, those of the first root cause where there is one."""
    causes = error.get("root_cause") or [error]
    first = causes[0] if isinstance(causes[0], dict) else error
    kind, reason = (encodable(str(first.get(key) or error.get(key) or "")) for key in ("type", "reason"))
    return kind, reason
