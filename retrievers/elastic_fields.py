"""Which indexes in Elasticsearch a config names, and which retrievers share one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retrievers.elastic_block import elastic_block, is_dense
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
