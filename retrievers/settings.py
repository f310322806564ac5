"""Settings of the corpus, encoders, fusion and reranking, as frozen models.

Those of a kind of retriever are in its folder (`local/settings.py`, `elastic/settings.py`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from cluster.http import server_address
from cluster.settings import FORM, NOT_IDENTITY, Names, Paths, Settings
from retrievers.rerankers.settings import RerankerSettings

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


class Bm25Settings(Settings):
    """The constants of BM25."""

    k1: Annotated[float, Field(ge=0)] = 1.2
    """How fast a repeated word stops to count."""
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    """How much a long text is held against it."""


class FieldWeights(Settings):
    """How much a document's fields count in BM25: each term counts as if it stood there so many times."""

    title: Annotated[int, Field(ge=0, le=20)] = 1
    """Of the title; 0: it is not searched."""
    text: Annotated[int, Field(ge=0, le=20)] = 1
    """Of the text; 0: it is not searched."""

    @model_validator(mode="after")
    def _one_is_searched(self) -> FieldWeights:
        if not self.title and not self.text:
            raise ValueError("title and text are both 0, so nothing would be searched; give one of them a weight")
        return self


class SplitSettings(Settings):
    """How documents are split into passages that overlap."""

    size: Annotated[int, Field(ge=1)] = 1200
    """Characters of a passage, at most; it ends with a paragraph, a sentence or a word where one ends in its second half."""
    overlap: Annotated[int, Field(ge=0)] = 200
    """Characters that it may share with the passage before, at most."""

    @model_validator(mode="after")
    def _goes_on(self) -> SplitSettings:
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} is not less than size {self.size}; lower it")
        return self


class CorpusSettings(Settings):
    """What indexes are built from; other columns are kept beside it, unless one is called doc_id, title or text."""

    path: Annotated[Annotated[Paths, Field(min_length=1)] | None, NOT_IDENTITY, Names.FILE] = None
    """Files or folders, here or on S3: tables (Parquet, JSON lines, CSV) or documents. A local index that is missing is built
    from it by `run`, `try`, `ablate` and `plan`, and one of another corpus is refused, also in Elasticsearch; null: `index
    --corpus` names it."""
    id_column: Annotated[str, Field(min_length=1)] = "doc_id"
    """The column of the documents' ids: text or integers."""
    title_column: Annotated[str, Field(min_length=1)] | None = "title"
    """The column of the titles; a column `title` may be missing, and null reads none."""
    text_column: Annotated[str, Field(min_length=1)] = "text"
    """The column of the texts."""
    split: SplitSettings | None = None
    """Makes passages of the documents, with ids such as `manual.pdf#12`; null: a document, or a page of a PDF, is one."""

    @property
    def read_as(self) -> dict[str, str | None]:
        """Returns the index's name of each column -> the corpus's name."""
        return {"doc_id": self.id_column, "title": self.title_column, "text": self.text_column}

    @property
    def paths(self) -> list[str]:
        """Returns the paths that are named."""
        return [self.path] if isinstance(self.path, str) else list(self.path or ())


def _member_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name == "web":
        raise ValueError(
            "the name of an index of a union has letters, digits, - and _, and is not web, as pages of the web are"
        )
    return name


MemberName = Annotated[str, AfterValidator(_member_name)]
"""The name of an index of a union, which begins the ids of its documents: `law:doc1`."""


def _corpus_form(value: Any) -> str:
    several = isinstance(value, dict) and all(isinstance(one, dict | CorpusSettings) for one in value.values())
    return f"{FORM}{'each' if several and value.keys() - CorpusSettings.model_fields.keys() else 'one'}"


AnyCorpusSettings = Annotated[
    Annotated[CorpusSettings, Tag(f"{FORM}one")] | Annotated[dict[MemberName, CorpusSettings], Tag(f"{FORM}each")],
    Discriminator(_corpus_form),
]
"""A corpus; or those of the indexes of a union, by name."""
Address = Annotated[str, AfterValidator(server_address)]
"""The address of a server, without credentials."""


class ServerSettings(Settings):
    """A model at a server: text-embeddings-inference, `vllm serve`, or another with the same requests."""

    loaded: ClassVar[bool] = False
    kind: str
    """Of the model."""
    model: Annotated[str, Field(min_length=1)]
    """As the server lists it."""
    base_url: Annotated[Address | None, NOT_IDENTITY] = None
    """Of a server, up to and with /v1."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Of a server: name of the environment variable that holds the key; null: it wants none."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 8
    """Of a server: requests of the whole job at a time."""
    batch: Annotated[int, Field(gt=0, le=2048), NOT_IDENTITY] = 64
    """Of a server: texts per request, fewer where it takes fewer; documents per request for a query."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 60
    """Of a server: for one attempt of a request."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """Of a server: how long a request waits while it is overloaded or away."""

    def own_limits(self) -> list[tuple[str | None, int]]:
        """Returns the server of the model with its requests in flight."""
        return [(self.base_url, self.max_in_flight)]


class EncoderSettings(Settings):
    """The dense encoder: weights, and how texts are put into it."""

    loaded: ClassVar[bool] = True
    """Whether each worker loads the weights; else they are at a server."""
    kind: Literal["local"] = "local"
    """Weights that each worker loads; this kind where nothing is said."""
    model: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.MODEL]
    """Folder, hub name, or `package:NAME` for weights that an installed package carries."""
    pooling: Literal["cls", "mean", "last"] | None = None
    """How the states of a text's tokens become one vector; null: as the model's files say (cls where they say nothing)."""
    query_prefix: str | None = None
    """Stands before each query; null: the model's own prompt for queries, if it has one."""
    passage_prefix: str | None = None
    """Stands before each passage; null: the model's own prompt for documents, if it has one."""
    max_length: Annotated[int, Field(ge=8)] | None = None
    """Tokens; null: the model's own limit."""
    dtype: Dtype = "auto"
    """Precision; auto: float32 on a CPU, float16 on a GPU."""
    trust_remote_code: bool = False
    """Run the code that lies beside the weights, for a model that needs it."""


