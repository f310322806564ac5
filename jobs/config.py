"""What a config may say: frozen models whose values are the defaults. `jobs/load.py` reads a file into them.

The models check the form only; what a verb reads (a log, an index, a model), that verb checks. Paths are relative to the
current folder.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.engine_config import Engine
from jobs.part import Part, nearest
from jobs.retriever_config import Elastic, Encoder, Retriever


def _not_built(what: str, allowed: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value not in allowed.split(", "):
            raise ValueError(f"{what} {value!r} is not available yet; available: {allowed}")
        return value

    return BeforeValidator(check)


def _no_store(value: Any) -> None:
    if value is not None:
        raise ValueError(f"the shared store ({value}) is not available yet; leave it null")


def _path_or_paths(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    raise ValueError(f"should be a path or a list of paths, found {value!r}")


class Log(Part):
    """The query log: Parquet files of any columns."""

    path: Annotated[str | list[str], BeforeValidator(_path_or_paths)]
    """File, folder (hive partitions included) or list of them."""
    query_column: str
    id_column: str | None = None
    """Names the log's rows in `query_map`, qrels and errors; without one a row is `<file>#<row>`."""
    count_column: str | None = None
    """Of a pre-aggregated log: how often the query of this row was asked."""
    max_chars: Annotated[int, Field(gt=0)] = 2000
    """Longer queries are rejected (a row in errors/), not cut."""


class Decoding(Part):
    """How an engine samples; part of a completion's identity."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] = 512
    seed: int = 0
    stop: list[str] = []
    """Texts that end an answer; they are not part of it."""
    chat_template_kwargs: dict[str, Any] = {"enable_thinking": False}


class Rewrite(Part):
    """Which rewrites are made, and how."""

    engine: Engine | None = None
    decoding: Decoding = Decoding()
    strategies: list[str] = ["general", "keyword", "pseudo_answer", "core_content"]
    """Names of files in rewriters/strategies/; [] = the original only."""
    select: Annotated[Literal["all", "never"], _not_built("selection", "all, never")] = "all"
    """never: the original only, whatever `strategies` says."""
    calls: Literal["joint", "separate"] = "joint"
    """joint: one request for all strategies of a query; separate: one each."""
    store: Annotated[None, BeforeValidator(_no_store)] = None
    """The completions store shared by nights and jobs; not available yet."""

    @model_validator(mode="after")
    def _engine_where_needed(self) -> Rewrite:
        if self.planned and self.engine is None:
            raise ValueError("engine is missing; name one, or set strategies: [] to search with the original only")
        twice = sorted({name for name in self.strategies if self.strategies.count(name) > 1})
        if twice or "original" in self.strategies:
            why = "twice; list it once" if twice else "(the original is always retrieved); remove it"
            raise ValueError(f"strategies: {(twice or ['original'])[0]!r} must not stand there {why}")
        return self

    @property
    def planned(self) -> list[str]:
        """The strategies that are asked for."""
        return [] if self.select == "never" else self.strategies


class Retrieve(Part):
    """What is searched, where, how deep."""

    retrievers: dict[str, Retriever]
    depth: Annotated[int, Field(gt=0)] = 100
    """Hits fetched per list."""
    keep_runs: bool = True
    """Write every list to runs/."""
    routes: dict[str, list[str]] = {}
    """Strategy (or `original`) -> names of the retrievers it goes to; not named: all."""

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Retrieve:
        if not self.retrievers:
            raise ValueError("retrievers is empty; name at least one")
        if self.depth > 10_000 and any(isinstance(one, Elastic) for one in self.retrievers.values()):
            raise ValueError(f"depth {self.depth} is more than the 10,000 hits that Elasticsearch gives; lower it")
        if self.routes.get("original") == []:
            raise ValueError("routes.original is empty, but the original is always retrieved; set fuse.weights.original to 0 "
                             "to keep it out of the results")  # fmt: skip
        for strategy, names in self.routes.items():
            for name in names:
                if name not in self.retrievers:
                    raise ValueError(f"routes.{strategy}: no retriever {name!r}{nearest(name, self.retrievers)}")
        return self

    def route(self, strategy: str) -> list[str]:
        """The retrievers that a strategy's texts go to."""
        return self.routes.get(strategy, list(self.retrievers))


class Fuse(Part):
    """How the lists of one query become one."""

    method: Literal["rrf", "minmax", "weighted", "best"] = "minmax"
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    depth: Annotated[int, Field(gt=0)] = 30
    """How much of each list takes part."""
    keep: Annotated[int, Field(gt=0)] = 50
    """Candidates handed on."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """strategy or strategy/retriever -> weight, in place of the strategy's own; 0 leaves the list out."""
    redundancy: Literal["none", "overlap", "cosine"] = "cosine"


