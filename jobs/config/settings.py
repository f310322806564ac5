"""The sections of the config that jobs alone read.

`rewrite`, `retrieve`, `limits`, `evaluate`, `report`, `ablate`, `notify`, `publish`, `web`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cluster.errors import nearest
from cluster.settings import NOT_IDENTITY, Names, Settings
from jobs.log.judgements import Key
from jobs.tables import ITERATE, ORIGINAL
from retrievers.kinds import AnyRetrieverSettings, WebOnly
from rewriters.engines.settings import AnyEngineSettings
from rewriters.pool import named
from rewriters.settings import DecodingSettings, GateSettings, GuardSettings, SelectAll, SelectNever, SelectSettings
from rewriters.steps.settings import LlmStepSettings

Share = Annotated[float, Field(ge=0, le=1)]


def _kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _named(value: Any) -> Any:
    named(value)
    return value


class RewriteSettings(Settings):
    """Rewriting by an LLM."""

    engine: AnyEngineSettings | None = None
    """LLM engine; required unless `strategies` is empty."""
    decoding: DecodingSettings = DecodingSettings()
    """Sampling parameters."""
    strategies: Annotated[list[Annotated[Any, BeforeValidator(_named)]], NOT_IDENTITY, Names.STRATEGIES] = [
        "general",
        "keyword",
        "pseudo_answer",
        "core_content",
    ]
    """Names, paths of YAML files, or either with parameters: `{rag_fusion: {n: 2}}`. []: the original only."""
    select: Annotated[SelectSettings, BeforeValidator(_kind)] = SelectAll(kind="all")
    """Choice of strategies per query: all, adaptive, classified, random_k, column or never."""
    gate: GateSettings | None = None
    """Skips rewriting of queries that a retriever is sure of; null: all are rewritten."""
    calls: Literal["joint", "separate"] = "joint"
    """joint: one request for all strategies that can share it; separate: one request each."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of the rewrites, such as German; null: the query's."""
    joint_prompt: Annotated[str | None, NOT_IDENTITY, Names.TEXT] = None
    """Text file that replaces the built-in joint prompt; its content counts for the fingerprint."""
    retries: Annotated[int, Field(ge=0, le=3)] = 0
    """Extra tries where an answer cannot be read, refuses or was truncated, with another seed and temperature or more
    tokens."""
    guards: GuardSettings = GuardSettings()
    """Checks and masks around the LLM."""

    @model_validator(mode="after")
    def _engine_where_needed(self) -> Self:
        if self.planned and self.engine is None:
            raise ValueError("engine is missing; name one, or set strategies: [] to search with the original only")
        if self.joint_prompt is not None and self.calls != "joint":
            raise ValueError("joint_prompt: no joint prompt is sent with calls: separate; remove it, or set calls: joint")
        entries = [named(entry) for entry in self.strategies]
        names = [entry.name for entry in entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or "original" in names:
            why = "is not a strategy (the original is always retrieved); remove it"
            if twice:
                sources = list(dict.fromkeys(entry.source for entry in entries if entry.name == twice[0]))
                why = (
                    "is listed twice; list it once"
                    if len(sources) == 1
                    else f"is listed twice ({', '.join(sources)}); give one of them another `name`"
                )
            raise ValueError(f"strategies: {(twice or ['original'])[0]!r} {why}")
        return self

    def names(self) -> dict[str, Names]:
        """Returns the files and servers that its own fields name, strategies apart."""
        return {name: what for name, what in super().names().items() if what is not Names.STRATEGIES}

    @property
    def planned(self) -> list[str]:
        """Returns the names of the strategies that the run makes rewrites with."""
        return [] if isinstance(self.select, SelectNever) else [named(entry).name for entry in self.strategies]

    @property
    def chooses(self) -> bool:
        """Returns True if `select` chooses for queries the strategies that rewrite them."""
        return bool(self.planned) and self.select.kind != "all"

    @property
    def gated(self) -> GateSettings | None:
        """Returns the gate if queries would be rewritten without it, else None."""
        return self.gate if self.planned else None

    @property
    def selects(self) -> bool:
        """Returns True if queries differ in the strategies that rewrite them, by `select` or by the gate."""
        return self.chooses or self.gated is not None


class RetrieveSettings(Settings):
    """Search with the queries and their rewrites."""

    retrievers: dict[str, AnyRetrieverSettings]
    """A name of your choice -> settings of a retriever."""
    depth: Annotated[int, Field(gt=0)] = 100
    """Hits per list."""
    keep_runs: bool = True
    """Writes every list to runs/; needed to compare with the original alone."""
    routes: dict[str, list[str]] = {}
    """Strategy (or `original`) -> names of the retrievers that search its texts; default: all."""
    store: Annotated[bool | None, NOT_IDENTITY] = None
    """Keeps lists and vectors in the store; null: all but lists of local BM25 indexes, which are faster to search than to
    read."""

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Self:
        if not self.retrievers:
            raise ValueError("retrievers is empty; name at least one")
        if self.routes.get("original") == []:
            raise ValueError("routes.original is empty, but the original is always retrieved; set fuse.weights.original to 0 "
                             "to keep it out of the results")  # fmt: skip
        alone = next((name for name, one in self.retrievers.items() if one.originals_only), None)
        for strategy, names in self.routes.items():
            for name in names:
                if name not in self.retrievers:
                    raise ValueError(f"routes.{strategy}: no retriever {name!r}{nearest(name, self.retrievers)}")
            if strategy != ORIGINAL and alone in names:
                what = f"{alone} has lists for the log's queries only; remove it from the route"
                raise ValueError(f"routes.{strategy}: {what}")
        return self

    def route(self, strategy: str) -> list[str]:
        """Returns the names of the retrievers that search a strategy's texts, the original, or refined queries."""
        names = self.routes.get(strategy, list(self.retrievers))
        return names if strategy == ORIGINAL else [name for name in names if not self.retrievers[name].originals_only]

    def routed(self, strategies: Iterable[str]) -> dict[str, list[str]]:
        """Returns `routes` with those of strategies that not all retrievers are searched for."""
        routes = dict(self.routes)
        if any(retriever.originals_only for retriever in self.retrievers.values()):
            every = {name: self.route(name) for name in (*strategies, ITERATE)}
            routes |= {name: names for name, names in every.items() if len(names) < len(self.retrievers)}
        return routes

    @property
    def text_retriever(self) -> str:
        """Returns the first retriever with an index, which has the texts of documents; those of the web come with its hits."""
        return next((name for name, one in self.retrievers.items() if one.indexed(name)), next(iter(self.retrievers)))

    @property
    def members(self) -> list[str]:
        """Returns the names of the indexes of unions, each once; "" among them where others are searched."""
        return list(dict.fromkeys(one.member(key) for name, one in self.retrievers.items() for key in one.indexed(name)))


class LimitSettings(Settings):
    """Limits that stop the job with exit code 1; committed shards stay, and the run can be resumed."""

    error_rate: Share = 0.01
    """Largest share of queries with errors. Fewer than ten never stop a run, unless half of all queries have one at its end or
    this is 0."""
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """Budget in USD by the prices.yaml beside the config; no request is sent that would exceed it."""
    stall_minutes: Annotated[float, Field(gt=0)] = 15
    """Longest time without a commit and without a heartbeat."""


class EvaluateSettings(Settings):
    """Measurement of results."""

    qrels: Annotated[str | None, Names.TEXT] = None
    """Judgements: key, doc_id and grade separated by tabs, TREC's four columns, or a CSV or Parquet table."""
    key: Key = "log_id"
    """Meaning of the first column: log_id (one log), query_id or query (every log that has the query)."""
    answers: Annotated[str | None, Names.TEXT] = None
    """Gold answers (key, answer) for EM and F1."""
    measures: Annotated[list[str], Field(min_length=1)] = ["nDCG@10", "R@10", "P@5", "Success@5", "RR@10"]
    """Measures, by any name that ir_measures knows; the first one leads, and `tune` uses it alone."""
    baseline: str = "original"
    """Arm that `ablate` compares the others with."""
    margin: Annotated[float, Field(gt=0)] = 0.01
    """Largest difference that counts as equivalent, by two one-sided tests."""
    slices: list[str] = []
    """Properties by which `ablate` splits the queries: query_type, frequency, difficulty, words, language, or a column of the
    log."""


class ReportSettings(Settings):
    """Content of the HTML page."""

    texts: bool = True
    """false: only ids, names and numbers, no query, rewrite, prompt, answer or document."""


Subsets = Literal["none", "all", "leave_one_out", "add_one"]


class AblateSettings(Settings):
    """Arms of `ablate`, besides the config itself, the original, and each single strategy."""

    arms: dict[str, dict[str, Any]] = {}
    """A name of your choice -> dotted keys with their values. `rewrite.select: {kind: oracle_k, k: 2}` takes each query's best
    k strategies by its judgements, as a bound."""
    runs: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """A name of your choice -> a TREC run file whose lists are an arm."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Dotted keys -> values; each combination is an arm."""
    subsets: Subsets = "none"
    """Subsets of `rewrite.strategies` as arms: all, leave_one_out, add_one (original and one strategy) or none."""
    samples: Annotated[int, Field(ge=1)] = 1
    """Number of times that the config itself is an arm, each time with fresh answers: the noise floor."""
    keep: Annotated[int, Field(gt=0)] | None = None
    """Documents kept per query and arm; null: as deep as `evaluate.measures` read."""
    sources: bool = False
    """Writes the lists behind each result; makes results/ several times larger."""


Event = Literal["end", "failure", "limit", "interruption", "outage"]


class NotifySettings(Settings):
    """Notifications of `run` and `ablate` by apprise."""

    urls_env: str
    """Environment variable with URLs of apprise, separated by white space."""
    events: Annotated[list[Event], Field(min_length=1)] = ["failure", "limit", "interruption"]
    """Events that are sent: failure (failed or refused), limit, interruption (Ctrl-C, SIGTERM), end, outage (a server is away
    for a minute, and is back)."""

    @field_validator("urls_env")
    @classmethod
    def _named(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("not the name of an environment variable (not shown, it may be a URL); put the URLs into one")
        return name


class PublishSettings(Settings):
    """Bounds that `export --promote` checks before it makes a version current."""

    error_rate: Share | None = 0.01
    """Largest share of queries with an error; null: any."""
    coverage: Share | None = 0.95
    """Smallest share of the log's traffic with rewrites or documents; null: any."""
    quality_loss: Annotated[float, Field(ge=0)] | None = 0.02
    """Largest loss of the first measure against the original query alone; null: any."""


def _of_the_web(value: Any) -> Any:
    return {"kind": "web"} | value if isinstance(value, dict) else value


class WebSearchSettings(LlmStepSettings):
    """Web search where graded results do not suffice (corrective RAG, arXiv 2401.15884)."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "web_query"
    """web_query, or a YAML file of the same form; its content counts for the fingerprint."""
    search: Annotated[WebOnly, BeforeValidator(_of_the_web)]
    """Search engine, with the keys of a retriever of kind web."""
    when: Literal["any", "none"] = "none"
    """none: no graded document is relevant, as in the paper; any: one is not relevant, or none was found."""
    documents: Annotated[int, Field(ge=1)] = 3
    """Largest number of web hits behind the kept documents."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """Language of the web query, such as English; null: the query's."""
