"""Settings of the corpus, encoders, fusion and reranking, as frozen models.

Those of a kind of retriever are in its folder (`local/settings.py`, `elastic/settings.py`).
"""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from cluster.http import server_address
from cluster.settings import FORM, NOT_IDENTITY, Names, Paths, Settings
from retrievers.rerankers.settings import RerankerSettings

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


class Bm25Settings(Settings):
    """Constants of BM25."""

    k1: Annotated[float, Field(ge=0)] = 1.2
    """Saturation of repeated words."""
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    """Penalty of long texts."""


class FieldWeights(Settings):
    """Weights of a document's fields in BM25: each word counts that many times."""

    title: Annotated[int, Field(ge=0, le=20)] = 1
    """Weight of the title; 0: not searched."""
    text: Annotated[int, Field(ge=0, le=20)] = 1
    """Weight of the text; 0: not searched."""

    @model_validator(mode="after")
    def _one_is_searched(self) -> Self:
        if not self.title and not self.text:
            raise ValueError("title and text are both 0, so nothing would be searched; give one of them a weight")
        return self


class SplitSettings(Settings):
    """Split of documents into overlapping passages."""

    size: Annotated[int, Field(ge=1)] = 1200
    """Largest number of characters; ends at a paragraph, sentence or word where it can."""
    overlap: Annotated[int, Field(ge=0)] = 200
    """Largest number of characters shared with the passage before."""

    @model_validator(mode="after")
    def _goes_on(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} is not less than size {self.size}; lower it")
        return self


class CorpusSettings(Settings):
    """Corpus that indexes are built from; further columns are kept with the documents."""

    path: Annotated[Annotated[Paths, Field(min_length=1)] | None, NOT_IDENTITY, Names.FILE] = None
    """Files or folders of tables or documents. A missing local index is built from it, and an index of another corpus is
    refused. null: `index --corpus` names it."""
    id_column: Annotated[str, Field(min_length=1)] = "doc_id"
    """Column of document ids, text or integers."""
    title_column: Annotated[str, Field(min_length=1)] | None = "title"
    """Column of titles; `title` may be missing, null: none."""
    text_column: Annotated[str, Field(min_length=1)] = "text"
    """Column of texts."""
    split: SplitSettings | None = None
    """Splits documents into passages such as `manual.pdf#12`; null: a document, or a page of a PDF, is one."""

    @property
    def read_as(self) -> dict[str, str | None]:
        """Returns the index's name of each column -> the corpus's name."""
        return {"doc_id": self.id_column, "title": self.title_column, "text": self.text_column}

    @property
    def paths(self) -> list[str]:
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
Address = Annotated[str, AfterValidator(server_address)]  # the address of a server, without credentials


class ServerSettings(Settings):
    """A model at a server: text-embeddings-inference, `vllm serve`, or another with the same requests."""

    loaded: ClassVar[bool] = False
    kind: str
    """Of the model."""
    model: Annotated[str, Field(min_length=1)]
    """As the server lists it."""
    base_url: Annotated[Address | None, NOT_IDENTITY] = None
    """Address of a server, up to and with /v1."""
    api_key_env: Annotated[str | None, NOT_IDENTITY] = None
    """Environment variable with the server's key; null: it needs none."""
    max_in_flight: Annotated[int, Field(gt=0), NOT_IDENTITY] = 8
    """Concurrent requests of the whole job to the server."""
    batch: Annotated[int, Field(gt=0, le=2048), NOT_IDENTITY] = 64
    """Texts per request, or documents per request of a query."""
    timeout_seconds: Annotated[float, Field(gt=0), NOT_IDENTITY] = 60
    """Timeout of one attempt of a request."""
    patience_minutes: Annotated[float, Field(gt=0), NOT_IDENTITY] = 10
    """Minutes for which a request waits for a server that is overloaded or away."""

    def own_limits(self) -> list[tuple[str | None, int]]:
        return [(self.base_url, self.max_in_flight)]


class EncoderSettings(Settings):
    """Dense encoder in the workers."""

    loaded: ClassVar[bool] = True  # True if each worker loads the weights; else they are at a server
    kind: Literal["local"] = "local"
    model: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.MODEL]
    """Folder, hub name, or `package:NAME` for weights in an installed package."""
    pooling: Literal["cls", "mean", "last"] | None = None
    """Pooling of token states; null: as the model's files say."""
    query_prefix: str | None = None
    """Text before each query; null: the model's own prompt."""
    passage_prefix: str | None = None
    """Text before each passage; null: the model's own prompt."""
    max_length: Annotated[int, Field(ge=8)] | None = None
    """Tokens; null: the model's limit."""
    dtype: Dtype = "auto"
    """Precision; auto: float32 on a CPU, float16 on a GPU."""
    trust_remote_code: bool = False
    """Runs the code beside the weights."""


