"""The Elasticsearch indexes that a config names, each with the retrievers that share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retrievers.corpora.builds import shared_indexes
from retrievers.elastic.passages import PASSAGE
from retrievers.elastic.settings import TEXT_FIELD, ElasticSettings
from retrievers.kinds import RetrieverSettings
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
        """The retriever whose connection settings the build uses."""
        found = self.bm25 or self.dense
        assert found is not None
        return found

    @property
    def encoder(self) -> AnyEncoderSettings:
        """The encoder of the vectors; only where there are any."""
        assert self.dense is not None
        assert self.dense[1].encoder is not None
        return self.dense[1].encoder

    @property
    def text_field(self) -> str:
        """The field of the joined text."""
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


def _differing(one: ElasticSettings, other: ElasticSettings) -> str | None:
    compared = _SHARED | (_OF_A_FIELD if (one.encoder is None) == (other.encoder is None) else {})
    return next((key for key, name in compared.items() if getattr(one, name) != getattr(other, name)), None)
