"""What a config may say of a retriever: one model per kind, told apart by `kind`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from jobs.part import Part


class Encoder(Part):
    """The dense encoder: weights, and how texts are put into it."""

    model: str
    """Folder, hub name, or `package:NAME` for weights that an installed package carries."""
    pooling: Literal["cls", "mean"] = "cls"
    query_prefix: str = ""
    passage_prefix: str = ""
    max_length: Annotated[int, Field(gt=0)] | None = None
    """Tokens; null: the model's own limit."""


def _one_way(values: Any, analyzer: str, bm25_only: tuple[str, ...], dense_only: tuple[str, ...]) -> Any:
    """BM25 with `analyzer` where nothing is said, or dense: keys of the other way are refused."""
    if not isinstance(values, dict):
        return values
    given = {key: value for key, value in values.items() if value is not None}
    if given.get("encoder") is None:
        for key in dense_only:
            if key in given:
                raise ValueError(f"{key} is of dense search, and there is no encoder; give one, or remove {key}")
        return {"analyzer": analyzer} | given
    for key in bm25_only:
        if key in given:
            raise ValueError(f"has {key} (BM25) and encoder (dense); make two retrievers of it, they may share one index")
    return values


class Local(Part):
    """An index in a folder: BM25 (`analyzer`) or, with `encoder`, exact dense search."""

    kind: Literal["local"]
    index: str
    """Its folder."""
    analyzer: Literal["english", "unicode"] | None = None
    encoder: Encoder | None = None

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        return _one_way(values, "english", ("analyzer",), ())


class Query(Part):
    """The form of a BM25 query."""

    fields: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Field -> boost; {}: the retriever's `field` alone."""
    type: Literal["best_fields", "most_fields", "cross_fields"] = "best_fields"
    """How the scores of several fields become one; of texts beyond `max_terms` cross_fields is as most_fields."""
    minimum_should_match: int | str | None = None
    """How many of its words a document must hold; null: one."""
    max_terms: Annotated[int, Field(gt=0, le=1024)] = 100
    """Texts with more different words are searched with this many of the most telling ones."""


class Similarity(Part):
    """The constants of BM25."""

    k1: Annotated[float, Field(ge=0)] = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75


class Vectors(Part):
    """How the index keeps vectors."""

    type: Literal["flat", "int8_flat", "int4_flat", "bbq_flat", "hnsw", "int8_hnsw", "int4_hnsw", "bbq_hnsw"] = "int8_hnsw"
    """flat: exact; hnsw: by a graph; int8, int4, bbq: quantised."""
    m: Annotated[int, Field(gt=1, le=512)] | None = None
    """Neighbours of a node of the graph; null: 16."""
    ef_construction: Annotated[int, Field(gt=1, le=3200)] | None = None
    """Candidates for them while it is built; null: 100."""

    @model_validator(mode="after")
    def _keys_of_the_type(self) -> Vectors:
        for key in ("m", "ef_construction"):
            if self.type.endswith("flat") and getattr(self, key) is not None:
                raise ValueError(f"{key} is of a graph, and type {self.type} has none; take a type with hnsw, or remove {key}")
        return self


class Elastic(Part):
    """An index in Elasticsearch: BM25 (`analyzer`) or, with `encoder`, dense."""

    kind: Literal["elastic"]
    index: str
    """An alias; `dmqr index` lets it stand for the index that it has built. An index of others can be searched, too."""
    field: str | None = None
    """What is searched; null: text, or vector where there is an encoder."""
    url_env: str = "ELASTICSEARCH_URL"
    """Name of the environment variable with the address, or several, separated by commas."""
    api_key_env: str | None = None
    user_env: str | None = None
    password_env: str | None = None
    """Names of the environment variables that hold what the server asks for; null: it asks for nothing."""
    ca_file: str | None = None
    """PEM file of the authority that has signed the server's certificate; null: the usual ones."""
    analyzer: str | None = None
    """One of the server's; english if nothing is said."""
    query: Query | None = None
    similarity: Similarity | None = None
    encoder: Encoder | None = None
    vector: Vectors | None = None
    num_candidates: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """Neighbours looked at per shard; null: three times the depth, 100 at least."""
    oversample: Annotated[float, Field(ge=1, lt=10)] | None = None
    """Of quantised vectors: this many times the depth are scored again with the vectors as they were; null: 3 for int4
    and bbq, else none."""
    shards: Annotated[int, Field(gt=0)] = 1
    replicas: Annotated[int, Field(ge=0)] = 1
    max_in_flight: Annotated[int, Field(gt=0)] = 8
    """Requests of the whole job at a time."""
    batch: Annotated[int, Field(gt=0, le=1000)] = 64
    """Searches per request; half of it for dense ones."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60
    patience_minutes: Annotated[float, Field(gt=0)] = 10
    """How long a search waits for a server that is overloaded or away."""

    @model_validator(mode="before")
    @classmethod
    def _bm25_or_dense(cls, values: Any) -> Any:
        return _one_way(values, "english", ("analyzer", "query", "similarity"), ("vector", "num_candidates", "oversample"))

    @model_validator(mode="after")
    def _one_key(self) -> Elastic:
        if (self.user_env is None) != (self.password_env is None):
            raise ValueError("user_env and password_env belong together; give both, or neither")
        if self.api_key_env is not None and self.user_env is not None:
            raise ValueError("has api_key_env and user_env; give one of them")
        return self


Retriever = Annotated[Local | Elastic, Field(discriminator="kind")]
