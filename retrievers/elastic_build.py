"""Building an index in Elasticsearch: a new concrete index beside the old one, behind an alias that is moved at the end.

The concrete index is called ALIAS-HASH, its hash made of the corpus and all that decides how it is indexed. So the same
corpus and settings again are nothing to do, a build that was killed goes on where it was, and until the number of
documents agrees nobody sees it. While it is loaded it has no replicas and is not refreshed; after that each shard is merged
to one segment and takes no more writes. The index that it replaces is kept, for runs that are still on it; those before
that are removed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from retrievers.corpus import DOCUMENTS, Paths, corpus_files, corpus_schema, in_kinds, joined, open_arrow, write_documents
from retrievers.elastic_client import Connection, Refused, Trouble
from retrievers.elastic_fields import Fields
from retrievers.elastic_fill import Filled, Here, Load, text_hash
from retrievers.elastic_index import FORMAT, NOTE, ElasticIndex, find_index
from retrievers.encoder import encoder_dim, encoder_identity, encoder_settings
from retrievers.retriever import RetrieverError, named

_PIECE = 1024  # documents handed on at a time
_IN_FLIGHT = 4  # bulk requests; two did as well on one node with two cores
_SHORT_MERGE = 2.0  # seconds that a merge is simply waited for
_LOOK = 0.2  # and then between two looks at it
_NO_MERGE = 30.0  # seconds without one: the node was started anew; an index of many segments is right, too, only slower

Progress = Callable[[str, int, int], None]


class ElasticSummary(NamedTuple):
    """What `build_elastic_index` did. ``built`` is False where the same index was already there."""

    built: bool
    name: str
    documents: int
    duplicates: int
    content: str
    filled: Filled


def build_elastic_index(
    fields: Fields,
    corpus_paths: Paths,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    load: Load | None = None,
) -> ElasticSummary:
    """Build the index, go on building it, or find that it is there already; then the alias stands for it.

    Args:
        fields: who wants it; one value of `elastic_fields.elastic_indexes`.
        corpus_paths: a Parquet file, a folder of them, or a list.
        folder: where the corpus lies meanwhile; None: where this machine has its temporary files.
        progress: called with what is being done ("read", "load"), documents done, documents in all.
        load: brings the batches of a pass into the index; None: `Here`, in this process.

    Raises:
        RetrieverError: what is wrong with the corpus, the model or the server; the alias is as it was then.
    """
    report = progress or (lambda what, done, total: None)
    load = load or Here()
    with (
        tempfile.TemporaryDirectory(prefix="dmqr-index-", dir=folder) as work,
        Build(fields, corpus_paths, Path(work), report) as build,
    ):
        filled = Filled()
        if build.ready:
            build.settle()
        else:
            build.open()
            for batches in build.passes():
                for part in load(build.filling(), batches):
                    filled = filled.plus(part)
                    report("load", filled.loaded + filled.there, build.written.documents)
            build.close()
        return build.switch(filled)


class Build:
    """One build, step by step; the caller brings the batches of `passes` to where `filling` says."""

    def __init__(self, fields: Fields, corpus_paths: Paths, folder: Path, report: Progress) -> None:
        """Read the corpus into ``folder`` and look what is there already."""
        self.fields = fields
        name, self._block = fields.first
        self._where = f"retrieve.retrievers.{name}"
        self.alias = str(self._block["index"])
        self.encoder_identity: dict[str, Any] | None = None
        if fields.dense:
            with named(f"retrieve.retrievers.{fields.dense[0]}.encoder"):
                self.encoder_identity = encoder_identity(encoder_settings(fields.dense[1]["encoder"]))
        files = corpus_files(corpus_paths)
        schema = corpus_schema(files)
        self.connection = Connection(self._where, self._block, _IN_FLIGHT)
        self.connection.check()
        self._old = find_index(self.connection, self.alias)
        if self._old is not None and self._old.name == self.alias:
            raise RetrieverError(
                f"{self._where}: index {self.alias} at {self.connection.shown} is an index, so it cannot be the alias of "
                "one; give the config another name, or delete that index"
            )
        self.written = write_documents(files, schema, folder, report)
        self._documents = folder / DOCUMENTS
        key = json.dumps(
            [FORMAT, self.written.content, fields.mapping(0), fields.analysis(), self.encoder_identity, self._block["shards"]],
            sort_keys=True,
        )
        self.index = f"{self.alias}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self._there = find_index(self.connection, self.index)
        self._begun = self._there is not None

    def __enter__(self) -> Build:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def ready(self) -> bool:
        """Whether the index is there and whole."""
        return self._there is not None and bool((self._there.note or {}).get("complete"))

    def open(self) -> None:
        """Make the index, if it is not there: not refreshed, without replicas until it is loaded."""
        if self._begun:
            self._ask("POST", f"/{self.index}/_refresh")  # what an earlier start has loaded is found by its texts
            return
        settings = {
            "number_of_shards": self._block["shards"],
            "number_of_replicas": 0,
            "refresh_interval": "-1",
        } | self.fields.analysis()
        mapping = self.fields.mapping(self._dim()) | {"_meta": {NOTE: self._note(complete=False)}}
        self._ask("PUT", f"/{quote(self.index, safe='')}", {"settings": {"index": settings}, "mappings": mapping})

    def passes(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """The corpus in batches: with vectors first one document of each text, then, where their vectors can be found, the
        others. Each pass must be loaded before the next is begun."""
        first = self._first_of_their_text() if self.fields.dense else None
        yield self._batches(first)
        if first is not None and not first.all():
            self._ask("POST", f"/{self.index}/_refresh")
            self._begun = True
            yield self._batches(~first)

    def filling(self) -> dict[str, Any]:
        """What `elastic_fill.open_filling` is to be told for the pass at hand; plain values, to be sent anywhere."""
        return {
            "where": self._where,
            "block": self._block,
            "index": self.index,
            "in_flight": min(_IN_FLIGHT, self._block["max_in_flight"]),
            "text_field": self.fields.text_field,
            "vector_field": self.fields.vector_field,
            "encoder": self.fields.dense[1]["encoder"] if self.fields.dense else None,
            "dim": self._dim(),
            "vectors_in": self.vectors_in,
            "begun": self._begun,
        }

    def _dim(self) -> int:
        return encoder_dim(encoder_settings(self.fields.dense[1]["encoder"])) if self.fields.dense else 0

    @property
    def vectors_in(self) -> list[tuple[str, str]]:
        """Where vectors of this encoder may be found: index and field."""
        places = [(self.index, self.fields.vector_field)] if self.fields.vector_field and self._begun else []
        note = (self._old.note if self._old else None) or {}
        if self._old is not None and note.get("encoder") and note["encoder"] == self.encoder_identity:
            places.append((self._old.name, note["vector_field"]))
        return [(index, field) for index, field in places if field]

    def close(self) -> None:
        """Let the index be searched, with its replicas and without further writes, once all documents are in it.

        Raises:
            RetrieverError: they are not.
        """
        self._merge()
        self._ask("POST", f"/{self.index}/_refresh")
        count = self._ask("GET", f"/{self.index}/_count")["count"]
        if count != self.written.documents:
            raise RetrieverError(
                f"{self._where}: index {self.index} holds {count:,} documents, the corpus {self.written.documents:,}; "
                f"{self.alias} is as it was; delete {self.index} and build it again"
            )
        self.settle()
        self._ask("PUT", f"/{self.index}/_mapping", {"_meta": {NOTE: self._note(complete=True)}})  # last: nobody comes back

    def settle(self) -> None:
        """Let the index have its replicas, be refreshed as usual and take no more writes, if it is not so already."""
        replicas, there = self._block["replicas"], self._there.settings if self._there else {}
        found = there.get("number_of_replicas"), there.get("refresh_interval"), (there.get("blocks") or {}).get("write")
        if found != (str(replicas), None, "true"):
            wanted = {"number_of_replicas": replicas, "refresh_interval": None, "blocks.write": True}
            self._ask("PUT", f"/{self.index}/_settings", {"index": wanted})

    def _merge(self) -> None:
        """One segment per shard: nothing is written there any more, and each segment costs every search, kNN most of all.

        Asked for and looked after, since no connection is held for as long as it takes.
        """
        merge = f"/{self.index}/_forcemerge?max_num_segments=1"
        try:
            self.connection.once("POST", merge, timeout=_SHORT_MERGE)
            return
        except Trouble:  # a long one goes on without us
            self._ask("POST", f"{merge}&wait_for_completion=false")
        merging = time.monotonic()
        while time.monotonic() - merging < _NO_MERGE:
            self._ask("POST", f"/{self.index}/_refresh")  # before it the old segments count
            found = self._ask("GET", f"/{self.index}/_stats/segments,merge")["_all"]["primaries"]
            if found["segments"]["count"] <= self._block["shards"]:
                return
            if found["merges"]["current"]:
                merging = time.monotonic()
            time.sleep(_LOOK)

    def switch(self, filled: Filled) -> ElasticSummary:
        """Let the alias stand for the index, in one step, and remove what is older than the one before."""
        now = find_index(self.connection, self.alias)
        built = now is None or now.name != self.index
        if built:
            actions: list[dict[str, Any]] = [{"add": {"index": self.index, "alias": self.alias}}]
            if now is not None:
                actions.insert(0, {"remove": {"index": now.name, "alias": self.alias, "must_exist": True}})
            self._ask("POST", "/_aliases", {"actions": actions})
            if now is not None:
                self._remove_before(now)
        return ElasticSummary(built, self.index, self.written.documents, self.written.duplicates, self.written.content, filled)

    def _remove_before(self, previous: ElasticIndex) -> None:
        """Indexes of this alias that were begun before the previous one."""
        everything = self._ask("GET", f"/{quote(self.alias, safe='')}-*")
        for name, found in everything.items():
            note = ((found.get("mappings") or {}).get("_meta") or {}).get(NOTE) or {}
            made, settings = int(previous.settings["creation_date"]), found["settings"]["index"]
            if (
                note.get("alias") == self.alias
                and not found["aliases"]
                and int(settings["creation_date"]) < made
                and name != self.index
            ):
                self.connection.ask("DELETE", f"/{quote(name, safe='')}", missing=True)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self.connection.ask(method, path, body).body
        except Refused as refused:
            if refused.kind == "resource_already_exists_exception":  # an answer that was lost, or another build of the same
                return None
            raise RetrieverError(
                f"{self._where}: {self.connection.shown} refuses index {self.index}: {refused.said}; correct the config"
            ) from None

    def _batches(self, mask: np.ndarray | None) -> Iterator[pa.RecordBatch]:
        row = 0
        for whole in open_arrow(self._documents):
            for start in range(0, whole.num_rows, _PIECE):
                batch = whole.slice(start, _PIECE)
                chosen = batch if mask is None else batch.filter(pa.array(mask[row : row + batch.num_rows]))
                row += batch.num_rows
                if chosen.num_rows:
                    yield chosen

    def _first_of_their_text(self) -> np.ndarray:
        hashes = bytearray()  # 16 bytes a document
        for batch in self._batches(None):
            hashes += b"".join(bytes.fromhex(text_hash(text)) for text in joined(batch))
        order, new = in_kinds(np.frombuffer(hashes, dtype="<u8").reshape(-1, 2))
        mask = np.zeros(len(order), dtype=bool)
        mask[order[new]] = True
        return mask

    def _note(self, complete: bool) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "alias": self.alias,
            "corpus": self.written.content,
            "documents": self.written.documents,
            "duplicates": self.written.duplicates,
            "text_field": self.fields.text_field,
            "vector_field": self.fields.vector_field,
            "encoder": self.encoder_identity,
            "encoder_name": self.fields.dense[1]["encoder"]["model"] if self.fields.dense else None,
            "complete": complete,
        }
