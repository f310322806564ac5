"""What a config may say of a retriever of `kind: elastic`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cluster.settings import NOT_IDENTITY, Names, Settings
from retrievers.kinds import RetrieverSettings
from retrievers.settings import AnyEncoderSettings, Bm25Settings, bm25_or_dense

TEXT_FIELD, VECTOR_FIELD = "text", "vector"
FOREIGN = "elastic:"
"""Begins the identity of a corpus whose index was not built here."""
_COARSE = ("int4_flat", "bbq_flat", "int4_hnsw", "bbq_hnsw")
_OVERSAMPLE = 3.0  # of the coarse types, where the config says nothing: Elasticsearch's own for bbq
_MOST_HITS = 10_000
_GRAPH = {"m": 16, "ef_construction": 100}  # Elasticsearch's own


class QuerySettings(Settings):
    """The form of a BM25 query."""

    fields: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Field -> boost; {}: the retriever's `field` alone."""
    type: Literal["best_fields", "most_fields", "cross_fields", "combined_fields"] = "best_fields"
    """How the scores of several fields become one; combined_fields: as those of one text in which each field stands as often as
    its boost says (BM25F). Of texts beyond `max_terms` cross_fields and combined_fields are as most_fields."""
    minimum_should_match: int | str | None = None
    """How many of its words a document must hold; null: one."""
    max_terms: Annotated[int, Field(gt=0, le=1024)] = 100
    """Texts with more different words are searched with this many of the most telling ones."""

    @model_validator(mode="after")
    def _boosts_of_combined_fields(self) -> QuerySettings:
        for name, boost in self.fields.items():
            if self.type == "combined_fields" and boost < 1:
                raise ValueError(f"fields.{name} is {boost:g}, and combined_fields takes boosts of 1 and more; raise them all")
        return self


class VectorSettings(Settings):
    """How the index keeps vectors."""

    type: Literal["flat", "int8_flat", "int4_flat", "bbq_flat", "hnsw", "int8_hnsw", "int4_hnsw", "bbq_hnsw"] = "int8_hnsw"
    """flat: exact; hnsw: by a graph; int8, int4, bbq: quantised."""
    m: Annotated[int, Field(gt=1, le=512)] | None = None
    """Neighbours of a node of the graph; null: 16."""
    ef_construction: Annotated[int, Field(gt=1, le=3200)] | None = None
    """Candidates for them while it is built; null: 100."""

    @model_validator(mode="after")
    def _keys_of_the_type(self) -> VectorSettings:
        for key in ("m", "ef_construction"):
            if self.type.endswith("flat") and getattr(self, key) is not None:
                raise ValueError(f"{key} is of a graph, and type {self.type} has none; take a type with hnsw, or remove {key}")
        return self


class ElasticIndexSettings(RetrieverSettings):
    """An index in Elasticsearch, whatever is searched in it, and how its server is reached."""

    foreign: ClassVar[bool] = True
    index: Annotated[str, Field(min_length=1), NOT_IDENTITY]
    """An alias; `dmqr index` lets it stand for the index that it has built. An index of others can be searched, too."""
    url_env: Annotated[str, NOT_IDENTITY] = "ELASTICSEARCH_URL"
    """Name of the environment variable with the address, or several, separated by commas."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Name of the environment variable that holds an API key; null: the server asks for none."""
    user_env: Annotated[str | None, NOT_IDENTITY] = None
    """With password_env, in place of a key."""
    password_env: Annotated[str | None, NOT_IDENTITY] = None
    """With user_env: names of the environment variables that hold both."""
    api_key_file: Annotated[str | None, NOT_IDENTITY, Names.KEY] = None
    """In place of api_key_env: a file on every node that holds the key; read anew when the server refuses it."""
    password_file: Annotated[str | None, NOT_IDENTITY, Names.KEY] = None
    """In place of password_env: a file on every node that holds the password; read anew when the server refuses it."""
    ca_file: Annotated[str | None, NOT_IDENTITY, Names.FILE] = None
    """PEM file of the authority that has signed the server's certificate; null: the usual ones."""
    score_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of its lists with a lower score take no part in fusion; null: all do."""
    shards: Annotated[int, Field(gt=0), NOT_IDENTITY] = 1
    """Of the index that is built; another number is another index: one built here with another is refused."""
    replicas: Annotated[int, Field(ge=0), NOT_IDENTITY] = 1
    """Of the index; set on one that is there."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 8
    """Requests of the whole job at a time."""
    batch: Annotated[int, Field(gt=0, le=1000), NOT_IDENTITY] = 64
    """Searches per request; half of it for dense ones."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 60
    """For one request."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """How long a search waits for a server that is overloaded or away."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        passwords = [key for key in ("password_env", "password_file") if getattr(self, key) is not None]
        given = [key for key in ("api_key_env", "api_key_file", "user_env") if getattr(self, key) is not None]
        if (self.user_env is None) != (not passwords):
            raise ValueError("user_env and password_env belong together, or user_env and password_file; give both, or neither")
        for several in (given, passwords):
            if len(several) > 1:
                raise ValueError(f"has {several[0]} and {several[1]}; give one of them")
        return self

    def own_limits(self) -> list[tuple[str | None, int]]:
        """Returns the limit of its requests."""
        return [(None, self.max_in_flight)]

    def check_depth(self, depth: int) -> None:
        """Refuses more hits than the server gives."""
        if depth > _MOST_HITS:
            raise ValueError(f"depth {depth} is more than the {_MOST_HITS:,} hits that Elasticsearch gives; lower it")

    def place(self, identity: Mapping[str, Any]) -> str:
        """The name of the index, with the filter of its searches, and its server where that is not the usual one."""
        only, usual = identity.get("filter"), type(self).model_fields["url_env"].default
        name = super().place(identity) + ("" if only is None else f" where {only}")
        return name if self.url_env == usual else f"{name} of {self.url_env}"

    def at(self, identity: Mapping[str, Any]) -> Self:
        """The settings with the concrete index."""
        return self.model_copy(update={"index": identity["index"]}) if "index" in identity else self


