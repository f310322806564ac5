"""Checks of a job before the run, and the name of its folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.errors import ConfigError, RetrieverError, nearest
from cluster.prices import Prices, load_prices, prices_version
from cluster.storage import Storage, check_writable, open_storage
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.given_lists import given_list_notes, with_given_lists
from jobs.job.indexes import check_depths, check_documents, encoder_warnings, index_identities, read_facts
from jobs.job.keys import identity, run_id
from jobs.job.measure_checks import named_judgements
from jobs.job.pools import opened_engines, requested_pools, step_engines, with_precisions
from jobs.job.rewrite import read_rewriting
from jobs.job.steps import ReadySteps, Resolve, ready_steps
from jobs.log.check import LogColumns, check_log
from jobs.log.files import LogFile, log_files
from jobs.log.judgements import read_answers
from jobs.notify import check_notify
from retrievers.reranker import reranker_identity
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.strategy import CONTEXT, Strategy, variables

Ready = Callable[[Sequence[Config]], object]
"""Called before indexes are looked at, when all cheaper things are checked, with the configs of the job: of a run its own."""


@dataclass(frozen=True)
class Prepared:
    """A checked job, ready to run."""

    config: Config
    config_file: str
    files: list[LogFile]
    columns: LogColumns
    identity: dict[str, Any]
    engine: EngineSettings | None  # resolved settings with which rewriting workers open their engine
    indexes: dict[str, dict[str, Any]]  # retriever -> identity of its index
    prices: Prices | None
    output: Storage
    run_id: str
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # retriever -> facts of its index, not in the fingerprint
    rewriting: Rewriting = field(default_factory=lambda: Rewriting(()))  # of workers; engines of strategies are resolved
    warnings: tuple[str, ...] = ()  # settings that work, but probably not as intended
    notes: Mapping[str, Any] = field(default_factory=dict)  # further keys of run.json
    prices_file: Mapping[str, str] | None = None  # its name and SHA-256
    steps: ReadySteps = field(default_factory=ReadySteps)  # that LLMs do after retrieval

    @property
    def storage(self) -> Storage:
        return open_storage(self.output.url(self.run_id))


def leave(configs: Sequence[Config]) -> None:
    """Leaves the indexes unchanged, to be refused where one is missing (`Ready`)."""


def prepare(config: Config, config_path: str, ready: Ready = leave, folder: str | None = None) -> Prepared:
    """Returns a checked job with the run's name: inputs and output are checked, the cheapest first; no table is written.

    `ready` may build indexes that are missing. Of a job for single queries (`try`) `folder` replaces the output, and neither
    log nor judgements are read.

    Raises:
        LogError, RewriterError, RetrieverError, ClusterError, ConfigError: the job cannot be run.
    """
    rewriting, files = read_rewriting(config), list[LogFile]()
    if folder is None:
        check_notify(config.notify)
        files = log_files(config.log)
        check_log(files, log_columns(config, rewriting))
        named_judgements(config)
        if config.evaluate.answers:
            read_answers(config.evaluate.answers, config.evaluate.key)
        check_writable(open_storage(config.output), "output")
        if config.own_store is not None:
            check_writable(open_storage(config.own_store), "store")
    config = with_given_lists(
        with_precisions(config, requested_pools(config, engines=[opened_engines(config, rewriting.pool)]))
    )
    prices = read_prices(config, config_path)
    ready([config])
    indexes = index_identities(config)
    warnings = [*encoder_warnings(config), *given_list_notes(config)]
    if config.reads_texts:
        check_documents(config, indexes)
    facts = read_facts(config, indexes)
    check_depths(config, facts)
    engine_settings, rewriting, rewriting_identity, of_rewriting = resolved_rewriting(config, rewriting)
    steps = ready_steps(config)
    identified_by = identity(config, indexes, rewriting_identity, reranking_identity(config), steps.identity())
    return Prepared(
        config=config,
        config_file=str(Path(config_path).absolute()),
        files=files,
        columns=log_columns(config, rewriting),
        identity=identified_by,
        engine=engine_settings,
        indexes=indexes,
        prices=prices,
        output=open_storage(folder or config.output),
        run_id=run_id(config, identified_by),
        facts=facts,
        rewriting=rewriting,
        warnings=(*warnings, *of_rewriting, *unpriced_models(config, prices, rewriting.pool)),
        prices_file=prices_version(_prices_path(config_path)) if prices is not None else None,
        steps=steps,
    )


def read_prices(config: Config, config_path: str) -> Prices | None:
    """Returns the prices beside the config; None: there are none, and none are needed."""
    prices = load_prices(_prices_path(config_path))
    if prices is None and config.limits.max_cost_usd is not None:
        problem = f"limits.max_cost_usd needs prices, and there is no prices.yaml beside {config_path}"
        raise ConfigError("prices", f"{problem}; put one there, like configs/prices.yaml")
    return prices


def _prices_path(config_path: str) -> Path:
    return Path(config_path).with_name("prices.yaml")


def log_columns(config: Config, rewriting: Rewriting) -> LogColumns:
    """Returns the columns of the log that are read, and their use."""
    log = config.log
    return LogColumns(
        log.query_column,
        log.id_column,
        log.count_column,
        log.max_chars,
        log.context_column,
        values=rewriting.columns,
        classify=rewriting.rules.types if rewriting.rules and rewriting.select.typed_by == "rules" else None,
    )


def reranking_identity(config: Config) -> dict[str, Any]:
    """Returns the identity of a config's reranker."""
    try:
        return reranker_identity(config.reranking)
    except RetrieverError as error:
        if error.code == "model":
            error.line += "; or do without a reranker: --set rerank.kind=none"
        raise


