"""Which indexes in Elasticsearch a config names, and which retrievers share one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retrievers.elastic_block import TEXT_FIELD, elastic_block, is_dense
from retrievers.elastic_fill import PASSAGE
from retrievers.retriever import RetrieverError

_SHARED = ("shards", "replicas", "url_env", "api_key_env", "user_env", "password_env", "ca_file")


class Fields(NamedTuple):
    """The retrievers' blocks that want one index, with their names: BM25, dense, or both."""

    bm25: tuple[str, dict[str, Any]] | None = None
    dense: tuple[str, dict[str, Any]] | None = None

    @property
    def first(self) -> tuple[str, dict[str, Any]]:
        """The one that says where the server is."""
        found = self.bm25 or self.dense
        assert found is not None
        return found

    @property
    def text_field(self) -> str:
        """The field of the joined text."""
        return str(self.bm25[1]["field"]) if self.bm25 else TEXT_FIELD

    @property
    def vector_field(self) -> str | None:
        """The field of the vectors, if there are any."""
        return str(self.dense[1]["field"]) if self.dense else None

    def analysis(self) -> dict[str, Any]:
        """What the settings of the index say of BM25."""
        return {"similarity": {"default": {"type": "BM25"} | self.bm25[1]["similarity"]}} if self.bm25 else {}

    def mapping(self, dim: int) -> dict[str, Any]:
        """The mapping of the index, with vectors of that length."""
        text = {"type": "text", "analyzer": self.bm25[1]["analyzer"]} if self.bm25 else {"type": "text", "index": False}
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
                "index_options": self.dense[1]["vector"],
            }
        return {"dynamic": False, "properties": properties}


def elastic_indexes(retrievers: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Fields]:
    """The indexes that a config's ``retrieve.retrievers`` names: (variable with the address, alias) -> who wants it.

    Raises:
        RetrieverError: two retrievers want one index otherwise.
    """
    wanted: dict[tuple[str, str], Fields] = {}
    for name, settings in retrievers.items():
        if settings.get("kind") != "elastic":
            continue
        block = elastic_block(name, settings)
        place = block["url_env"], block["index"]
        fields, field = wanted.get(place, Fields()), "dense" if is_dense(block) else "bm25"
        for other, there in filter(None, fields):
            keys = [key for key in _SHARED if there[key] != block[key]]
            if is_dense(there) == is_dense(block):
                keys += [
                    key for key in ("field", "analyzer", "similarity", "encoder", "vector") if there.get(key) != block.get(key)
                ]
            if keys:
                raise RetrieverError(
                    f"retrieve.retrievers.{name}.{keys[0]}: another retriever wants index {block['index']} otherwise: {other} "
                    f"and {name} share it, but not {keys[0]}; give each its own index, or both the same {keys[0]}"
                )
        if getattr(fields, field) is None:
            fields = fields._replace(**{field: (name, block)})
        wanted[place] = fields
    return wanted
