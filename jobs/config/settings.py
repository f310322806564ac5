"""The sections of the config that jobs alone read: `limits`, `evaluate`, `report`, `ablate`, `notify`, `publish`, `web`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from cluster.settings import NOT_IDENTITY, Names, Settings
from jobs.log.judgements import Key
from retrievers.kinds import WebOnly
from rewriters.steps.settings import LlmStepSettings

Share = Annotated[float, Field(ge=0, le=1)]


class LimitSettings(Settings):
    """Limits at which the job stops (exit code 1; committed shards stay, and the run can be resumed)."""

    error_rate: Share = 0.01
    """Share of queries with an error row; fewer than ten stop no run, unless half of all have one at its end, or this is 0."""
    max_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """Highest cost in USD, by the prices.yaml beside the config; no request is sent that would exceed it."""
    stall_minutes: Annotated[float, Field(gt=0)] = 15
    """Longest time without a committed shard and without a heartbeat of a worker."""


class EvaluateSettings(Settings):
    """How the results are measured."""

    qrels: Annotated[str | None, Names.TEXT] = None
    """Judgements: `key`, doc_id, grade in columns parted by tabs, or TREC's four; or a table in CSV or Parquet."""
    key: Key = "log_id"
    """What their first column holds: log_id (of one log), query_id or query (of every log that has the query)."""
    answers: Annotated[str | None, Names.TEXT] = None
    """Gold answers: `key`, answer, likewise; answers are measured by them (EM, F1), and the report counts the pseudo-answers
    that have one."""
    measures: Annotated[list[str], Field(min_length=1)] = ["nDCG@10", "R@10", "P@5", "Success@5", "RR@10"]
    """What `run`, `report`, `evaluate`, `diff` and `ablate` measure by, the first one before all (`tune` by it alone): any
    measures that ir_measures knows."""
    baseline: str = "original"
    """The arm that `ablate` compares the others with."""
    margin: Annotated[float, Field(gt=0)] = 0.01
    """Margin of equivalence: arms that differ by less, by two one-sided tests, are called equivalent."""
    slices: list[str] = []
    """What `ablate` measures arms by, part by part: query_type, frequency, difficulty, words, language, or a log's column."""


class ReportSettings(Settings):
    """Content of the HTML report."""

    texts: bool = True
    """false: the report holds no query, rewrite, prompt, answer or document, only ids, names and numbers."""


Subsets = Literal["none", "all", "leave_one_out", "add_one"]


class AblateSettings(Settings):
    """The arms of `ablate`, beside those that are always there: the config itself, the original, each single strategy."""

    arms: dict[str, dict[str, Any]] = {}
    """A name chosen by you -> what it changes: keys of the config in dotted form, with their values. `rewrite.select` also
    takes `{kind: oracle_k, k: 2}`: the best k strategies of each query by its judgements, a bound."""
    runs: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """A name chosen by you -> a run file of TREC: an arm of its lists as they are, whatever made them (docs/ablations.md)."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Keys of the config in dotted form -> their values; each combination is an arm, named by its values."""
    subsets: Subsets = "none"
    """Arms of subsets of `rewrite.strategies`: all (with the original, and without it), leave_one_out (all but one), add_one
    (the original and one), none."""
    samples: Annotated[int, Field(ge=1)] = 1
    """How often the config itself is an arm, each time with answers of its own: the noise floor."""
    keep: Annotated[int, Field(gt=0)] | None = None
    """Documents written per query and arm: results, and in tails/ what stands behind them; null: to the deepest rank that a
    measure of `evaluate.measures` reads."""
    sources: bool = False
    """Write the lists that each result comes from, too; makes results/ several times larger."""


Event = Literal["end", "failure", "limit", "interruption", "outage"]


class NotifySettings(Settings):
    """Notifications of `run` and `ablate` by apprise (docs/operations.md, Notifications)."""

    urls_env: str
    """The environment variable that holds URLs of apprise, separated by white space."""
    events: Annotated[list[Event], Field(min_length=1)] = ["failure", "limit", "interruption"]
    """Events that are sent. failure: the job failed or was refused; limit: one of `limits` stopped it; interruption: Ctrl-C or
    SIGTERM; end: it finished; outage: a server has not answered for a minute, and answers again."""

    @field_validator("urls_env")
    @classmethod
    def _named(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("not the name of an environment variable (not shown, it may be a URL); put the URLs into one")
        return name


class PublishSettings(Settings):
    """Bounds that a version is held against before `export --promote` makes it current."""

    error_rate: Share | None = 0.01
    """Highest share of queries with a failure in errors/; null: any."""
    coverage: Share | None = 0.95
    """Least share of the log's traffic whose query has rewrites or documents; null: any."""
    quality_loss: Annotated[float, Field(ge=0)] | None = 0.02
    """How much lower than that of the original query alone the first measure of `evaluate.measures` may be; null: any."""


def _of_the_web(value: Any) -> Any:
    return {"kind": "web"} | value if isinstance(value, dict) else value


class WebSearchSettings(LlmStepSettings):
    """A search of the web where the graded results do not suffice (corrective RAG, Yan et al. 2024, arXiv 2401.15884)."""

    prompt: Annotated[str, NOT_IDENTITY, Names.TEXT] = "web_query"
    """web_query, or a YAML file of the same form, whose text counts for the fingerprint."""
    search: Annotated[WebOnly, BeforeValidator(_of_the_web)]
    """The search engine, with the keys of a retriever of kind web."""
    when: Literal["any", "none"] = "none"
    """none: where no graded document is relevant, as in the paper; any: where one is not relevant, or none was found."""
    documents: Annotated[int, Field(ge=1)] = 3
    """Hits that are put behind the documents which are kept, at most."""
    language: Annotated[str, Field(min_length=1)] | None = None
    """That the web is asked in, in words such as English; null: the query's."""