def free_models(config: Config, prices: Prices, pool: Sequence[Strategy] | None = None) -> list[str]:
    """Returns the models at servers that have no price; `pool` as of `opened_engines`."""
    models = dict.fromkeys(engine.counted_by for engine in _at_servers(config, pool))
    return [model for model in models if model not in prices.tokens]


def _at_servers(config: Config, pool: Sequence[Strategy] | None) -> list[EngineSettings]:
    engines = [*opened_engines(config, pool), *(engine for asked in step_engines(config).values() for engine in asked)]
    return [engine for engine in engines if engine.at_server]


def unpriced_models(config: Config, prices: Prices | None, pool: Sequence[Strategy] | None = None) -> tuple[str, ...]:
    """Returns the warnings of models at servers whose tokens count as free; `pool` as of `opened_engines`."""
    if prices is None:
        return ()
    near = {model: nearest(model, prices.tokens) if prices.tokens else "" for model in free_models(config, prices, pool)}
    if near and config.limits.max_cost_usd is not None:
        model, like = next(iter(near.items()))
        raise ConfigError(
            "prices",
            f"limits.max_cost_usd cannot hold: prices.yaml has no price for the model {model!r}{like}; add it under tokens "
            "(0 where it costs nothing), or remove the limit",
        )
    warnings = [
        f"prices.yaml: tokens: no price for the model {model!r}{like}, so its tokens count as free; add it there"
        for model, like in near.items()
    ]
    for model, tier in ((asked.counted_by, asked.asked_tier) for asked in _at_servers(config, pool)):
        if tier and model in prices.tokens and tier not in prices.tokens[model].tiers:
            warning = f"{model!r} has no price for tier {tier}, so its tokens count as of the standard tier"
            warnings.append(f"prices.yaml: tokens: {warning}; add tiers: {{{tier}: ...}} there")
    return tuple(dict.fromkeys(warnings))


def resolved_rewriting(
    config: Config, rewriting: Rewriting, resolve: Resolve = engine.resolve
) -> tuple[EngineSettings | None, Rewriting, dict[str, Any], tuple[str, ...]]:
    """Returns the common engine's settings for workers, what they rewrite with, its identity, and warnings."""
    rewrite, common = config.rewrite, config.rewrite.engine
    if not rewrite.planned or common is None:
        return None, rewriting, {"strategies": []}, ()
    rewriter = Rewriter(rewriting)
    warnings = [
        f"strategy {name!r}: its prompt is not sent, since one request asks for several strategies: it takes their definitions "
        "and examples; set rewrite.calls: separate, or joint: false in its file"
        for name in rewriter.unsent_prompts()
    ]
    for strategy in rewriting.pool:
        strategy_engine = strategy.engine or common
        if strategy.prompt_as == "text" and not strategy_engine.goes_on:
            what = f"the engine {strategy_engine.kind!r} takes messages alone; give it an engine of another kind"
            where = f"rewrite.strategies: strategy {strategy.name!r}"
            raise ConfigError("strategy", f"{where}: its prompt is a text to go on with (prompt_as: text), and {what}")
        if rewriting.context and strategy.prompt_as == "text" and CONTEXT not in variables(strategy.prompt):
            warnings.append(
                f"strategy {strategy.name!r}: its prompt is a text that is sent as it is, and has no {{context}}, so that the "
                "model does not see the earlier turns"
            )
    settings, engine_identity = resolve(common)
    own = {strategy.name: resolve(strategy.engine) for strategy in rewriting.pool if strategy.engine is not None}
    pool = tuple(s.model_copy(update={"engine": own[s.name][0]}) if s.name in own else s for s in rewriting.pool)
    identities: dict[str, Any] = {"rewriter": rewriter.identity(), "engine": engine_identity}
    if own:
        identities["engines"] = {name: identified_by for name, (_, identified_by) in own.items()}
    if rewriting.retries and any(each.is_recorded for each in (settings, *(resolved for resolved, _ in own.values()))):
        warnings.append("rewrite.retries: a recording has one answer to each request, so none of its requests is made again")
    return settings, replace(rewriting, pool=pool), identities, tuple(warnings)
