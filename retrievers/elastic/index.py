"""Looks up an index: the concrete index behind a name, its mapping, and the note that its build left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.errors import RetrieverError
from retrievers.elastic.connection import Connection
from retrievers.elastic.settings import FOREIGN, MOST_HITS, ElasticSettings

FORMAT = 1
"""Version of the indexes built here."""

NOTE = "dmqr"
"""Key of the mapping's `_meta` that holds the note of an index built here."""

BUILD = "dmqr index CONFIG"


class ElasticIndex(NamedTuple):
    """A concrete index."""

    name: str  # no alias
    uuid: str
    fields: dict[str, Any]  # the mapping's properties
    settings: dict[str, Any]
    note: dict[str, Any] | None  # what `build` wrote; None: the index was not built here
    source: dict[str, Any]  # the mapping's `_source`: which part of a document is kept
    only: dict[str, Any] | None = None  # the filter of the alias by which it was found

    @property
    def most_hits(self) -> int:
        """Hits that a search returns at most."""
        return min(MOST_HITS, int(self.settings.get("max_result_window", MOST_HITS)))

    @property
    def mapping(self) -> str:
        """Hash of what decides how documents are indexed: fields, analysers, similarities, number of shards."""
        decides = {key: self.settings.get(key) for key in ("analysis", "similarity", "number_of_shards")}
        return content_hash([self.fields, decides])

    @property
    def corpus(self) -> str:
        """Hash of the documents, the same as of a local index; where the index was not built here, its UUID."""
        return str(self.note["corpus"]) if self.note else f"{FOREIGN}{self.uuid}"


def content_hash(content: Any) -> str:
    """Returns a hash of JSON values; the order of keys does not count."""
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"


def find_index(connection: Connection, name: str) -> ElasticIndex | None:
    """Returns the index that a name or alias stands for; None where there is none.

    Raises:
        RetrieverError: An alias of several indexes, or one that routes its searches; the server is unavailable or refuses.
    """
    if not name or name.startswith(("_", "-", "+")) or set(name) & set('*?,"<>|/\\ #:'):
        raise RetrieverError("config-value", f"{connection.where}.index: {name!r} is no name of one index or alias; correct it")
    answer = connection.request("GET", f"/{quote(name, safe='')}", patience=connection.opening_patience, allow=(404,))
    if answer is None:
        return None
    if len(answer) > 1:
        several = ", ".join(sorted(answer)[:5])
        words = f"index {name} stands for {len(answer)} indexes ({several}); name one of them"
        raise RetrieverError("config-value", f"{connection.where}: {words}")
    ((concrete, found),) = answer.items()
    mappings, settings = found.get("mappings") or {}, found["settings"]["index"]
    note = (mappings.get("_meta") or {}).get(NOTE)
    alias = (found.get("aliases") or {}).get(name) or {} if name != concrete else {}
    if "search_routing" in alias:
        raise RetrieverError(
            "config-value",
            f"{connection.where}: alias {name} sends its searches to the shard of a routing value, and would be searched "
            "without; name the index, or an alias that has only a filter",
        )
    fields, source = mappings.get("properties") or {}, mappings.get("_source") or {}
    return ElasticIndex(concrete, settings["uuid"], fields, settings, note, source, alias.get("filter"))


def ready_index(connection: Connection, name: str) -> ElasticIndex:
    """Returns the index as `find_index`, if it can be searched."""
    found = find_index(connection, name)
    where = f"{connection.where}: index {name} at {connection.address}"
    if found is None:
        raise RetrieverError("index-missing", f"{where}: there is none; build it with: {BUILD}")
    if found.note is not None and found.note.get("format") != FORMAT:
        raise RetrieverError(
            "index-other",
            f"{where} has format {found.note.get('format')!r}, this version reads {FORMAT}; build it again: {BUILD}",
        )
    if found.note is not None and not found.note.get("complete"):
        raise RetrieverError("index-missing", f"{where} is not built to its end; go on with: {BUILD}")
    return found


def connect(
    name: str, settings: ElasticSettings, index: str, *, patient: bool = False
) -> tuple[Connection, ElasticIndex, str | None]:
    """Returns a checked connection, an index that can be searched, and the server's version; raises as `ready_index`."""
    connection = Connection(f"retrieve.retrievers.{name}", settings, settings.max_in_flight, patient=patient)
    try:
        version = connection.check()
        return connection, ready_index(connection, index), version
    except BaseException:
        connection.close()
        raise


def put_note(connection: Connection, index: ElasticIndex, source: str | None) -> None:
    """Notes in an index that was built here which files it is of, where it does not say so; None: that is not known."""
    if source is not None and index.note is not None and index.note.get("source") != source:
        body = {"_meta": {NOTE: index.note | {"source": source}}}
        connection.request("PUT", f"/{quote(index.name, safe='')}/_mapping", body)


def gone(connection: Connection, index: str, kind: str) -> RetrieverError | None:
    """Returns the error for an index that was removed or closed, if `kind` says so."""
    if kind not in ("index_not_found_exception", "index_closed_exception"):
        return None
    where = f"{connection.where}: index {index} at {connection.address}"
    return RetrieverError("run-changed", f"{where} is gone ({kind}); put it back, or build it again and start a new run")


def field_of(fields: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Returns the mapping of a field, also of `object.field` and of a sub-field `text.english`."""
    first, _, rest = path.partition(".")
    found = fields.get(first)
    if found is None or not rest:
        return found
    return field_of({**(found.get("properties") or {}), **(found.get("fields") or {})}, rest)
