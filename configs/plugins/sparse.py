"""Learned sparse vectors (SPLADE) in a field `sparse_vector` of Elasticsearch: a retriever as a plug-in.

A text is a weight for each token of the model's vocabulary: of its logits the logarithm of 1 + what is positive, the highest
over the text's tokens. A score is the product of the weights that query and document share, as Elasticsearch keeps them (nine
bits of precision). The index has the documents' texts, too, so that a reranker can read them.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

import orjson
from pydantic import Field

from cluster.errors import RetrieverError
from cluster.settings import NOT_IDENTITY, Names
from retrievers.elastic.bulk import BulkLoader, create_action
from retrievers.elastic.connection import Connection
from retrievers.elastic.documents import ElasticDocuments
from retrievers.elastic.index import FORMAT, NOTE, find_index, ready_index
from retrievers.elastic.query import envelope, header
from retrievers.elastic.search import MultiSearch
from retrievers.elastic.settings import ElasticIndexSettings
from retrievers.elastic.state import closed_to_writing, index_state
from retrievers.models import model_identity, resolve_model
from retrievers.retriever import check_planned, distinct, lists_of, no_heartbeat


class SparseSettings(ElasticIndexSettings):
    """An index in Elasticsearch with the weights that a SPLADE model gives the tokens of its vocabulary."""

    filterable: ClassVar[bool] = False
    model: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.MODEL]
    """Weights of a masked language model: folder, hub name or `package:NAME`."""
    max_length: Annotated[int, Field(ge=8)] = 256
    """Tokens of a text that are read."""
    most: Annotated[int, Field(gt=0, le=1024)] = 256
    """Tokens of a text that count, those of the highest weights."""


class Splade:
    """The model: weights of tokens, by their numbers in its vocabulary."""

    def __init__(self, settings: SparseSettings, device: str = "cpu") -> None:
        """Loads the weights."""
        import torch
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        folder = resolve_model(settings.model)
        self._torch, self._settings, self._device = torch, settings, device
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForMaskedLM.from_pretrained(folder).to(device).eval()
        self._special = self._tokenizer.all_special_ids

    def weights(self, texts: list[str], alive: Any = no_heartbeat) -> list[dict[str, float]]:
        """Returns token -> weight for each text; texts are put in 32 at a time, those of one length together."""
        found: list[dict[str, float]] = [{} for _ in texts]
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), 32):
            places = order[start : start + 32]
            for place, one in zip(places, self._batch([texts[place] for place in places]), strict=True):
                found[place] = one
            alive()
        return found

    def _batch(self, texts: list[str]) -> list[dict[str, float]]:
        length = self._settings.max_length
        put = self._tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt").to(self._device)
        with self._torch.inference_mode():
            logits = self._model(**put).logits.float()
            kept = put["attention_mask"].unsqueeze(-1)
            weights = (self._torch.log1p(self._torch.relu(logits)) * kept).amax(dim=1)
            weights[:, self._special] = 0
            best, tokens = weights.topk(min(self._settings.most, weights.shape[1]), dim=1)
        rows = zip(tokens.tolist(), best.tolist(), strict=True)
        return [{str(t): w for t, w in zip(*row, strict=True) if w > 0} for row in rows]


class Sparse:
    """Searches the index; implements `retrievers.retriever.Retriever`."""

    def __init__(self, settings: SparseSettings, connection: Connection, identity: dict[str, Any], model: Splade) -> None:
        """Searches the index that the identity names."""
        self._identity, self._model = identity, model
        self._search = MultiSearch(connection, identity["index"], settings.max_in_flight, settings.batch, True)

    def identity(self) -> dict[str, Any]:
        """Returns the concrete index and the model."""
        return self._identity

    def search(self, texts: Any, depth: int, alive: Any = no_heartbeat) -> Any:
        """Returns the `depth` best documents of each text; one that shares no token with it is no hit."""
        once, inverse = distinct([one.text for one in texts])
        bodies, asked = [], []
        for place, weights in enumerate(self._model.weights(once, alive)):
            if weights and once[place].strip():
                query = {"sparse_vector": {"field": "tokens", "query_vector": weights}}
                search = {"query": query} | envelope(depth, True)
                bodies.append(b"\n".join([orjson.dumps(header(once[place])), orjson.dumps(search), b""]))
                asked.append(place)
        found = dict(zip(asked, self._search.run(bodies, alive), strict=True))
        hits = [list(zip(*found[place], strict=True)) if place in found else [] for place in inverse.tolist()]
        return lists_of(hits, depth)


def open_retriever(name: str, settings: SparseSettings, device: str = "cpu", expect_identity: Any = None) -> Sparse:
    """Opens the index and the model."""
    connection = Connection(_where(name), settings, settings.max_in_flight, patient=expect_identity is not None)
    identity = _identity(name, settings.at(expect_identity or {}), connection)
    check_planned(f"{_where(name)}: index {settings.index}", expect_identity, identity)
    return Sparse(settings, connection, identity, Splade(settings, device))


def open_documents(name: str, settings: SparseSettings, *, patient: bool = False) -> ElasticDocuments:
    """Opens the texts of the index."""
    connection = Connection(_where(name), settings, settings.max_in_flight, patient=patient)
    return ElasticDocuments(connection, ready_index(connection, settings.index), "text", settings.max_in_flight)


def retriever_identity(name: str, settings: SparseSettings) -> dict[str, Any]:
    """Returns the concrete index, its corpus and the model's weights, without loading them."""
    with closing(Connection(_where(name), settings)) as connection:
        return _identity(name, settings, connection)