class ElasticSettings(ElasticIndexSettings):
    """An index in Elasticsearch: BM25 (`analyzer`) or, with `encoder`, dense."""

    opener: ClassVar[str] = "retrievers.elastic.retriever"
    builder: ClassVar[str] = "retrievers.elastic.builds"
    kind: Literal["elastic"]
    """This kind."""
    field: str | None = None
    """What is searched; null: text, or vector where there is an encoder."""
    analyzer: str | None = None
    """One of the server's; english if nothing is said."""
    query: QuerySettings | None = None
    """Of BM25."""
    similarity: Bm25Settings | None = None
    """Of BM25."""
    encoder: AnyEncoderSettings | None = None
    """Of dense search."""
    filter: Annotated[dict[str, Any] | None, NOT_IDENTITY] = None
    """A query of Elasticsearch: only documents that it finds are searched; that of the alias counts beside it."""
    together: bool = False
    """All texts of a query are searched as one: docs/strategies.md."""
    vector: VectorSettings | None = None
    """Of dense search."""
    num_candidates: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Neighbours looked at per shard; null: three times the depth, 100 at least."""
    oversample: Annotated[float, Field(ge=1, lt=10)] | None = None
    """Of quantised vectors: this many times the depth are scored again with the vectors as they were; null: 3 for int4
    and bbq, else none."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        checked = bm25_or_dense(values, ("analyzer", "query", "similarity"), ("vector", "num_candidates", "oversample"))
        if isinstance(checked, dict) and checked.get("encoder") is None and checked.get("analyzer") is None:
            return checked | {"analyzer": "english"}
        return checked

    @property
    def is_approximate(self) -> bool:
        """Whether neighbours are looked for by their number."""
        return self.encoder is not None

    def at(self, identity: Mapping[str, Any]) -> Self:
        """The settings with the concrete index, and the filter of its alias."""
        if "index" not in identity:
            return self
        return self.model_copy(update={"index": identity["index"], "filter": identity.get("filter")})

    # What is taken where the config says nothing.

    @property
    def searched_field(self) -> str:
        """The field that is searched."""
        return self.field or (VECTOR_FIELD if self.encoder else TEXT_FIELD)

    @property
    def bm25_query(self) -> QuerySettings:
        """The form of a BM25 query."""
        return self.query or QuerySettings()

    @property
    def bm25_constants(self) -> Bm25Settings:
        """The constants of BM25."""
        return self.similarity or Bm25Settings()

    @property
    def vectors(self) -> VectorSettings:
        """How the index keeps vectors, with m and ef_construction where there is a graph."""
        vector = self.vector or VectorSettings()
        return vector if vector.type.endswith("flat") else VectorSettings(**(_GRAPH | vector.model_dump(exclude_none=True)))

    @property
    def rescored(self) -> float | None:
        """How many times the depth is scored again with the vectors as they were; None: nothing."""
        return _OVERSAMPLE if self.oversample is None and self.vectors.type in _COARSE else self.oversample
