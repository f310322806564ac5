"""The index of a version: how rows are mapped, and what its `_meta` says of the export and of promotions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.errors import ConfigError
from jobs.publish.export import ExportRecord
from jobs.publish.promotion import Promotion
from retrievers.elastic.connection import Connection

NOTE = "dmqr_export"
"""Key of `_meta`."""
MAPPING: dict[str, Any] = {
    "dynamic": False,
    "properties": {
        "key": {"type": "keyword"},
        "query": {"type": "keyword", "ignore_above": 1024},
        "context": {"type": "keyword", "index": False, "doc_values": False},
        "bucket": {"type": "short"},
        "rewrites": {"type": "object", "enabled": False},
        "hits": {"type": "object", "enabled": False},
        "digest": {"type": "keyword"},
        "version": {"type": "keyword"},
    },
}
_EXISTS = "resource_already_exists_exception"
_PAGE = 5_000  # rows of a version that are read at a time


class VersionIndex(NamedTuple):
    """The index of a version.

    Attributes:
        name: Of the index.
        record: What was exported.
        complete: Whether all of its rows are there.
        promotion: As it was promoted last; None: it never was.
    """

    name: str
    record: ExportRecord
    complete: bool
    promotion: Promotion | None

    def note(self, **changes: Any) -> dict[str, Any]:
        """Returns `_meta`, with changes."""
        values = {"export": self.record.values(), "complete": self.complete}
        return {NOTE: values | ({"promotion": self.promotion.values()} if self.promotion else {}) | changes}


def index_path(name: str) -> str:
    """Returns the path of an index."""
    return f"/{quote(name, safe='')}"


def read_index(connection: Connection, name: str) -> VersionIndex | None:
    """Returns the index of a version; None: there is none.

    Raises:
        ConfigError: It was not made by an export.
    """
    answer = connection.request("GET", index_path(name), missing=True)
    if answer.status == 404:
        return None
    found = answer.body.get(name)
    try:
        note = found["mappings"]["_meta"][NOTE]
        promotion = note.get("promotion")
        record, complete = ExportRecord(**note["export"]), bool(note["complete"])
        return VersionIndex(name, record, complete, None if promotion is None else Promotion(**promotion))
    except (AttributeError, KeyError, TypeError):
        what = f"index {name} at {connection.address}: was not made by dmqr export, or by another version of it"
        raise ConfigError("publish-version", f"{what}; give another --version, or remove it") from None


def create_index(connection: Connection, wanted: VersionIndex) -> None:
    """Creates the index, unless it is there."""
    from retrievers.elastic.failures import RequestRefused

    try:
        connection.request("PUT", index_path(wanted.name), {"mappings": MAPPING | {"_meta": wanted.note()}})
    except RequestRefused as refused:
        if refused.kind != _EXISTS:  # a lost answer, or another export
            raise


def put_note(connection: Connection, index: VersionIndex, **changes: Any) -> None:
    """Changes what `_meta` says."""
    connection.request("PUT", f"{index_path(index.name)}/_mapping", {"_meta": index.note(**changes)})


def pages(connection: Connection, name: str, fields: list[str]) -> Iterator[list[Mapping[str, Any]]]:
    """Yields the rows of an index, with these fields alone, sorted by key, a page at a time."""
    after: list[Any] | None = None
    while True:
        body: dict[str, Any] = {"size": _PAGE, "sort": [{"key": "asc"}], "_source": fields, "track_total_hits": False}
        body |= {} if after is None else {"search_after": after}
        found = connection.request("POST", f"{index_path(name)}/_search", body).body["hits"]["hits"]
        if found:
            yield [one["_source"] for one in found]
            after = found[-1]["sort"]
        if len(found) < _PAGE:
            return
