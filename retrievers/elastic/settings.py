"""Settings of a retriever of `kind: elastic`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY, Settings
from retrievers.kinds import RetrieverSettings
from retrievers.settings import AnyEncoderSettings, Bm25Settings, bm25_or_dense

TEXT_FIELD, VECTOR_FIELD = "text", "vector"
FOREIGN = "elastic:"  # begins the identity of a corpus whose index was not built here
_COARSE = ("int4_flat", "bbq_flat", "int4_hnsw", "bbq_hnsw")
_OVERSAMPLE = 3.0  # of the coarse types: Elasticsearch's own for bbq
MOST_HITS = 10_000  # hits that Elasticsearch returns at most unless the index says otherwise; also the limit of num_candidates
_GRAPH = {"m": 16, "ef_construction": 100}  # Elasticsearch's own


class QuerySettings(Settings):
    """Form of a BM25 query."""

    fields: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Field -> boost; the best field counts. {}: the retriever's `field` alone."""


class VectorSettings(Settings):
    """Form of the vectors in the index."""

    type: Literal["flat", "int8_flat", "int4_flat", "bbq_flat", "hnsw", "int8_hnsw", "int4_hnsw", "bbq_hnsw"] = "int8_hnsw"
    """flat: exact; hnsw: approximate, by a graph; int8, int4, bbq: quantised."""


class ElasticSettings(RetrieverSettings):
    """Index in Elasticsearch: BM25 or, with `encoder`, dense search."""

    opener: ClassVar[str] = "retrievers.elastic.retriever"
    builder: ClassVar[str] = "retrievers.elastic.build"
    foreign: ClassVar[bool] = True
    index: Annotated[str, Field(min_length=1), NOT_IDENTITY]
    """Alias or index; `dmqr index` points the alias at the index that it has built."""
    url_env: Annotated[str, NOT_IDENTITY] = "ELASTICSEARCH_URL"
    """Environment variable with the address, or several separated by commas; user and password may stand in it."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Environment variable with an API key."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest score of a hit that takes part in fusion; null: any."""
    shards: Annotated[int, Field(gt=0), NOT_IDENTITY] = 1
    """Shards of an index that is built."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 8
    """Concurrent requests of the whole job."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 60
    """Timeout of a request."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """Minutes for which a search waits for a server that is overloaded or away."""
    kind: Literal["elastic"]
    field: str | None = None
    """Searched field; null: text, or vector with an encoder."""
    analyzer: str | None = None
    """Analyzer of the server; null: english."""
    query: QuerySettings | None = None
    """Form of the BM25 query."""
    similarity: Bm25Settings | None = None
    """Constants of BM25."""
    encoder: AnyEncoderSettings | None = None
    """Encoder of dense search."""
    filter: Annotated[dict[str, Any] | None, NOT_IDENTITY] = None
    """Elasticsearch query that restricts the documents; a filter of the alias counts, too."""
    together: bool = False
    """Searches all texts of a query as one."""
    vector: VectorSettings | None = None
    """Vectors of dense search."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        checked = bm25_or_dense(values, ("analyzer", "query", "similarity"), ("vector",))
        if isinstance(checked, dict) and checked.get("encoder") is None and checked.get("analyzer") is None:
            return checked | {"analyzer": "english"}
        return checked

    @property
    def is_approximate(self) -> bool:
        return self.encoder is not None

    def own_limits(self) -> list[tuple[str | None, int]]:
        return [(None, self.max_in_flight)]

    def location(self, identity: Mapping[str, Any]) -> str:
        only, usual = identity.get("filter"), type(self).model_fields["url_env"].default
        name = super().location(identity) + ("" if only is None else f" where {only}")
        return name if self.url_env == usual else f"{name} of {self.url_env}"

    def at(self, identity: Mapping[str, Any]) -> Self:
        if "index" not in identity:
            return self
        return self.model_copy(update={"index": identity["index"], "filter": identity.get("filter")})

    # What is taken where the config says nothing.

    @property
    def searched_field(self) -> str:
        return self.field or (VECTOR_FIELD if self.encoder else TEXT_FIELD)

    @property
    def bm25_query(self) -> QuerySettings:
        return self.query or QuerySettings()

    @property
    def bm25_constants(self) -> Bm25Settings:
        return self.similarity or Bm25Settings()

    @property
    def vectors(self) -> dict[str, Any]:
        """The form of vectors in the index, as Elasticsearch's `index_options`."""
        kind = (self.vector or VectorSettings()).type
        return {"type": kind} | ({} if kind.endswith("flat") else _GRAPH)

    @property
    def rescored(self) -> float | None:
        """Number of times the depth is scored again with the vectors as they were; None: nothing."""
        return _OVERSAMPLE if self.vectors["type"] in _COARSE else None
