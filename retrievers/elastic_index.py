"""What an index in Elasticsearch is: the concrete index behind a name, its mapping, and what was noted when it was built."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from retrievers.elastic_client import Connection
from retrievers.retriever import RetrieverError

FORMAT = 1
"""Of the indexes built here."""

NOTE = "dmqr"
"""Under this key of the mapping's ``_meta`` an index built here says what it is."""

BUILD = "dmqr index CONFIG --corpus PATH"


class ElasticIndex(NamedTuple):
    """A concrete index. ``note``: what `elastic_build` wrote about it; None: it was built by somebody else."""

    name: str
    uuid: str
    fields: dict[str, Any]
    settings: dict[str, Any]
    note: dict[str, Any] | None
    source: dict[str, Any]
    """What of a document it keeps: the mapping's ``_source``."""

    @property
    def mapping(self) -> str:
        """Hash of how it is indexed: fields, analysers, similarities; not of how it is spread over nodes."""
        decides = {key: self.settings.get(key) for key in ("analysis", "similarity", "number_of_shards")}
        canonical = json.dumps([self.fields, decides], sort_keys=True)
        return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"

    @property
    def corpus(self) -> str:
        """The documents by content, as a local index of them has it; of an index not built here all that is known."""
        return str(self.note["corpus"]) if self.note else f"elastic:{self.uuid}"


def find_index(connection: Connection, name: str) -> ElasticIndex | None:
    """The one index that a name or alias stands for; None where there is none.

    Raises:
        RetrieverError: an alias of several; the server is not there or refuses.
    """
    if not name or name.startswith(("_", "-", "+")) or set(name) & set('*?,"<>|/\\ #:'):
        raise RetrieverError(f"{connection.where}.index: {name!r} is no name of one index or alias; correct it")
    answer = connection.ask("GET", f"/{quote(name, safe='')}", patience=connection.opening, missing=True)
    if answer.status == 404:
        return None
    if len(answer.body) > 1:
        several = ", ".join(sorted(answer.body)[:5])
        raise RetrieverError(
            f"{connection.where}: index {name} stands for {len(answer.body)} indexes ({several}); name one of them"
        )
    ((concrete, found),) = answer.body.items()
    mappings, settings = found.get("mappings") or {}, found["settings"]["index"]
    note = (mappings.get("_meta") or {}).get(NOTE)
    return ElasticIndex(
        concrete, settings["uuid"], mappings.get("properties") or {}, settings, note, mappings.get("_source") or {}
    )


def ready_index(connection: Connection, name: str) -> ElasticIndex:
    """`find_index`, of one that can be searched.

    Raises:
        RetrieverError: there is none; its building did not come to its end; of another format.
    """
    found = find_index(connection, name)
    where = f"{connection.where}: index {name} at {connection.shown}"
    if found is None:
        raise RetrieverError(f"{where}: there is none; build it with: {BUILD}")
    if found.note is not None and found.note.get("format") != FORMAT:
        raise RetrieverError(
            f"{where} has format {found.note.get('format')!r}, this version reads {FORMAT}; build it again: {BUILD}"
        )
    if found.note is not None and not found.note.get("complete"):
        raise RetrieverError(f"{where} is not built to its end; go on with: {BUILD}")
    return found


def gone(connection: Connection, index: str, kind: str) -> RetrieverError | None:
    """The line for an index that was there, if that is what an error of this kind means."""
    if kind not in ("index_not_found_exception", "index_closed_exception"):
        return None
    where = f"{connection.where}: index {index} at {connection.shown}"
    return RetrieverError(f"{where} is gone ({kind}); put it back, or build it again and start a new run")


def field_of(fields: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The mapping of a field, also of ``object.field`` and of a sub-field ``text.english``."""
    first, _, rest = path.partition(".")
    found = fields.get(first)
    if found is None or not rest:
        return found
    return field_of({**(found.get("properties") or {}), **(found.get("fields") or {})}, rest)
