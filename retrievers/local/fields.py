"""The local indexes that a config names, each with the fields that its retrievers search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from retrievers.analyzer import analyzer_name
from retrievers.corpora.builds import shared_indexes
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
        RetrieverError: Two retrievers of one index have different analyzers, constants or weights of BM25, or encoders.
    """
    indexes = shared_indexes(retrievers, LocalSettings, _path, _differing)
    return {path: _fields([*sharing.values()]) for path, sharing in indexes.items()}


def _path(settings: LocalSettings) -> str:
    return settings.index if settings.index.startswith("s3://") else str(index_path(settings.index))


def _differing(one: LocalSettings, other: LocalSettings) -> str | None:
    if one.encoder is not None and other.encoder is not None:
        return "encoder" if one.encoder != other.encoder else None
    if one.encoder is not None or other.encoder is not None:
        return None
    if one.analyzer and other.analyzer and analyzer_name(one.analyzer) != analyzer_name(other.analyzer):
        return "analyzer"
    if one.bm25_constants != other.bm25_constants:
        return "similarity"
    return "fields" if one.field_weights != other.field_weights else None


def _fields(sharing: list[LocalSettings]) -> IndexFields:
    encoder = next((one.encoder for one in sharing if one.encoder is not None), None)
    bm25 = [one for one in sharing if one.encoder is None]
    if not bm25:
        return IndexFields(encoder=encoder)
    named = next((analyzer_name(one.analyzer) for one in bm25 if one.analyzer), OF_THE_CORPUS)
    return IndexFields(named, encoder, bm25[0].bm25_constants, bm25[0].field_weights)
