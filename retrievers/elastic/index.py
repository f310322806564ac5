"""Looks up an index: the concrete index behind a name, its mapping, the note that its build left, and its state now."""

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.errors import RetrieverError
from retrievers.elastic.connection import Connection, RequestRefused
from retrievers.elastic.query import filtered
from retrievers.elastic.settings import FOREIGN, MOST_HITS, ElasticSettings
from retrievers.retriever import BUILD

FORMAT = 1  # version of the indexes built here

NOTE = "dmqr"  # key of the mapping's `_meta` that holds the note of an index built here

_MOST_RULES = 10_000  # of one answer


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
    """Returns the index that a name or alias stands for; None: there is none. Raises for one of several, or with a routing."""
    if not name or name.startswith(("_", "-", "+")) or set(name) & set('*?,"<>|/\\ #:'):
        raise RetrieverError("config-value", f"{connection.where}.index: {name!r} is no name of one index or alias; correct it")
    answer = connection.request("GET", f"/{quote(name, safe='')}", patience=connection.opening_patience, allow=(404,))
    if answer is None:
        return None
    if len(answer) > 1:
        several = ", ".join(sorted(answer)[:5])
        problem = f"index {name} stands for {len(answer)} indexes ({several}); name one of them"
        raise RetrieverError("config-value", f"{connection.where}: {problem}")
    ((concrete, entry),) = answer.items()
    mappings, settings = entry.get("mappings") or {}, entry["settings"]["index"]
    note = (mappings.get("_meta") or {}).get(NOTE)
    alias = (entry.get("aliases") or {}).get(name) or {} if name != concrete else {}
    if "search_routing" in alias:
        problem = f"alias {name} sends its searches to the shard of a routing value, and would be searched without"
        remedy = "name the index, or an alias that has only a filter"
        raise RetrieverError("config-value", f"{connection.where}: {problem}; {remedy}")
    fields, source = mappings.get("properties") or {}, mappings.get("_source") or {}
    return ElasticIndex(concrete, settings["uuid"], fields, settings, note, source, alias.get("filter"))


def _ready_index(connection: Connection, name: str) -> ElasticIndex:
    index = find_index(connection, name)
    where = f"{connection.where}: index {name} at {connection.address}"
    if index is None:
        raise RetrieverError("index-missing", f"{where}: there is none; build it with: {BUILD}")
    if index.note is not None and index.note.get("format") != FORMAT:
        problem = f"has format {index.note.get('format')!r}, this version reads {FORMAT}"
        raise RetrieverError("index-other", f"{where} {problem}; build it again: {BUILD}")
    if index.note is not None and not index.note.get("complete"):
        raise RetrieverError("index-missing", f"{where} is not fully built; resume with: {BUILD}")
    return index


def connect(name: str, settings: ElasticSettings, index: str, *, patient: bool = False) -> tuple[Connection, ElasticIndex]:
    """Returns a checked connection and an index that can be searched; raises as `find_index`, too."""
    connection = Connection(f"retrieve.retrievers.{name}", settings, settings.max_in_flight, patient=patient)
    try:
        connection.check()
        return connection, _ready_index(connection, index)
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
    return RetrieverError("run-changed", f"{where} is gone ({kind}); restore it, or build it again and start a new run")


def field_of(fields: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Returns the mapping of a field, also of `object.field` and of a sub-field `text.english`."""
    first, _, rest = path.partition(".")
    field = fields.get(first)
    if field is None or not rest:
        return field
    return field_of({**(field.get("properties") or {}), **(field.get("fields") or {})}, rest)


def index_state(connection: Connection, index: ElasticIndex, only: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the state of an index for searches with a filter: while it is the same, so is what they find.

    None: it was built here and is closed to writing. Every write gives its document the next sequence number of its shard, so
    among the documents that a search finds a new or changed one raises the sum of these numbers, and a removed one lowers their
    count. A server that does not tell them has another state each time. To put a set of synonyms again writes no document; so
    the sets of the index's analysis belong to its state.
    """
    if index.note is not None and (index.settings.get("blocks") or {}).get("write") == "true":
        return None
    written = {"written": {"stats": {"field": "_seq_no"}}}
    body = {"size": 0, "query": filtered({"match_all": {}}, only), "aggs": written}
    try:
        state = connection.search(index.name, body, patience=connection.opening_patience)["aggregations"]["written"]
        sets = _synonym_sets(connection, index)
    except (RequestRefused, KeyError, TypeError):
        return {"unknown": uuid.uuid4().hex}
    return {"documents": state["count"], "last": state["max"], "sum": state["sum"]} | ({"synonyms": sets} if sets else {})


def _synonym_sets(connection: Connection, index: ElasticIndex) -> dict[str, str]:
    """Returns a hash of the rules of each synonym set that the index's analysis names."""
    filters = ((index.settings.get("analysis") or {}).get("filter") or {}).values()
    sets: dict[str, str] = {}
    for name in sorted({one["synonyms_set"] for one in filters if "synonyms_set" in one}):
        path, params = f"/_synonyms/{quote(name, safe='')}", {"size": str(_MOST_RULES)}
        try:
            answer = connection.request("GET", path, params=params, patience=connection.opening_patience)
        except RetrieverError as error:
            if error.code != "server-access":
                raise
            raise KeyError(name) from None
        rules = answer["synonyms_set"]
        if answer["count"] != len(rules):
            raise KeyError(name)
        sets[name] = content_hash(sorted([one["synonyms"], one["id"]] for one in rules))
    return sets
