"""Documents of an index by their ids."""

import fnmatch
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.errors import RetrieverError
from retrievers.batches import in_threads
from retrievers.elastic.connection import Connection, RequestRefused, hits_of
from retrievers.elastic.index import ElasticIndex, field_of, gone
from retrievers.elastic.query import filtered
from retrievers.elastic.settings import TEXT_FIELD, ElasticSettings
from retrievers.retriever import PAGE, SOURCE, Alive, no_heartbeat, place_of

_BATCH = 500  # documents per request


def fetch(
    connection: Connection, index: str, doc_ids: Sequence[str], fields: Sequence[str] = (), only: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the `_source` of each document that the index holds and the filter leaves, of it only `fields`.

    By a search, which unlike `_mget` heeds a filter, and finds documents that were written with a routing value.
    """
    query = filtered({"ids": {"values": list(dict.fromkeys(doc_ids))}}, only)
    body = {"query": query, "size": len(doc_ids), "_source": list(fields) or False, "sort": ["_doc"]}
    try:
        answer = connection.search(index, body, "hits.hits._id,hits.hits._source")
    except RequestRefused as refused:
        raise (gone(connection, index, refused.kind) or refused) from None
    return {hit["_id"]: hit.get("_source") or {} for hit in hits_of(answer)}


class ElasticDocuments:
    """The documents of an index; implements `retrievers.retriever.DocumentStore`."""

    def __init__(
        self, connection: Connection, index: ElasticIndex, field: str, in_flight: int, only: dict[str, Any] | None = None
    ) -> None:
        """Reads texts from `field`, in up to `in_flight` concurrent requests; `only` is the filter of the searches."""
        self._connection, self._index, self._field, self._in_flight = connection, index, field, in_flight
        self._only, self._batch = only, min(_BATCH, index.most_hits)
        self.entry = {"corpus": index.corpus}

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        """Returns the indexed text of each document, each fetched once, as `DocumentStore.texts`; raises as `fetch`, too."""
        fields = self._found(doc_ids, self._field, alive=alive)
        if (missing := next((doc_id for doc_id in doc_ids if doc_id not in fields), None)) is not None:
            where = f"{self._connection.where}: index {self._index.name} at {self._connection.address}"
            remedy = "build the index again from the corpus that it was built from"
            raise RetrieverError("index-other", f"{where}: no document {missing!r}; {remedy}")
        return [_text(fields[doc_id], self._field) for doc_id in doc_ids]

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        fields = self._found(doc_ids, *(["columns"] if self._index.note else [SOURCE, PAGE]))
        sources = [fields.get(doc_id, {}) for doc_id in doc_ids]
        return [place_of(source.get("columns") or {} if self._index.note else source) for source in sources]

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        return list(map(self._found(doc_ids).__contains__, doc_ids))

    def some(self, count: int) -> list[str]:
        """Returns the indexed texts of the first documents that a search of all gives; raises as `fetch`."""
        body = {"query": filtered({"match_all": {}}, self._only), "size": min(count, self._index.most_hits)}
        answer = self._connection.search(self._index.name, body | {"_source": [self._field]}, "hits.hits._source")
        return [_text(hit.get("_source") or {}, self._field) for hit in hits_of(answer)]

    def _found(self, doc_ids: Sequence[str], *fields: str, alive: Alive = no_heartbeat) -> dict[str, Any]:
        """Returns the result of `fetch`, some documents at a time, in several requests."""
        unique = list(dict.fromkeys(doc_ids))
        parts = [unique[start : start + self._batch] for start in range(0, len(unique), self._batch)]

        def fetched(part: list[str], _: threading.Event) -> dict[str, Any]:
            return fetch(self._connection, self._index.name, part, fields, self._only)

        by_doc_id: dict[str, Any] = {}
        for part in in_threads(fetched, parts, self._in_flight, alive):
            by_doc_id |= part
        return by_doc_id


def text_field(where: str, settings: ElasticSettings, index: ElasticIndex) -> str:
    """Returns the field with the documents' texts.

    An index built here notes it. In any other index it is the field that BM25 searches, for dense search `TEXT_FIELD`.
    """
    if index.note:
        return str(index.note["text_field"])
    name = TEXT_FIELD if settings.encoder else settings.searched_field
    if "." in name and "properties" not in (index.fields.get(name.split(".")[0]) or {}):
        name = name.rpartition(".")[0]  # text.english is a sub-field: the source has text
    kept = index.source.get("enabled", True)
    for key, right in (("includes", True), ("excludes", False)):
        patterns = index.source.get(key) or []
        if patterns and any(fnmatch.fnmatch(name, pattern) for pattern in patterns) != right:
            kept = False
    if field_of(index.fields, name) is None or not kept:
        problem = f"index {index.name} keeps no text in the field {name!r}, and the reranker reads it there"
        remedy = "put a BM25 retriever whose field is the text first, or set rerank.kind: none"
        raise RetrieverError("index-other", f"{where}: {problem}; {remedy}")
    return name


def _text(source: Mapping[str, Any], field: str) -> str:
    value: Any = source
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