class OpenaiEncoderSettings(ServerSettings):
    """Dense encoder at a server with OpenAI's Embeddings."""

    kind: Literal["openai"]
    base_url: Annotated[Address, NOT_IDENTITY]
    """Address, up to and with /v1."""
    dimensions: Annotated[int, Field(gt=0)] | None = None
    """Length of the vectors; null: the model's own."""
    query_prefix: str = ""
    """Text before each query."""
    passage_prefix: str = ""
    """Text before each passage."""


def _encoder_kind(value: Any) -> str:
    kind = value.get("kind", "local") if isinstance(value, dict) else getattr(value, "kind", "local")
    return str(kind)


AnyEncoderSettings = Annotated[
    Annotated[EncoderSettings, Tag("local")] | Annotated[OpenaiEncoderSettings, Tag("openai")], Discriminator(_encoder_kind)
]
"""An encoder: its weights in each worker, or a server."""


class FuseSettings(Settings):
    """Fusion of a query's lists into one."""

    method: Literal["rrf", "minmax", "weighted", "best"] = "minmax"
    """Formula: minmax, rrf, weighted or best."""
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Constant of rrf: 1 / (k + rank)."""
    depth: Annotated[int, Field(gt=0)] = 30
    """Hits of each list that take part."""
    keep: Annotated[int, Field(gt=0)] = 50
    """Candidates for the reranker."""
    keep_candidates: bool = False
    """Writes candidates/ before reranking; an ablation does so for its arm `full`."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """strategy or strategy/retriever -> weight, in place of the strategy's own; 0 leaves the list out. original+strategy:
    weight of the original's lists in queries that the strategy rewrites."""
    retriever_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """retriever -> factor of the weights of its lists; 0 leaves them out."""
    original_floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Hits of the original with a lower score take no part."""
    divide: Literal["none", "max"] = "none"
    """Of weighted and best: max divides a query's fused scores by the highest."""
    duplicates: Literal["keep", "drop"] = "keep"
    """drop: documents with the same text are one candidate."""
    duplicate_chars: Annotated[int, Field(gt=0)] | None = None
    """Characters of the texts that are compared; null: all."""
    redundancy: Literal["none", "overlap", "cosine"] = "cosine"
    """Lets lists that look alike share a vote: by common documents, or by the cosine of their texts."""


class RerankSettings(RerankerSettings, ServerSettings):
    """Final order of the candidates, against the original query."""

    kind: Literal["cross_encoder", "bi_encoder", "server", "none"] = "cross_encoder"
    """Scorer of query and document; server: a cross-encoder at `base_url`; none: the fused order is final."""
    model: Annotated[str, Field(min_length=1), NOT_IDENTITY, Names.MODEL] = "BAAI/bge-reranker-v2-m3"
    """Cross-encoder: folder, hub name or `package:NAME`; at a server, its name there."""
    encoder: AnyEncoderSettings | None = None
    """Encoder of bi_encoder; null: that of the first dense retriever."""
    max_length: Annotated[int, Field(ge=16)] = 512
    """Tokens of query and passage together; text-embeddings-inference has its own limit."""
    dtype: Dtype = "auto"
    """Precision; auto: float32 on a CPU, float16 on a GPU."""
    prompt: str | None = None
    """Question to a reranker that is an LLM; null: the model's own."""
    trust_remote_code: bool = False
    """Runs the code beside the weights."""

    @model_validator(mode="after")
    def _address_of_a_server(self) -> Self:
        if self.kind == "server" and self.base_url is None:
            raise ValueError("kind server needs base_url; give the server's address, such as http://host:8000/v1")
        return self

    def names(self) -> dict[str, Names]:
        """Returns the files and servers that its own fields name: the place of weights, the address of a server."""
        named = super().names()
        model = named.pop("model")
        return named if self.kind == "server" else {"model": model} if self.kind == "cross_encoder" else {}

    def own_limits(self) -> list[tuple[str | None, int]]:
        return super().own_limits() if self.kind == "server" else []

    @property
    def loads(self) -> bool:
        return self.kind == "cross_encoder" or (self.encoder is not None and self.encoder.loaded)


def bm25_or_dense(values: object, bm25_only: tuple[str, ...], dense_only: tuple[str, ...]) -> object:
    """Returns a retriever's settings before validation; raises ValueError if keys of BM25 and of dense search are mixed."""
    if not isinstance(values, dict):
        return values
    given = {key: value for key, value in values.items() if value is not None}
    if given.get("encoder") is None:
        for key in dense_only:
            if key in given:
                raise ValueError(f"{key} is a key of dense search, and there is no encoder; give one, or remove {key}")
        return values
    for key in bm25_only:
        if key in given:
            raise ValueError(f"has {key} (BM25) and encoder (dense); make two retrievers of it, they may share one index")
    return values