class Rerank(Part):
    """How the candidates are put into their final order, against the original query."""

    kind: Literal["cross_encoder", "bi_encoder", "none"] = "cross_encoder"
    model: str = "BAAI/bge-reranker-v2-m3"
    """Cross-encoder weights: folder, hub name or `package:NAME`."""
    encoder: Encoder | None = None
    """For bi_encoder; null: the encoder of the first dense retriever."""
    keep: Annotated[int, Field(gt=0)] = 10
    combine: Literal["replace", "blend"] = "blend"
    max_length: Annotated[int, Field(ge=16)] = 512
    """Tokens of query and passage together."""


class Limits(Part):
    """When the job stops by itself (exit code 1; what is committed stays, and the run can go on)."""

    error_rate: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of queries with an error row, judged from 100 queries on and at the end."""
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """By prices.yaml beside the config."""
    stall_minutes: Annotated[float, Field(gt=0)] = 15
    """Longest time without a committed shard."""


class Pool(Part):
    """Workers of a stage; null: sized to what is there."""

    workers: Annotated[int, Field(gt=0)] | None = None
    cpus: Annotated[float, Field(gt=0)] | None = None
    gpus: Annotated[float, Field(ge=0)] | None = None


class Cluster(Part):
    """Where it runs."""

    address: str = "local"
    """local: a Ray of our own; auto: RAY_ADDRESS or a running one; else an address."""
    shard_size: Annotated[int, Field(gt=0, le=5000)] = 1000
    """Queries worked on and committed together."""
    rewrite: Pool = Pool()
    retrieve: Pool = Pool()
    rerank: Pool = Pool()


class Evaluate(Part):
    """Relevance judgements, if there are any."""

    qrels: str | None = None
    """log_id, doc_id, relevance in tab-separated columns, or TREC's four."""


class Report(Part):
    """The page that a run ends with."""

    texts: bool = True
    """false: no query, rewrite or document stands in it, only ids, names and numbers."""
    samples: Annotated[int, Field(ge=0)] = 100
    """Queries that are shown with their rewrites and hits."""


class Config(Part):
    """A whole job."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    log: Log
    rewrite: Rewrite
    retrieve: Retrieve
    fuse: Fuse = Fuse()
    rerank: Rerank = Rerank()
    limits: Limits = Limits()
    evaluate: Evaluate = Evaluate()
    report: Report = Report()
    output: str
    cluster: Cluster = Cluster()

    @model_validator(mode="after")
    def _known_everywhere(self) -> Config:
        lists = ["original", *self.rewrite.strategies]
        for where, keys in (("retrieve.routes", self.retrieve.routes), ("fuse.weights", self.fuse.weights)):
            for key in keys:
                strategy, _, retriever = key.partition("/")
                if strategy not in lists:
                    raise ValueError(f"{where}: {strategy!r} is not among the strategies{nearest(strategy, lists)}")
                if retriever and retriever not in self.retrieve.retrievers:
                    raise ValueError(f"{where}: no retriever {retriever!r}{nearest(retriever, self.retrieve.retrievers)}")
        if self.rerank.kind == "bi_encoder" and self.reranking_encoder is None:
            raise ValueError("rerank: bi_encoder needs rerank.encoder, since no retriever is dense; set it")
        return self

    @property
    def used_redundancy(self) -> str:
        """The redundancy weights that can be had: cosine needs embeddings, so a dense retriever."""
        asked = self.fuse.redundancy
        return "overlap" if asked == "cosine" and self.dense_retriever is None else asked

    @property
    def reranking_encoder(self) -> Encoder | None:
        """The encoder of a bi_encoder reranker."""
        if self.rerank.encoder is not None:
            return self.rerank.encoder
        dense = self.dense_retriever
        return None if dense is None else self.retrieve.retrievers[dense].encoder

    @property
    def reranking(self) -> dict[str, Any]:
        """`rerank` with the encoder that a bi_encoder falls back to."""
        encoder = self.reranking_encoder if self.rerank.kind == "bi_encoder" else None
        return self.rerank.model_dump() | {"encoder": encoder.model_dump() if encoder else None}

    @property
    def dense_retriever(self) -> str | None:
        """The first dense retriever: its embeddings tell how alike two texts are."""
        return next((name for name, retriever in self.retrieve.retrievers.items() if retriever.encoder), None)