def retriever_facts(name: str, settings: SparseSettings, identity: dict[str, Any]) -> dict[str, Any]:
    """Returns what a run's record says of the index beside."""
    with closing(Connection(_where(name), settings)) as connection:
        index = ready_index(connection, identity["index"])
        facts = {"named": settings.index, "documents": (index.note or {})["documents"]}
        return facts | {"closed_to_writing": closed_to_writing(index), "state": index_state(connection, index, None)}


def build_index(name: str, settings: SparseSettings, corpus: Any, progress: Any) -> Any:
    """Builds an index ALIAS-HASH beside the old one, then points the alias to it; one of the same corpus and model is kept."""
    made_by = {"corpus": corpus.content, "model": model_identity(settings.model), "read": _read(settings)}
    concrete = f"{settings.index}-{hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()[:12]}"
    note = made_by | {"format": FORMAT, "alias": settings.index, "documents": corpus.documents, "text_field": "text"}
    path = f"/{quote(concrete, safe='')}"
    with closing(Connection(_where(name), settings, 4)) as connection:
        connection.check()
        before, there = find_index(connection, settings.index), find_index(connection, concrete)
        if before is not None and before.name == settings.index:
            raise RetrieverError("index-place", f"{_where(name)}: {settings.index} is an index; take another name as alias")
        if before is not None and before.name == concrete and (before.note or {}).get("complete"):
            return corpus.there()
        if there is not None:  # of a build that was killed
            connection.request("DELETE", path, missing=True)
        fields = {"doc_id": {"type": "keyword"}, "text": {"type": "text", "index": False}, "tokens": {"type": "sparse_vector"}}
        about = {"number_of_shards": settings.shards, "number_of_replicas": 0, "refresh_interval": "-1"}
        mapping = {"dynamic": False, "properties": fields, "_meta": {NOTE: note | {"complete": False}}}
        connection.request("PUT", path, {"settings": {"index": about}, "mappings": mapping})
        _load(settings, connection, concrete, corpus, progress)
        connection.request("POST", f"{path}/_refresh")
        final = {"number_of_replicas": settings.replicas, "refresh_interval": None, "blocks.write": True}
        connection.request("PUT", f"{path}/_settings", {"index": final})
        connection.request("PUT", f"{path}/_mapping", {"_meta": {NOTE: note | {"complete": True}}})
        actions: list[dict[str, Any]] = [{"add": {"index": concrete, "alias": settings.index}}]
        if before is not None:  # it stays, for runs that still search it
            actions.insert(0, {"remove": {"index": before.name, "alias": settings.index}})
        connection.request("POST", "/_aliases", {"actions": actions})
    other = before is not None and (before.note or {}).get("corpus") != corpus.content
    return corpus.built(replaced=(before.note or {}).get("documents", 0) if before is not None and other else None)


def _load(settings: SparseSettings, connection: Connection, index: str, corpus: Any, progress: Any) -> None:
    model, loader, done = Splade(settings), BulkLoader(connection, index, 4), 0
    with closing(loader):
        for doc_ids, texts in corpus.texts(256):
            rows = zip(doc_ids, texts, model.weights(texts), strict=True)
            loader.add([create_action(one, {"doc_id": one, "text": text, "tokens": tokens}) for one, text, tokens in rows])
            done += len(doc_ids)
            progress("sparse", done, corpus.documents)
        loader.drain()


def _identity(name: str, settings: SparseSettings, connection: Connection) -> dict[str, Any]:
    index = ready_index(connection, settings.index)
    note, model = index.note or {}, model_identity(settings.model)
    if (note.get("model"), note.get("read")) != (model, _read(settings)):
        raise RetrieverError(
            "index-other",
            f"{_where(name)}: index {index.name} was built with another model, max_length or most; set those, or build it "
            "again: dmqr index CONFIG --corpus PATH",
        )
    return {"kind": "sparse", "index": index.name, "uuid": index.uuid, "corpus": index.corpus, "model": model}


def _read(settings: SparseSettings) -> list[int]:
    return [settings.max_length, settings.most]


def _where(name: str) -> str:
    return f"retrieve.retrievers.{name}"
