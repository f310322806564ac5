"""The sections of the config that jobs alone read: `limits`, `evaluate`, `report`, `ablate`, `notify`, `publish`, `web`."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from cluster.settings import NOT_IDENTITY, Names, Settings
from jobs.log.judgements import Key
from retrievers.kinds import WebOnly
from rewriters.steps.settings import LlmStepSettings

Share = Annotated[float, Field(ge=0, le=1)]


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
