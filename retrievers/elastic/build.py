"""Building an Elasticsearch index: a new concrete index beside the old one, behind an alias that is moved at the end.

The concrete index is called ALIAS-HASH, with a hash of the corpus and of all settings that decide how it is indexed. So the
same corpus and settings again cost nothing, a killed build resumes, and no search sees the index before its number of
documents is right. During loading it has no replicas and no refresh; afterwards each shard is merged to one segment and
writing is blocked. The index before it is kept for runs that still search it; older ones are removed.
"""

import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.errors import DmqrError, RetrieverError
from retrievers.analysis.detection import SAMPLE, other_language
from retrievers.corpora.builds import BuildInputs, CorpusNote, IndexBuild, shared_indexes
from retrievers.corpora.corpus import Built, read_corpus
from retrievers.elastic.bulk import PASSAGE, load_corpus
from retrievers.elastic.connection import Connection, RequestRefused
from retrievers.elastic.index import FORMAT, NOTE, ElasticIndex, connect, find_index, put_note
from retrievers.elastic.settings import TEXT_FIELD, ElasticSettings
from retrievers.encoder import encoder_dim, encoder_identity
from retrievers.kinds import RetrieverSettings
from retrievers.retriever import error_context
from retrievers.settings import AnyEncoderSettings

_SHARED = {key: key for key in ("shards", "url_env", "api_key_env")}
_OF_A_FIELD = {  # key of the config -> attribute
    "field": "searched_field", "analyzer": "analyzer", "similarity": "bm25_constants", "encoder": "encoder",
    "vector": "vectors",
}  # fmt: skip


class Fields(NamedTuple):
    """Names and blocks of the retrievers that share one index: BM25, dense, or both."""

    bm25: tuple[str, ElasticSettings] | None = None
    dense: tuple[str, ElasticSettings] | None = None

    @property
    def first(self) -> tuple[str, ElasticSettings]:
        field = self.bm25 or self.dense
        assert field is not None
        return field

    @property
    def encoder(self) -> AnyEncoderSettings | None:
        return self.dense[1].encoder if self.dense else None

    @property
    def text_field(self) -> str:
        return self.bm25[1].searched_field if self.bm25 else TEXT_FIELD

    @property
    def vector_field(self) -> str | None:
        """The field of the vectors; None without dense search."""
        return self.dense[1].searched_field if self.dense else None

    def analysis(self) -> dict[str, Any]:
        """Returns the index settings of BM25."""
        return {"similarity": {"default": {"type": "BM25"} | self.bm25[1].bm25_constants.model_dump()}} if self.bm25 else {}

    def mapping(self, dim: int) -> dict[str, Any]:
        """Returns the mapping of the index, with vectors of length `dim`."""
        text = {"type": "text", "analyzer": self.bm25[1].analyzer} if self.bm25 else {"type": "text", "index": False}
        properties: dict[str, Any] = {
            "doc_id": {"type": "keyword"},
            "title": text,
            self.text_field: text,
            "columns": {"type": "object", "enabled": False},
        }
        if self.dense and self.vector_field:
            properties[PASSAGE] = {"type": "keyword"}
            properties[self.vector_field] = {
                "type": "dense_vector",
                "dims": dim,
                "index": True,
                "similarity": "dot_product",
                "index_options": self.dense[1].vectors,
            }
        return {"dynamic": False, "properties": properties}


def elastic_indexes(retrievers: Mapping[str, RetrieverSettings]) -> dict[tuple[str, str], Fields]:
    """Returns (variable with the address, alias) -> retrievers that share the index; raises as `shared_indexes`."""

    def first(sharing: Mapping[str, ElasticSettings], dense: bool) -> tuple[str, ElasticSettings] | None:
        return next((item for item in sharing.items() if (item[1].encoder is not None) == dense), None)

    indexes = shared_indexes(retrievers, ElasticSettings, lambda one: (one.url_env, one.index), _differing)
    return {place: Fields(first(sharing, False), first(sharing, True)) for place, sharing in indexes.items()}


def _differing(first: ElasticSettings, second: ElasticSettings) -> str | None:
    compared = _SHARED | (_OF_A_FIELD if (first.encoder is None) == (second.encoder is None) else {})
    return next((key for key, name in compared.items() if getattr(first, name) != getattr(second, name)), None)


_BATCH = 2048  # documents: four bulk requests
_IN_FLIGHT = 4  # bulk requests; two were as fast on one node with two cores
_MERGE_POLL = 0.2  # seconds
_MERGE_LOST = 30.0  # seconds without a merge: the node has restarted; an index of many segments is correct, only slower