class OpenaiEncoderSettings(ServerSettings):
    """A dense encoder at a server with OpenAI's Embeddings; its pooling and longest text are the server's."""

    kind: Literal["openai"]
    """This kind."""
    base_url: Annotated[Address, NOT_IDENTITY]
    """Up to and with /v1."""
    dimensions: Annotated[int, Field(gt=0)] | None = None
    """Length of the vectors, of a model that has several; null: the model's own."""
    query_prefix: str = ""
    """Stands before each query, as the model was trained."""
    passage_prefix: str = ""
    """Stands before each passage, as the model was trained."""


def _encoder_kind(value: Any) -> str:
    kind = value.get("kind", "local") if isinstance(value, dict) else getattr(value, "kind", "local")
    return str(kind)


AnyEncoderSettings = Annotated[
    Annotated[EncoderSettings, Tag("local")] | Annotated[OpenaiEncoderSettings, Tag("openai")], Discriminator(_encoder_kind)
]
"""An encoder: its weights in each worker, or a server."""


class FuseSettings(Settings):
    """How the lists of one query become one."""

    method: Literal["rrf", "minmax", "weighted", "best"] = "minmax"
    """The formula: docs/strategies.md."""
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Of rrf: 1 / (k + rank)."""
    depth: Annotated[int, Field(gt=0)] = 30
    """How much of each list takes part."""
    keep: Annotated[int, Field(gt=0)] = 50
    """Candidates handed on."""
    keep_candidates: bool = False
    """Write them to candidates/, before reranking; an ablation always does, of its arm `full`."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """strategy (also original, together) or strategy/retriever (which wins) -> weight, in place of the strategy's own; 0 leaves
    the list out. original+strategy: of the original's lists in queries that this strategy rewrites. Only where nothing else is
    left do the original's lists stand in."""
    retriever_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """retriever -> weight (default 1) by which those of its lists are multiplied; of weighted and best its term in the join of
    the retrievers. 0 leaves its lists out."""
    original_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of the original's lists with a lower score take no part, as a strategy's `score_floor` has it; null: all do."""
    divide: Literal["none", "max"] = "none"
    """Of weighted and best; max: the fused scores of a query are divided by the highest. Their order stays."""
    duplicates: Literal["keep", "drop"] = "keep"
    """drop: documents with the same text under several ids are one candidate, which has the ranks of all of them."""
    duplicate_chars: Annotated[int, Field(gt=0)] | None = None
    """How much of the texts is compared; null: all."""
    redundancy: Literal["none", "overlap", "cosine"] = "cosine"
    """Lists that look alike share a vote: by the documents in both, or by the cosine of their texts."""


class RerankSettings(RerankerSettings, ServerSettings):
    """How the candidates are put into their final order, against the original query."""

    house: ClassVar[bool] = True
    kind: Literal["cross_encoder", "bi_encoder", "server", "none"] = "cross_encoder"
    """What scores a pair of query and document; server: a cross-encoder at `base_url`; none: fused order is final."""
    model: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.MODEL] = "BAAI/bge-reranker-v2-m3"
    """Cross-encoder weights: folder, hub name or `package:NAME`; of a server, as it lists the model."""
    encoder: AnyEncoderSettings | None = None
    """For bi_encoder; null: the encoder of the first dense retriever."""
    max_length: Annotated[int, Field(ge=16)] = 512
    """Tokens of query and passage together; text-embeddings-inference takes its model's own limit."""
    dtype: Dtype = "auto"
    """Of a cross-encoder; auto: float32 on a CPU, float16 on a GPU."""
    prompt: str | None = None
    """What an LLM is asked of query and passage; null: FlagEmbedding's own, or the instruction in Qwen3-Reranker's template."""
    trust_remote_code: bool = False
    """Run the code that lies beside the weights, for a model that needs it."""

    @model_validator(mode="after")
    def _address_of_a_server(self) -> RerankSettings:
        if self.kind == "server" and self.base_url is None:
            raise ValueError("kind server needs base_url; give the server's address, such as http://host:8000/v1")
        return self

    def names(self) -> dict[str, Names]:
        """Returns what its own fields name: of weights their place, of a server how it is reached."""
        named = super().names()
        model = named.pop("model")
        return named if self.kind == "server" else {"model": model} if self.kind == "cross_encoder" else {}

    def own_limits(self) -> list[tuple[str | None, int]]:
        """Returns the server of a cross-encoder."""
        return super().own_limits() if self.kind == "server" else []

    @property
    def loads(self) -> bool:
        """Returns whether the workers compute the scores, and no server."""
        return self.kind == "cross_encoder" or (self.encoder is not None and self.encoder.loaded)


def bm25_or_dense(values: object, bm25_only: tuple[str, ...], dense_only: tuple[str, ...]) -> object:
    """Returns a retriever's settings before validation; raises ValueError if keys of BM25 and of dense search are mixed."""
    if not isinstance(values, dict):
        return values
    given = {key: value for key, value in values.items() if value is not None}
    if given.get("encoder") is None:
        for key in dense_only:
            if key in given:
                raise ValueError(f"{key} is of dense search, and there is no encoder; give one, or remove {key}")
        return values
    for key in bm25_only:
        if key in given:
            raise ValueError(f"has {key} (BM25) and encoder (dense); make two retrievers of it, they may share one index")
    return values
