"""Checks of an ablation before it starts, and what a driver does with its shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cluster.errors import ConfigError, nearest
from cluster.run.session import IN_PROCESS
from cluster.run.shards import File, Plan
from jobs.ablate.arms import Arm, arms_of
from jobs.ablate.compile import Compiled, compile_arms
from jobs.ablate.pipeline import arm_stages
from jobs.ablate.pools import arm_pools, arm_rerankers, pooled_config
from jobs.ablate.tables import ARM_STORED
from jobs.bill.spending import requests_per_query
from jobs.compare.measures import check_measures, deepest_rank
from jobs.config.config import Config
from jobs.keys import SCHEMA_VERSION, VERSIONS
from jobs.log.check import has_values
from jobs.pools.request_shares import check_shares
from jobs.run import engine
from jobs.run.finish import log_balances
from jobs.run.folder import run_id
from jobs.run.prepare import Prepared, log_columns, prepare
from jobs.run.work import Balances, Work
from rewriters.engines.settings import RecordedSettings

# Of `evaluate.slices`: known without a column of the log. Where it has one of that name, that is meant.
SLICES = ("query_type", "frequency", "difficulty", "words", "language")


@dataclass(frozen=True)
class Ablation:
    """A checked ablation."""

    prepared: Prepared
    compiled: Compiled
    pooled: Config
    """The config whose pools it needs."""

    @property
    def work(self) -> Work:
        """Returns what a driver does with its shards."""
        pooled, compiled = self.pooled, self.compiled
        engines = [settings for settings, _ in compiled.work.engines.values()]
        rerankers = arm_rerankers(compiled.arms)
        askings = [asking.rewriting for asking in compiled.work.askings]
        return Work(
            pools=lambda _: arm_pools(pooled, engines, rerankers),
            check_engines=lambda prepared: _check_engines(prepared, compiled),
            check=lambda _, pools: check_shares(pooled, pools, rerankers),
            stages=lambda prepared, pools, start: arm_stages(prepared, compiled, pools, start),
            requests_per_query=lambda _: sum(map(requests_per_query, askings)),
            schemas=lambda _: _schemas(compiled),
            balances=partial(_balances, compiled),
            is_newest=False,
        )


def prepare_ablation(config: Config, config_path: str) -> Ablation:
    """Returns a checked ablation with the name of its folder; no table is written.

    Raises:
        LogError, RewriterError, RetrieverError, ClusterError, ConfigError: it cannot be run.
    """
    arms = arms_of(config)
    check_measures(config.evaluate.measures)
    deepest = deepest_rank(config.evaluate.measures)
    _check_baseline(config, arms)
    prepared = prepare(config, config_path)
    looked = config.ablate.keep or deepest
    compiled = compile_arms(arms, looked, sources=config.ablate.sources)
    pooled = pooled_config(config, arms, looked)
    columns = set(compiled.columns) | {name for name in config.evaluate.slices if _of_log(prepared, name)}
    of_all = {"schema_version": SCHEMA_VERSION, "versions": VERSIONS, "indexes": prepared.indexes}
    identified_by = of_all | compiled.identity
    sized = prepared.config.cluster.model_copy(update={"shard_size": pooled.cluster.shard_size})
    answered = [arm for arm in arms if not arm.members]
    prepared = replace(
        prepared,
        config=prepared.config.model_copy(update={"cluster": sized}),
        columns=replace(log_columns(config, prepared.rewriting), values=tuple(sorted(columns))),
        identity=identified_by,
        run_id=run_id(config, identified_by),
        warnings=prepared.warnings + _warnings(config),
        notes={"ablation": {"arms": [_noted(arm, compiled) for arm in arms], "answered": len(answered)}},
    )
    return Ablation(prepared, compiled, pooled)


def _of_log(prepared: Prepared, name: str) -> bool:
    """Returns whether slices of this name are by a column of the log."""
    return name not in SLICES or (name != "query_type" and has_values(prepared.files[0], prepared.columns, name))


def _noted(arm: Arm, compiled: Compiled) -> dict[str, object]:
    cut_from = next((one.cut_from for one in compiled.work.answers if one.arm == arm.name), None)
    return arm.values() | {"fingerprint": compiled.fingerprints.get(arm.name), "cut_from": cut_from}


def _check_baseline(config: Config, arms: list[Arm]) -> None:
    names = [arm.name for arm in arms]
    if config.evaluate.baseline not in names:
        known = nearest(config.evaluate.baseline, names)
        raise ConfigError("config-value", f"evaluate.baseline: no arm {config.evaluate.baseline!r}{known}")


def _check_engines(prepared: Prepared, compiled: Compiled) -> None:
    """Checks the engines of all arms, which may send requests to their servers."""
    local = prepared.config.cluster.address in ("local", IN_PROCESS)
    settings: list[Any] = [of for of, _ in compiled.work.engines.values()]
    settings += [one.engine for asking in compiled.work.askings for one in asking.rewriting.pool if one.engine is not None]
    for one in settings:
        engine.check(one, local)


def _warnings(config: Config) -> tuple[str, ...]:
    """Returns what works, and probably not as it is meant."""
    found = []
    engine, decoding = config.rewrite.engine, config.rewrite.decoding
    if config.ablate.samples > 1 and isinstance(engine, RecordedSettings):
        found.append("ablate.samples: recorded answers are the same each time, so the noise floor is 0; name a live engine")
    elif config.ablate.samples > 1 and decoding.temperature == 0:
        found.append("ablate.samples: at rewrite.decoding.temperature 0 the answers hardly differ; raise it for a noise floor")
    return tuple(found)


def _schemas(compiled: Compiled) -> dict[str, object]:
    """Returns the schemas of the tables that an ablation writes."""
    left_out = set()
    if not compiled.work.rerankers:
        left_out.add("scores")
    if not any(answer.looked > answer.keep for answer in compiled.work.answers):
        left_out.add("tails")
    if not any(reading.rewriting.selects for reading in compiled.work.readings):
        left_out.add("selections")
    return {name: schema for name, schema in ARM_STORED.items() if name not in left_out}


def _balances(
    compiled: Compiled, prepared: Prepared, plan: Plan, counts: Mapping[str, int], tables: Mapping[str, list[File]]
) -> Balances:
    """Returns the counts that must be equal: of the log, and that every arm answered every query."""
    rows = {table: sum(file.rows for file in files) for table, files in tables.items()}
    queries, failed = plan.counts["queries"], counts.get("error_queries/retrieve/failed", 0)
    found = [
        *log_balances(plan, counts, rows),
        ("rewrites committed", counts.get("rewrites", 0), "rows of rewrites", rows["rewrites"]),
        ("results committed", counts.get("results", 0), "rows of results", rows["results"]),
    ]
    for answer in compiled.work.answers:
        answered = counts.get(f"arm/{answer.arm}/queries_with_results", 0)
        none = counts.get(f"arm/{answer.arm}/no_hits", 0)
        found.append(
            (f"arm {answer.arm!r}: queries", queries, "those with results + without hits + failed", answered + none + failed)
        )
    return found