def index_builds(retrievers: Mapping[str, RetrieverSettings]) -> list[IndexBuild]:
    """Returns the indexes of retrievers in Elasticsearch; raises as `elastic_indexes`."""
    return [
        IndexBuild(
            alias,
            f"{alias} ({url_env})",
            partial(build_elastic_index, fields),
            encodes=fields.encoder is not None and fields.encoder.loaded,
        )
        for (url_env, alias), fields in elastic_indexes(retrievers).items()
    ]


def noted_corpus(name: str, settings: ElasticSettings) -> CorpusNote | None:
    """Returns the facts that an index keeps about its corpus; None: it was not built here."""
    connection, index = connect(name, settings, settings.index)
    connection.close()
    note = index.note
    return None if note is None else CorpusNote(note["corpus"], note["documents"], note.get("source"))


def note_source(name: str, settings: ElasticSettings, source: str) -> None:
    """Notes in an index of which files it is; where the server refuses it, rows are compared the next time."""
    with suppress(DmqrError):
        connection, index = connect(name, settings, settings.index)
        with closing(connection):
            put_note(connection, index, source)


def build_elastic_index(fields: Fields, given: BuildInputs) -> Built:
    """Builds the index, resumes its build, or finds it complete; then points the alias to it, unless there is an error."""
    with (
        tempfile.TemporaryDirectory(prefix="dmqr-index-", dir=given.folder) as work,
        closing(ElasticBuild(fields, given, Path(work))) as build,
    ):
        counts = Counter[str]()
        if not build.find_complete():
            build.create_index()
            for part in (given.load or load_corpus)(build.loader_settings(), build.corpus.batches(_BATCH)):
                counts += part
                given.progress("load", counts["loaded"] + counts["present"], build.corpus.documents)
            build.finish()
        return build.move_alias(counts)


