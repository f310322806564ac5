"""The local indexes that a config names, each with the fields that its retrievers search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.errors import RetrieverError
from retrievers.analyzer import analyzer_name
from retrievers.kinds import RetrieverSettings
from retrievers.local.index import index_path
from retrievers.local.settings import LocalSettings
from retrievers.settings import AnyEncoderSettings, Bm25Settings, FieldWeights

OF_THE_CORPUS = "of the corpus"
"""In place of an analyzer: the one for the language that the corpus is in."""


class IndexFields(NamedTuple):
    """The fields of a local index: BM25 with an analyzer, vectors of an encoder; None without the field."""

    analyzer: str | None = None
    encoder: AnyEncoderSettings | None = None
    similarity: Bm25Settings = Bm25Settings()
    weights: FieldWeights = FieldWeights()


def local_indexes(retrievers: Mapping[str, RetrieverSettings]) -> dict[str, IndexFields]:
    """Returns the fields of each local index of a config's `retrieve.retrievers`, by its path.

    Two retrievers may share an index, which then has both fields. Of two with BM25 one may leave the analyzer to the other.

    Raises:
        RetrieverError: Two retrievers of one index have different analyzers, constants or weights of BM25, or
            encoders.
    """
    indexes: dict[str, IndexFields] = {}
    owners: dict[tuple[str, str], str] = {}  # (path, field) -> the first retriever with it
    for name, settings in retrievers.items():
        if not isinstance(settings, LocalSettings):
            continue
        path = settings.index if settings.index.startswith("s3://") else str(index_path(settings.index))
        fields = indexes.get(path, IndexFields())
        if settings.encoder is not None:
            differs = "encoder" if fields.encoder not in (None, settings.encoder) else None
            indexes[path] = fields._replace(encoder=settings.encoder)
        else:
            mine = OF_THE_CORPUS if settings.analyzer is None else analyzer_name(settings.analyzer)
            there = fields.analyzer
            open_ = {None, OF_THE_CORPUS}
            differs = "analyzer" if there != mine and not {there, mine} & open_ else None
            if there is not None and fields.similarity != settings.bm25_constants:
                differs = "similarity"
            if there is not None and fields.weights != settings.field_weights:
                differs = "fields"
            indexes[path] = fields._replace(
                analyzer=there if there is not None and mine == OF_THE_CORPUS else mine,
                similarity=settings.bm25_constants,
                weights=settings.field_weights,
            )
        first = owners.setdefault((path, "dense" if settings.encoder else "bm25"), name)
        if differs:
            raise RetrieverError(
                "index-other",
                f"retrieve.retrievers.{name}: another retriever wants index {path} otherwise: {first} and {name} share "
                f"the index {path} but not the {differs}; give each its own",
            )
    return indexes