class ElasticBuild:
    """One build, step by step; the caller loads the batches as `loader_settings` say."""

    def __init__(self, fields: Fields, given: BuildInputs, folder: Path) -> None:
        """Copies the corpus into `folder` and looks for the index on the server."""
        self._fields, self._source = fields, given.source
        name, self._settings = fields.first
        self._where = f"retrieve.retrievers.{name}"
        self._alias = self._settings.index
        self._encoder_identity: dict[str, Any] | None = None
        if fields.dense and fields.encoder:
            with error_context(f"retrieve.retrievers.{fields.dense[0]}.encoder"):
                self._encoder_identity = encoder_identity(fields.encoder)
        self._connection = Connection(self._where, self._settings, _IN_FLIGHT)
        self._connection.check()
        self._old = find_index(self._connection, self._alias)
        if self._old is not None and self._old.name == self._alias:
            problem = f"{self._alias} at {self._connection.address} is an index, so it cannot be the alias of one"
            remedy = "give the config another name, or delete that index"
            raise RetrieverError("storage-refused", f"{self._where}: index {problem}; {remedy}")
        self.corpus = read_corpus(given.sources, folder, given.progress, given.columns)
        key = json.dumps(
            [FORMAT, self.corpus.content, fields.mapping(0), fields.analysis(), self._encoder_identity, self._settings.shards],
            sort_keys=True,
        )
        self._index = f"{self._alias}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self._existing = find_index(self._connection, self._index)

    def close(self) -> None:
        self._connection.close()

    def find_complete(self) -> bool:
        """Returns True if an earlier build has finished the index; applies the final settings, and notes its files of now."""
        if self._existing is None or not (self._existing.note or {}).get("complete"):
            return False
        self._apply_final_settings()
        put_note(self._connection, self._existing, self._source)
        return True

    def create_index(self) -> None:
        """Creates the index without refresh and replicas, or prepares an unfinished one to be resumed."""
        if self._existing is not None:
            self._request("POST", f"/{self._index}/_refresh")  # makes loaded vectors visible to the look-up
            return
        settings = {"number_of_shards": self._settings.shards, "number_of_replicas": 0, "refresh_interval": "-1"}
        settings |= self._fields.analysis()
        mapping = self._fields.mapping(self._dim) | {"_meta": {NOTE: self._note(complete=False)}}
        self._request("PUT", f"/{quote(self._index, safe='')}", {"settings": {"index": settings}, "mappings": mapping})

    def loader_settings(self) -> dict[str, Any]:
        """Returns the settings of `bulk.Documents`, as plain values for any process."""
        return {
            "where": self._where,
            "connection": self._settings,
            "index": self._index,
            "in_flight": min(_IN_FLIGHT, self._settings.max_in_flight),
            "text_field": self._fields.text_field,
            "vector_field": self._fields.vector_field,
            "encoder": self._fields.encoder,
            "dim": self._dim,
            "vector_sources": self._vector_sources(),
            "resumed": self._existing is not None,
        }

    @cached_property
    def _dim(self) -> int:
        return encoder_dim(self._fields.encoder) if self._fields.encoder else 0

    def _vector_sources(self) -> list[tuple[str, str]]:
        places = [(self._index, self._fields.vector_field)] if self._fields.vector_field and self._existing else []
        note = (self._old.note if self._old else None) or {}
        if self._old is not None and note.get("encoder") and note["encoder"] == self._encoder_identity:
            places.append((self._old.name, note["vector_field"]))
        return [(index, field) for index, field in places if field]

    def finish(self) -> None:
        """Merges the loaded index, checks its number of documents, applies the final settings and notes that it is complete."""
        self._merge()
        self._request("POST", f"/{self._index}/_refresh")
        count = self._request("GET", f"/{self._index}/_count")["count"]
        if count != self.corpus.documents:
            problem = f"index {self._index} holds {count:,} documents, the corpus {self.corpus.documents:,}"
            remedy = f"{self._alias} is unchanged; delete {self._index} and build it again"
            raise RetrieverError("index-other", f"{self._where}: {problem}; {remedy}")
        self._apply_final_settings()
        # Last, since a complete index is not resumed
        self._request("PUT", f"/{self._index}/_mapping", {"_meta": {NOTE: self._note(complete=True)}})

    def _apply_final_settings(self) -> None:
        """Sets the usual replicas and refresh and blocks writing, where this is not done yet."""
        there = self._existing.settings if self._existing else {}
        if there.get("refresh_interval") is not None or (there.get("blocks") or {}).get("write") != "true":
            wanted = {"number_of_replicas": None, "refresh_interval": None, "blocks.write": True}
            self._request("PUT", f"/{self._index}/_settings", {"index": wanted})

    def _merge(self) -> None:
        """Merges each shard to one segment: each segment costs every search time, kNN most of all.

        It is started and polled: no connection stays open as long as one may take.
        """
        self._request("POST", f"/{self._index}/_forcemerge?max_num_segments=1&wait_for_completion=false")
        merging = time.monotonic()
        while time.monotonic() - merging < _MERGE_LOST:
            self._request("POST", f"/{self._index}/_refresh")  # until then the old segments count
            primaries = self._request("GET", f"/{self._index}/_stats/segments,merge")["_all"]["primaries"]
            if primaries["segments"]["count"] <= self._settings.shards:
                return
            if primaries["merges"]["current"]:
                merging = time.monotonic()
            time.sleep(_MERGE_POLL)

    def move_alias(self, counts: Counter[str]) -> Built:
        """Points the alias to the index, in one step, and removes indexes older than the previous one."""
        now = find_index(self._connection, self._alias)
        built = now is None or now.name != self._index
        if built:
            only = {} if now is None or now.only is None else {"filter": now.only}  # a filtered alias keeps its filter
            actions: list[dict[str, Any]] = [{"add": {"index": self._index, "alias": self._alias} | only}]
            if now is not None:
                actions.insert(0, {"remove": {"index": now.name, "alias": self._alias, "must_exist": True}})
            self._request("POST", "/_aliases", {"actions": actions})
            if now is not None:
                self._remove_older(now)
        note, corpus = (now.note if now else None) or {}, self.corpus
        replaced = note.get("documents", 0) if built and now is not None and note.get("corpus") != corpus.content else None
        bm25 = self._fields.bm25
        looks = other_language(str(bm25[1].analyzer), self.corpus.sample(SAMPLE)) if bm25 else None
        notes = () if looks is None else (f"warning: {looks}",)
        return Built(built, corpus.documents, corpus.without_text, replaced, notes, self._index, counts)

    def _remove_older(self, previous: ElasticIndex) -> None:
        everything = self._request("GET", f"/{quote(self._alias, safe='')}-*")
        for name, entry in everything.items():
            note = ((entry.get("mappings") or {}).get("_meta") or {}).get(NOTE) or {}
            created, settings = int(previous.settings["creation_date"]), entry["settings"]["index"]
            older = int(settings["creation_date"]) < created and name != self._index
            if note.get("alias") == self._alias and not entry["aliases"] and older:
                self._connection.request("DELETE", f"/{quote(name, safe='')}", allow=(404,))

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self._connection.request(method, path, body)
        except RequestRefused as refused:
            if refused.kind == "resource_already_exists_exception":  # a lost answer, or a concurrent build
                return None
            problem = f"{self._connection.address} refuses index {self._index}: {refused.problem}"
            raise RetrieverError("elastic-refused", f"{self._where}: {problem}; correct the config") from None

    def _note(self, complete: bool) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "alias": self._alias,
            "corpus": self.corpus.content,
            "documents": self.corpus.documents,
            "text_field": self._fields.text_field,
            "vector_field": self._fields.vector_field,
            "encoder": self._encoder_identity,
            "encoder_name": self._fields.encoder.model if self._fields.encoder else None,
            "source": self._source,
            "complete": complete,
        }
